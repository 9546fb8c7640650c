#!/usr/bin/env bash
# A cluster of three nodes on this machine, with a ZooKeeper: each serves all keys, and is the primary of some regions and holds copies of the others. All
# of it ends with the script (Ctrl-C).
#
#   scripts/cluster.sh [DIRECTORY]
#
# DIRECTORY: where the nodes keep their stores (node1, node2, node3), which are there again the next time; without it they vanish
# with the script. BIN: where the programs are (build/release/bin). DURABILITY: replicated, synced or local (replicated).
#
# Try it: write with farleafctl --server (any node), look with farleafctl region list, kill a node (kill -9), and read again from another one.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/local_pool.sh

case "${1:-}" in
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "cluster.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
esac
bin=${BIN:-build/release/bin}
durability=${DURABILITY:-replicated}
require_programs "$bin" compute_server
zookeeper=/usr/share/java/zookeeper.jar
[[ -e $zookeeper ]] || { echo "cluster.sh: there is no $zookeeper: apt-get install zookeeper" >&2; exit 2; }
begin_processes "${LOGS:-${TMPDIR:-/tmp}/farleaf-cluster}"
stores=${1:-$work}
mkdir -p "$stores" "$work/zookeeper"

printf 'tickTime=500\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n' \
  "$work/zookeeper" "${ZOOKEEPER_PORT:-21810}" >"$work/zoo.cfg"
start zookeeper java -Xmx64m -cp "$zookeeper" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg"
membership=zookeeper://127.0.0.1:${ZOOKEEPER_PORT:-21810}/cluster
for node in 1 2 3; do
  start "node$node" "$bin/compute_server" --engine lsm --data-dir "$stores/node$node" \
    --listen "127.0.0.1:$((7400 + node))" --redis-listen "127.0.0.1:$((6380 + node))" \
    --metrics-listen "127.0.0.1:$((9400 + node))" --trees demo:bytes \
    --cluster "$membership" --node "$node" --replicas 3 --durability "$durability"
  echo "node $node: farleaf://127.0.0.1:$((7400 + node)), redis://127.0.0.1:$((6380 + node)), health at http://127.0.0.1:$((9400 + node))/health"
done
echo "they serve within seconds; regions: $bin/farleafctl region --cluster $membership list; logs in $logs; Ctrl-C ends all"
tail -q -n +1 -f "$logs"/node?.log | grep --line-buffered -E "is the primary|is a backup|excluded|handed over|split|is the master"
