#!/usr/bin/env bash
# Parted leaves beside sorted ones, which are read whole: loads a tree of each in one pool on this
# machine, runs workloads on them in turn (sorted, parted, sorted, parted, ...), and prints round trips, bytes and
# time of one beside the other. What is built must be there (build/release, or BIN).
#
#   scripts/compare_leaves.sh
#
# Settings, from the environment:
#   RECORDS=10000000    records of 8-byte keys and values in each tree
#   OPERATIONS=1000000  operations of each run
#   ROUNDS=3            runs of each kind; times are the medians
#   SEED=1
#   RESULTS=results/compare_leaves   where a JSON file and a log of each run are left
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

RECORDS=${RECORDS:-10000000}
OPERATIONS=${OPERATIONS:-1000000}
ROUNDS=${ROUNDS:-3}
SEED=${SEED:-1}
bin=${BIN:-build/release/bin}
require_programs "$bin" memory_server compute_server ycsb
if (($# > 0)); then
  sed -n '2,14s/^# \{0,1\}//p' "$0"
  [[ $1 == -h || $1 == --help ]] && exit 0
  echo "compare_leaves.sh: unknown argument '$1'" >&2
  exit 2
fi
require_counts RECORDS OPERATIONS ROUNDS SEED

results=${RESULTS:-results/compare_leaves}
mkdir -p "$results"
rm -f "$results"/*.json "$results"/*.log
begin_processes "$results"
start_memory "$((128 + (2 * RECORDS + 2 * ROUNDS * OPERATIONS) / 1000000 * 32))" --fabric shm
start_compute compute_server

# run LEAVES NAME ROUND WORKLOAD [ycsb arguments]
run() {
  local leaves=$1 name=$2 round=$3 workload=$4
  shift 4
  echo "$name, $leaves leaves, round $round"
  "$bin/ycsb" -P "benchmark/workloads/workload$workload" --target "pool:$bootstrap" --json \
    "$results/$name.$leaves.$round.json" --seed "$SEED" -p recordcount="$RECORDS" -p operationcount="$OPERATIONS" \
    -p farleaf.tree="$leaves" "$@" >"$results/$name.$leaves.$round.log"
}
both() {
  run sorted "$@"
  run parted "$@"
}

run sorted load 1 c --phase load --sorted-leaves
run parted load 1 c --phase load
warm=(--warmup $((RECORDS / 20 + 1)))
for ((round = 1; round <= ROUNDS; round++)); do
  both get "$round" c -p requestdistribution=uniform "${warm[@]}"
  both "zipfian get" "$round" c "${warm[@]}"
  both update "$round" a -p readproportion=0 -p updateproportion=1 -p requestdistribution=uniform "${warm[@]}"
  both "zipfian a" "$round" a "${warm[@]}"
  both e "$round" e -p insertproportion=0 -p scanproportion=1 -p requestdistribution=uniform "${warm[@]}"
  both "scan of 100" "$round" e -p insertproportion=0 -p scanproportion=1 -p requestdistribution=uniform \
    -p minscanlength=100 -p maxscanlength=100 "${warm[@]}"
done
# Each inserts what the tree does not have: one run.
both insert 1 c -p readproportion=0 -p insertproportion=1

echo
echo "$RECORDS records, $OPERATIONS operations, seed $SEED, one thread, one operation in flight, over shared memory"
scripts/compare_table.py "$results" sorted parted
