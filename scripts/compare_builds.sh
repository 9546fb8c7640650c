#!/usr/bin/env bash
# One build of Farleaf beside another, for a change that may not slow anything down: each loads a tree into a
# pool of its own on this machine; then workloads a to f run on them in turns, in one thread, and are timed by its CPU
# clock, which other programs on the machine disturb least, or by the wall's.
#
#   scripts/compare_builds.sh BEFORE AFTER
#
# BEFORE, AFTER: the folders of the programs (build/release/bin). Settings, from the environment:
#   RECORDS=10000000    records of each tree
#   PROPERTIES=         of ycsb, for other records than 8-byte keys and values: "-p farleaf.keys=bytes -p fieldcount=1 -p fieldlength=100"
#   RECORD_BYTES=32     of a record in each memory server: 32, or more for such records
#   FABRIC=shm          shm or tcp
#   CLIENT=             of ycsb, what is not one thread with one operation in flight: "--in-flight 64"; threads need CLOCK=wall
#   CLOCK=cpu           cpu or wall
#   OPERATIONS=1000000  operations of each run
#   ROUNDS=7            runs of each build; a table of ratios is printed: geometric mean, least, largest
#   SEED=1
#   WARMUP=RECORDS/20   random reads of each run before it is timed
#   WORKLOADS="a b c d e f"
#   RESULTS=results/compare_builds   where a JSON file and a log of each run are left
set -euo pipefail
case "${1-}" in
  -h | --help | "") sed -n '2,20s/^# \{0,1\}//p' "$0"; [[ -n ${1-} ]] && exit 0; exit 2 ;;
esac
(($# == 2)) || { echo "compare_builds.sh: expected BEFORE and AFTER; try --help" >&2; exit 2; }
for folder in "$1" "$2"; do
  [[ -x $folder/ycsb ]] || { echo "compare_builds.sh: '$folder' has no ycsb: give the folder of a build's programs" >&2; exit 2; }
done
declare -A bins=([before]=$(realpath "$1") [after]=$(realpath "$2"))
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

RECORDS=${RECORDS:-10000000}
OPERATIONS=${OPERATIONS:-1000000}
ROUNDS=${ROUNDS:-7}
SEED=${SEED:-1}
WORKLOADS=${WORKLOADS:-a b c d e f}
RECORD_BYTES=${RECORD_BYTES:-32}
WARMUP=${WARMUP:-$((RECORDS / 20 + 1))}
FABRIC=${FABRIC:-shm}
CLIENT=${CLIENT:-}
CLOCK=${CLOCK:-cpu}
read -ra properties <<<"${PROPERTIES:-}"
read -ra client <<<"$CLIENT"
require_counts RECORDS OPERATIONS ROUNDS SEED RECORD_BYTES WARMUP

results=${RESULTS:-results/compare_builds}
mkdir -p "$results"
rm -f "$results"/*.json "$results"/*.log
begin_processes "$results"

# Each build's own pool; d and e insert, so the next run is told of more records.
declare -A pools records
all_work=$work
for build in before after; do
  bin=${bins[$build]} work=$all_work/$build logs=$results/$build
  mkdir -p "$work" "$logs"
  start_memory "$((128 + (RECORDS + 2 * ROUNDS * OPERATIONS) / 1000000 * RECORD_BYTES))" --fabric "$FABRIC"
  start_compute compute_server
  pools[$build]=$bootstrap
  records[$build]=$RECORDS
done
work=$all_work

# run BUILD NAME ROUND [ycsb arguments]
run() {
  local build=$1 name=$2 round=$3 file=$results/$2.$1.$3
  shift 3
  echo "$name, $build, round $round"
  "${bins[$build]}/ycsb" --target "pool:${pools[$build]}" --json "$file.json" --seed "$((SEED + round))" \
    --clock "$CLOCK" -p recordcount="${records[$build]}" -p operationcount="$OPERATIONS" "${properties[@]}" "${client[@]}" "$@" >"$file.log" ||
    { tail -n 5 "$file.log" >&2; return 1; }
  records[$build]=$(python3 scripts/compare_builds_table.py --records "$file.json" "${records[$build]}")
}

for build in before after; do run "$build" load 0 -P benchmark/workloads/workloada --phase load; done
for ((round = 1; round <= ROUNDS; round++)); do
  order=(before after)
  ((round % 2 == 0)) && order=(after before)
  for workload in $WORKLOADS; do
    for build in "${order[@]}"; do
      run "$build" "$workload" "$round" -P "benchmark/workloads/workload$workload" --warmup "$WARMUP"
    done
  done
done

echo
echo "$RECORDS records, $OPERATIONS operations a run, seed $SEED, $FABRIC, $CLOCK clock, ${CLIENT:-one thread, one operation in flight}"
python3 scripts/compare_builds_table.py "$results"
