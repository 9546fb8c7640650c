#!/usr/bin/env bash
# Stores on disk side by side on this machine: loads each of them with the same pairs, runs workloads a to f on what it holds, all
# in turns, with equal budgets, and prints for each workload what each store did and its ratio to the first one's (medians of
# the rounds' ratios). What is built must be there (build/release, or BIN).
#
#   scripts/lsm_compare.sh [--quick]
#
# --quick: a run of a minute or so, which shows that all of it works and nothing else.
# Settings, from the environment:
#   TARGETS="rocksdb blobdb lsm"   engines of benchmark/adapters; options of their own behind a '?': "rocksdb rocksdb?growth=4"
#   MIXES="s m l sd md ld"     of pair sizes (benchmark/README.md)
#   THREADS="1 2"              each with one operation at a time
#   GROWTH="4 8 12"            growth factors
#   WORKLOADS="load a b c f d e"   load is first, and is always done; d and e insert what is counted by those behind them
#   RECORDS=5000000            pairs loaded
#   OPERATIONS=1000000         of each workload; of e a twentieth
#   ROUNDS=3                   a round loads anew; its first store is another one each time
#   CACHE_SHARE=4              the cache is the data's size divided by this
#   MEMTABLE_SHARE=20          and a memtable by this
#   SETTLE=600                 seconds that a store may take to go quiet behind each phase
#   SEED=1
#   DATA=/tmp                  a directory for the data is made there, and removed in the end; direct I/O must work there
#   BIN=build/release/bin
#   RESULTS=results/lsm_compare    a JSON file and a log of each run, and summary.json
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

if [[ ${1:-} == --quick ]]; then
  shift
  MIXES=${MIXES:-sd} THREADS=${THREADS:-1} GROWTH=${GROWTH:-8} RECORDS=${RECORDS:-50000} OPERATIONS=${OPERATIONS:-20000} ROUNDS=${ROUNDS:-1}
fi
if (($# > 0)); then
  sed -n '2,26s/^# \{0,1\}//p' "$0"
  [[ $1 == -h || $1 == --help ]] && exit 0
  echo "lsm_compare.sh: unknown argument '$1'" >&2
  exit 2
fi
read -ra targets <<<"${TARGETS:-rocksdb blobdb lsm}"
read -ra mixes <<<"${MIXES:-s m l sd md ld}"
read -ra threads <<<"${THREADS:-1 2}"
read -ra growths <<<"${GROWTH:-4 8 12}"
read -ra workloads <<<"${WORKLOADS:-load a b c f d e}"
RECORDS=${RECORDS:-5000000} OPERATIONS=${OPERATIONS:-1000000} ROUNDS=${ROUNDS:-3} SEED=${SEED:-1}
CACHE_SHARE=${CACHE_SHARE:-4} MEMTABLE_SHARE=${MEMTABLE_SHARE:-20} SETTLE=${SETTLE:-600}
require_counts RECORDS OPERATIONS ROUNDS SEED CACHE_SHARE MEMTABLE_SHARE SETTLE
bin=${BIN:-build/release/bin}
require_programs "$bin" ycsb
results=${RESULTS:-results/lsm_compare}
data=$(mktemp -d "${DATA:-/tmp}/farleaf_stores.XXXXXX")
trap 'rm -rf "$data"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$results"
rm -f "$results"/*.json "$results"/*.log

# Mean bytes of a pair.
declare -A pair_bytes=([s]=33 [m]=123 [l]=1023 [sd]=249 [md]=285 [ld]=645)

# at_least_1 BYTES: in MiB.
at_least_1() { echo $((($1 >> 20) > 1 ? $1 >> 20 : 1)); }

# run TARGET MIX THREADS GROWTH ROUND WORKLOAD: the target's options, then what is the same for all.
run() {
  local target=$1 mix=$2 thread=$3 growth=$4 round=$5 workload=$6
  local own=${target#"${target%%\?*}"} operations=$OPERATIONS phase=run file=workload$6 warmup=$((RECORDS / 20 + 1))
  local name=$mix.$thread.$growth.$round.$workload.${target//[^a-z0-9_]/-}
  local url="${target%%\?*}:$data/${target//[^a-z0-9_]/-}?cache_mb=$cache_mb&memtable_mb=$memtable_mb&growth=$growth"
  [[ -z $own ]] || url+="&${own#\?}"
  [[ $workload != e ]] || operations=$((OPERATIONS / 20 + 1))
  [[ $workload != load ]] || phase=load file=workloada warmup=0
  echo "round $round: $mix, $thread threads, growth $growth: $workload on $target" >&2
  "$bin/ycsb" -P "benchmark/workloads/$file" --phase "$phase" --target "$url" --threads "$thread" --seed "$SEED" \
    -p farleaf.kvmix="$mix" -p recordcount="$((RECORDS + inserted))" -p operationcount="$operations" \
    --warmup "$warmup" --settle "$SETTLE" --status-interval 30 --json "$results/$name.json" \
    >"$results/$name.log" 2>&1 || {
    tail -n 5 "$results/$name.log" >&2
    return 1
  }
  last=$results/$name.json
}

# What the run inserted; the same number in every store, by the seed.
inserts_of() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["operations"].get("INSERT", {}).get("count", 0))' "$1"
}

for ((round = 1; round <= ROUNDS; round++)); do
  for mix in "${mixes[@]}"; do
    cache_mb=$(at_least_1 $((RECORDS * ${pair_bytes[$mix]:?"unknown mix '$mix'"} / CACHE_SHARE)))
    memtable_mb=$(at_least_1 $((RECORDS * ${pair_bytes[$mix]} / MEMTABLE_SHARE)))
    for thread in "${threads[@]}"; do
      for growth in "${growths[@]}"; do
        inserted=0
        for workload in "${workloads[@]}"; do
          for ((turn = 0; turn < ${#targets[@]}; turn++)); do
            run "${targets[(turn + round - 1) % ${#targets[@]}]}" "$mix" "$thread" "$growth" "$round" "$workload"
          done
          [[ $workload == load ]] || inserted=$((inserted + $(inserts_of "$last")))
        done
        rm -rf "${data:?}"/*
      done
    done
  done
done

echo "$RECORDS pairs, $OPERATIONS operations, $ROUNDS rounds, cache 1/$CACHE_SHARE of the data, memtable 1/$MEMTABLE_SHARE, seed $SEED"
scripts/lsm_compare_table.py "$results" "${targets[@]//[^a-z0-9_]/-}"
