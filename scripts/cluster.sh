#!/usr/bin/env bash
# A cluster of three nodes on this machine, with a ZooKeeper: each serves all keys, and is the primary of some regions and holds copies of the others. All
# of it ends with the script (Ctrl-C).
#
#   scripts/cluster.sh [DIRECTORY]
#   scripts/cluster.sh part|heal NODE OTHER      of a cluster that runs with NETWORK=namespaces; OTHER: a node, or zookeeper
#
# DIRECTORY: where the nodes keep their stores (node1, node2, node3), which are there again the next time; without it they vanish
# with the script. BIN: where the programs are (build/release/bin). DURABILITY: replicated, synced or local (replicated).
# NETWORK: loopback, or namespaces: each node in a network namespace of its own (root; farleaf-1 to farleaf-3, 10.117.0.1 to .3, a bridge
# farleaf0), so that they can be parted from each other and from ZooKeeper: what one sends to the other is lost silently.
#
# Try it: write with farleafctl --server (any node), look with farleafctl region list, kill a node (kill -9), and read again from another one.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

net=10.117.0
network=${NETWORK:-loopback}

# ip_of NODE|zookeeper
ip_of() {
  case $1 in
    [123]) echo "$net.$1" ;;
    zookeeper) echo "$net.253" ;;
    *) echo "cluster.sh: there is no '$1': 1, 2, 3 or zookeeper" >&2; exit 2 ;;
  esac
}
# one_way FROM TO: to a hardware address that nobody has
one_way() { ip netns exec "farleaf-$1" ip neigh replace "$(ip_of "$2")" lladdr 02:00:00:00:00:01 nud permanent dev eth0; }
again() { ip netns exec "farleaf-$1" ip neigh del "$(ip_of "$2")" dev eth0; }

case "${1:-}" in
  -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
  part | heal)
    (($# == 3)) || { echo "cluster.sh: $1 NODE OTHER; try --help" >&2; exit 2; }
    ip_of "$2" >/dev/null && ip_of "$3" >/dev/null
    change=$([[ $1 == part ]] && echo one_way || echo again)
    [[ $2 == zookeeper ]] || "$change" "$2" "$3"
    [[ $3 == zookeeper ]] || "$change" "$3" "$2"
    exit 0
    ;;
  -*) echo "cluster.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
esac
case $network in
  loopback | namespaces) ;;
  *) echo "cluster.sh: NETWORK=$network: loopback or namespaces" >&2; exit 2 ;;
esac
bin=${BIN:-build/release/bin}
durability=${DURABILITY:-replicated}
require_programs "$bin" compute_server
zookeeper=/usr/share/java/zookeeper.jar
[[ -e $zookeeper ]] || { echo "cluster.sh: there is no $zookeeper: apt-get install zookeeper" >&2; exit 2; }

end_network() {
  local node
  for node in 1 2 3; do
    ip netns del "farleaf-$node" 2>/dev/null || true
    ip link del "farleaf0-$node" 2>/dev/null || true  # or it may stay for as long as the kernel likes
  done
  ip link del farleaf0 2>/dev/null || true
}
begin_network() {
  local node
  ip link add farleaf0 type bridge || { echo "cluster.sh: NETWORK=namespaces takes root, and no other cluster like this one" >&2; exit 2; }
  after_processes=end_network  # nodes that leave reach each other, and ZooKeeper, until they have ended
  ip link set farleaf0 up
  ip addr add "$net.254/24" dev farleaf0
  ip addr add "$net.253/24" dev farleaf0
  for node in 1 2 3; do
    ip netns add "farleaf-$node"
    ip link add "farleaf0-$node" type veth peer name eth0 netns "farleaf-$node"
    ip link set "farleaf0-$node" master farleaf0 up
    ip netns exec "farleaf-$node" ip addr add "$net.$node/24" dev eth0
    ip netns exec "farleaf-$node" ip link set eth0 up
    ip netns exec "farleaf-$node" ip link set lo up
  done
}

begin_processes "${LOGS:-${TMPDIR:-/tmp}/farleaf-cluster}"
stores=${1:-$work}
mkdir -p "$stores" "$work/zookeeper"
host=127.0.0.1
if [[ $network == namespaces ]]; then
  begin_network
  host=$(ip_of zookeeper)
fi

printf 'tickTime=500\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n' \
  "$work/zookeeper" "$host" "${ZOOKEEPER_PORT:-21810}" >"$work/zoo.cfg"
start zookeeper java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$zookeeper" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg"
for ((i = 0; i < 600; ++i)); do  # nodes give up sooner than a busy machine has it running
  (: <"/dev/tcp/$host/${ZOOKEEPER_PORT:-21810}") 2>/dev/null && break
  sleep 0.1
done
membership=zookeeper://$host:${ZOOKEEPER_PORT:-21810}/cluster
for node in 1 2 3; do
  if [[ $network == namespaces ]]; then
    address=$(ip_of "$node")
    native=7400 redis=6380 metrics=9400
    where=(ip netns exec "farleaf-$node")
    open=(--peer-listen "$address:7500" --insecure --metrics-insecure)
  else
    address=127.0.0.1
    native=$((7400 + node)) redis=$((6380 + node)) metrics=$((9400 + node))
    where=() open=()
  fi
  start "node$node" "${where[@]}" "$bin/compute_server" --engine lsm --data-dir "$stores/node$node" \
    --listen "$address:$native" --redis-listen "$address:$redis" --metrics-listen "$address:$metrics" "${open[@]}" \
    --trees demo:bytes --cluster "$membership" --node "$node" --replicas 3 --durability "$durability"
  echo "node $node: farleaf://$address:$native, redis://$address:$redis, health at http://$address:$metrics/health"
done
echo "they serve within seconds; regions: $bin/farleafctl region --cluster $membership list; logs in $logs; Ctrl-C ends all"
# In the background, as bash ends for a signal that it alone is sent only where it waits itself.
tail -q -n +1 -f "$logs"/node?.log \
  > >(grep --line-buffered -E "is the primary|is a backup|excluded|handed over|split|is the master") &
started+=($!)
wait $!
