#!/usr/bin/env bash
# Compute servers of one pool that differ in socket_poll_us alone, side by side in turns: what a request costs them in processor
# time, requests a second and latencies, first of one connection with many requests in flight (`rivals`), then of many
# connections with one each (`ycsb`, a thread a connection).
#
#   scripts/socket_poll.sh
#
# Settings, from the environment:
#   POLLS="0 20 50 100"  values of socket_poll_us; the others are compared with the first
#   KEYS=200000          of 16 bytes, with values of 100
#   ROUNDS=5             each server is measured once in a round
#   ROUND_MS=300         of one connection, for about so long
#   DEPTHS=1,16,64       requests in flight on the one connection
#   CONNECTIONS="1 8 64" how many there are in the second part; "": it is left out
#   OPERATIONS=50000     of a round in the second part
#   SEED=1
#   BIN=build/release/bin
#   RESULTS=results/socket_poll   where JSON files and the servers' logs are left
# Servers have one thread each, all on the last processor; the client is on the first, where there are two.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

POLLS=${POLLS:-0 20 50 100}
KEYS=${KEYS:-200000}
ROUNDS=${ROUNDS:-5}
ROUND_MS=${ROUND_MS:-300}
DEPTHS=${DEPTHS:-1,16,64}
CONNECTIONS=${CONNECTIONS-1 8 64}
OPERATIONS=${OPERATIONS:-50000}
SEED=${SEED:-1}
bin=${BIN:-build/release/bin}
require_programs "$bin" memory_server compute_server rivals ycsb
if (($# > 0)); then
  sed -n '2,19s/^# \{0,1\}//p' "$0"
  [[ $1 == -h || $1 == --help ]] && exit 0
  echo "socket_poll.sh: unknown argument '$1'" >&2
  exit 2
fi
require_counts KEYS ROUNDS ROUND_MS OPERATIONS SEED

results=${RESULTS:-results/socket_poll}
begin_processes "$results"
last=$(($(nproc) - 1))
read -ra polls <<<"$POLLS"
read -ra connections <<<"$CONNECTIONS"

start_memory "$((128 + KEYS / 1000 * 45 / 100))" --fabric shm
contestants=() servers=()
for poll in "${polls[@]}"; do
  name=poll-$poll
  start "$name" taskset -c "$last" "$bin/compute_server" --bootstrap "$bootstrap" --memory-servers-min 2 --threads 1 \
    --listen 127.0.0.1:0 --socket-poll-us "$poll" --ready-file "$work/$name.ready"
  wait_for "$name" "$work/$name.ready"
  url=$(grep -m 1 -o 'farleaf://.*' "$work/$name.ready")
  contestants+=(--server "$name=native,$url,${started[-1]},poll-${polls[0]}")
  servers+=("$name=$url,${started[-1]}")
done

echo "$KEYS keys of 16 bytes, values of 100, uniform, $ROUNDS rounds in turns, closed loop, native protocol over TCP, seed $SEED"
echo
echo "one connection"
taskset -c 0 "$bin/rivals" --keys "$KEYS" --rounds "$ROUNDS" --round-ms "$ROUND_MS" --depths "$DEPTHS" --seed "$SEED" \
  --json "$results/rivals.json" "${contestants[@]}" 2>"$results/rivals.log" || {
  cat "$results/rivals.log" >&2
  exit 1
}
if ((${#connections[@]} > 0)); then
  echo
  echo "one request in flight on each connection"
  taskset -c 0 scripts/socket_poll_connections.py --ycsb "$bin/ycsb" --results "$results" --keys "$KEYS" --rounds "$ROUNDS" \
    --operations "$OPERATIONS" --seed "$SEED" --connections "${connections[@]}" --servers "${servers[@]}"
fi
