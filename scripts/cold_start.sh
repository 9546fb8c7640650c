#!/usr/bin/env bash
# What a compute server's cold start on a loaded tree costs: starts two memory servers on this machine,
# loads a tree, then opens it in new processes, which read the search layer in large transfers, and prints
# what ycsb and compute_server tell of it. What is built must be there (build/release, or BIN).
#
#   scripts/cold_start.sh
#
# Settings, from the environment:
#   RECORDS=10000000   keys of 8 bytes
#   CACHE_BYTES=0      the most that the caches of the new processes may take; 0: no bound
#   LOADERS=1          threads that load
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

RECORDS=${RECORDS:-10000000}
CACHE_BYTES=${CACHE_BYTES:-0}
LOADERS=${LOADERS:-1}
bin=${BIN:-build/release/bin}
require_programs "$bin" memory_server compute_server ycsb
require_counts RECORDS LOADERS
[[ $CACHE_BYTES == 0 ]] || require_counts CACHE_BYTES

begin_processes "${TMPDIR:-/tmp}/farleaf-cold-start"
start_memory "$((64 + RECORDS / 1000000 * 32))" --fabric shm
run() {
  "$bin/ycsb" -P benchmark/workloads/workloadc --target "pool:$bootstrap" -p recordcount="$RECORDS" "$@"
}
start_compute first
echo "loading $RECORDS keys"
run --phase load --threads "$LOADERS" | grep -E '^\[(OVERALL|CACHE|POOL)'
echo "a process that reads (ycsb), from cold"
run --phase run -p operationcount=200000 --warmup 1 --cache-bytes "$CACHE_BYTES" |
  grep -E '^\[CACHE|RoundTrips|Throughput'
echo "a compute server, from cold"
bound=()
((CACHE_BYTES == 0)) || bound=(--cache-bytes "$CACHE_BYTES")
start_compute second --trees usertable:fixed8 "${bound[@]}"
grep -h "cache of" "$logs/second.log"
