#!/usr/bin/env bash
# Farleaf beside redis-server and memcached on this machine: the same keys, the same client, one server thread each. Prints
# for each server, kind of request and number in flight the processor time of the server for a request (user and kernel
# apart), requests a second, latencies, and the ratios of a round to the rival's, of which the median counts; then what the tree's
# operations are of the native server's processor time, at most; then round trips over TCP and over a ring of shared memory
# side by side.
#
#   scripts/rivals.sh
#
# Settings, from the environment:
#   KEYS=1000000         of 16 bytes, with values of 100
#   ROUNDS=9             each server is measured once in a round
#   ROUND_MS=300         for about so long
#   DEPTHS=1,16,64       requests in flight on the one connection
#   SEED=1
#   EMBEDDED=500000      operations of each kind in one process with the tree, for the tree's share; 0: none
#   RING_REQUESTS=20000  round trips of each kind over each transport; 0: none
#   BIN=build/release/bin
#   RESULTS=results/rivals   where the JSON file and the servers' logs are left
# All servers run on the last processor, and the client on the first, where there are two.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

KEYS=${KEYS:-1000000}
ROUNDS=${ROUNDS:-9}
ROUND_MS=${ROUND_MS:-300}
DEPTHS=${DEPTHS:-1,16,64}
SEED=${SEED:-1}
EMBEDDED=${EMBEDDED:-500000}
RING_REQUESTS=${RING_REQUESTS:-20000}
bin=${BIN:-build/release/bin}
require_programs "$bin" memory_server compute_server rivals transport_bench ycsb
if (($# > 0)); then
  sed -n '2,22s/^# \{0,1\}//p' "$0"
  [[ $1 == -h || $1 == --help ]] && exit 0
  echo "rivals.sh: unknown argument '$1'" >&2
  exit 2
fi
require_counts KEYS ROUNDS ROUND_MS SEED

results=${RESULTS:-results/rivals}
begin_processes "$results"
last=$(($(nproc) - 1))
on_last=(taskset -c "$last")

# A port that nobody listens on now.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# await_port NAME PORT
await_port() {
  local deadline=$((SECONDS + 30))
  until (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; do
    if ! kill -0 "${started[-1]}" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "rivals.sh: $1 does not start; see $logs/$1.log" >&2
      return 1
    fi
    sleep 0.05
  done
}

# Three trees of leaves that are two thirds full, and room for chunks partly used.
start_memory "$((128 + KEYS / 1000 * 45 / 100))" --fabric shm
start farleaf "${on_last[@]}" "$bin/compute_server" --bootstrap "$bootstrap" --memory-servers-min 2 --threads 1 \
  --listen 127.0.0.1:0 --redis-listen 127.0.0.1:0 --memcached-listen 127.0.0.1:0 \
  --ready-file "$work/farleaf.ready"
wait_for farleaf "$work/farleaf.ready"
farleaf=${started[-1]}
native=$(grep -m 1 -o 'farleaf://.*' "$work/farleaf.ready")
own_redis=$(sed -n 's,^redis://,,p' "$work/farleaf.ready")
own_memcached=$(sed -n 's,^memcached://,,p' "$work/farleaf.ready")
# Neither can be asked where it listens: their ports are taken right behind the choice.
redis_port=$(free_port)
start redis-server "${on_last[@]}" redis-server --bind 127.0.0.1 --port "$redis_port" --save "" --appendonly no \
  --io-threads 1 --dir "$work"
redis=${started[-1]}
await_port redis-server "$redis_port"
memcached_port=$(free_port)
start memcached "${on_last[@]}" memcached -l 127.0.0.1 -p "$memcached_port" -U 0 -t 1 -m "$((64 + KEYS / 1000))" \
  -u "$(id -un)"
memcached=${started[-1]}
await_port memcached "$memcached_port"

redis-server --version | sed 's/ sha=.*//'
memcached --version
echo "$KEYS keys of 16 bytes, values of 100, uniform, $ROUNDS rounds of $ROUND_MS ms, closed loop on one connection, seed $SEED"
taskset -c 0 "$bin/rivals" --keys "$KEYS" --rounds "$ROUNDS" --round-ms "$ROUND_MS" --depths "$DEPTHS" --seed "$SEED" \
  --json "$results/rivals.json" \
  --server "redis=redis,127.0.0.1:$redis_port,$redis" \
  --server "farleaf-redis=redis,$own_redis,$farleaf,redis" \
  --server "memcached=memcached,127.0.0.1:$memcached_port,$memcached" \
  --server "farleaf-memcached=memcached,$own_memcached,$farleaf,memcached" \
  --server "farleaf-native=native,$native,$farleaf,redis,64" 2>"$results/rivals.log" || {
  cat "$results/rivals.log" >&2
  exit 1
}
# embed NAME ARGS...: ycsb with as many records of about that size in a tree of its own of the same pool, one operation at a time
embed() {
  local name=$1
  shift
  "${on_last[@]}" "$bin/ycsb" --target "pool:$bootstrap" --threads 1 --in-flight 1 --seed "$SEED" \
    -p farleaf.keys=bytes -p fieldcount=1 -p fieldlength=100 -p requestdistribution=uniform \
    -p "recordcount=$KEYS" -p "operationcount=$EMBEDDED" --warmup "$EMBEDDED" \
    --json "$results/embedded-$name.json" "$@" >"$results/embedded-$name.log" 2>&1 || {
    cat "$results/embedded-$name.log" >&2
    exit 1
  }
}
if ((EMBEDDED > 0)); then
  embed get --phase load,run -p readproportion=1 -p updateproportion=0
  embed set --phase run -p readproportion=0 -p updateproportion=1
  echo
  scripts/rivals_share.py "$results"
fi
if ((RING_REQUESTS > 0)); then
  echo
  "$bin/transport_bench" "$RING_REQUESTS"
fi
