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

RECORDS=${RECORDS:-10000000}
CACHE_BYTES=${CACHE_BYTES:-0}
LOADERS=${LOADERS:-1}
bin=${BIN:-build/release/bin}
for name in RECORDS CACHE_BYTES LOADERS; do
  [[ ${!name} =~ ^[0-9]+$ ]] || { echo "cold_start.sh: $name=${!name} is no number" >&2; exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/farleaf-cold.XXXXXX")
started=()
stop_all() {
  local code=$? i
  trap - EXIT INT TERM
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do
    kill -TERM "${started[i]}" 2>/dev/null || true
    wait "${started[i]}" 2>/dev/null || true
  done
  rm -rf "$work"
  exit "$code"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# wait_for NAME FILE: until the process started last has written the file; fails if it ends before.
wait_for() {
  local deadline=$((SECONDS + 60))
  until [[ -s $2 ]]; do
    if ! kill -0 "${started[-1]}" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "cold_start.sh: $1 does not start:" >&2
      cat "$work/$1.log" >&2
      return 1
    fi
    sleep 0.05
  done
}

env MEMCACHED_PORT_FILENAME="$work/memcached.port" \
  memcached -l 127.0.0.1 -p -1 -U 0 -u "$(id -un)" >"$work/memcached.log" 2>&1 &
started+=($!)
wait_for memcached "$work/memcached.port"
bootstrap=memcached://127.0.0.1:$(sed -n 's/^TCP INET: //p' "$work/memcached.port")/cold
for id in 0 1; do
  "$bin/memory_server" --bootstrap "$bootstrap" --id "$id" --size "$((64 + RECORDS / 1000000 * 32))MiB" \
    --fabric shm --socket "$work/memory-$id.sock" >"$work/memory_$id.log" 2>&1 &
  started+=($!)
done

# compute_server NAME [arguments]: one that has joined both memory servers.
compute_server() {
  local name=$1
  shift
  "$bin/compute_server" --bootstrap "$bootstrap" --memory-servers-min 2 --listen 127.0.0.1:0 \
    --ready-file "$work/$name.ready" "$@" >"$work/$name.log" 2>&1 &
  started+=($!)
  wait_for "$name" "$work/$name.ready"
}
run() {
  "$bin/ycsb" -P benchmark/workloads/workloadc --target "pool:$bootstrap" -p recordcount="$RECORDS" "$@"
}
compute_server first
echo "loading $RECORDS keys"
run --phase load --threads "$LOADERS" | grep -E '^\[(OVERALL|CACHE|POOL)'
echo "a process that reads (ycsb), from cold"
run --phase run -p operationcount=200000 --warmup 1 --cache-bytes "$CACHE_BYTES" |
  grep -E '^\[CACHE|RoundTrips|Throughput'
echo "a compute server, from cold"
compute_server second --trees usertable:fixed8 --cache-bytes "$CACHE_BYTES"
grep -h "cache of" "$work/second.log"
