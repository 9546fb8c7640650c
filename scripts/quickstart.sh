#!/usr/bin/env bash
# The first command: installs what is missing, builds, starts a pool of two memory servers and a
# compute server on this machine, runs YCSB's workloads a to f on it, prints one table, checks the whole
# pool, and stops what it started.
#
#   scripts/quickstart.sh
#
# Settings, from the environment:
#   RECORDS=1000000      records in the tree
#   OPERATIONS=1000000   operations of each workload
#   THREADS              threads of ycsb (default: as many as processors)
#   KEYS=fixed8          fixed8 (8-byte keys and values) or bytes (YCSB's strings)
#   FABRIC=shm           shm or tcp; verbs with the address of an RDMA device in FARLEAF_RDMA_ADDRESS
#   REGION_MIB           memory of each of the two servers (default: by RECORDS and KEYS)
#   IN_FLIGHT            operations in flight in each thread (1 on shm, where a verb ends at once; else 32)
# Full results are left in results/quickstart/, one JSON file and one log a run.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/install_packages.sh
source scripts/local_pool.sh

RECORDS=${RECORDS:-1000000}
OPERATIONS=${OPERATIONS:-1000000}
THREADS=${THREADS:-$(nproc)}
KEYS=${KEYS:-fixed8}
FABRIC=${FABRIC:-shm}
IN_FLIGHT=${IN_FLIGHT:-$([[ $FABRIC == shm ]] && echo 1 || echo 32)}

if (($# > 0)); then
  sed -n '2,17s/^# \{0,1\}//p' "$0"
  [[ $1 == -h || $1 == --help ]] && exit 0
  echo "quickstart.sh: unknown argument '$1'" >&2
  exit 2
fi
require_counts RECORDS OPERATIONS THREADS IN_FLIGHT REGION_MIB
case $KEYS in
  # Per record: 16 bytes in leaves three quarters full, or a key and a value of 1000 bytes with its
  # block. Two trees, and room for the inserts of workloads d and e and for partly used chunks.
  fixed8) REGION_MIB=${REGION_MIB:-$((256 + RECORDS / 1000000 * 64))} ;;
  bytes) REGION_MIB=${REGION_MIB:-$((256 + RECORDS / 1000 * 3))} ;;
  *) echo "quickstart.sh: KEYS=$KEYS is neither fixed8 nor bytes" >&2; exit 2 ;;
esac
memory_server_flags=(--fabric "$FABRIC")
case $FABRIC in
  shm | tcp) ;;
  verbs)
    [[ -n ${FARLEAF_RDMA_ADDRESS:-} ]] || {
      echo "quickstart.sh: FABRIC=verbs needs the address of an RDMA device in FARLEAF_RDMA_ADDRESS" >&2
      exit 2
    }
    memory_server_flags+=(--listen "$FARLEAF_RDMA_ADDRESS:0" --insecure) ;;
  *) echo "quickstart.sh: FABRIC=$FABRIC is none of shm, tcp and verbs" >&2; exit 2 ;;
esac

install_packages

bin=build/release/bin
echo "building"
cmake --preset release >/dev/null
cmake --build --preset release --target memory_server compute_server ycsb farleafctl

results=results/quickstart
mkdir -p "$results"
rm -f "$results"/*.json "$results"/*.log
begin_processes "$results"
echo "starting memcached, two memory servers of $REGION_MIB MiB ($FABRIC) and a compute server"
start_memory "$REGION_MIB" "${memory_server_flags[@]}"
start_compute compute_server
server=$(grep -m 1 -o 'farleaf://.*' "$work/compute_server.ready")

# run NAME WORKLOAD TARGET [ycsb arguments]
run() {
  local name=$1 workload=$2 target=$3
  shift 3
  echo "running $name"
  if ! "$bin/ycsb" -P "benchmark/workloads/workload$workload" --target "$target" \
    --threads "$THREADS" --in-flight "$IN_FLIGHT" --json "$results/$name.json" -p recordcount="$RECORDS" \
    -p operationcount="$OPERATIONS" -p farleaf.keys="$KEYS" "$@" >"$results/$name.log"; then
    echo "quickstart.sh: $name failed; $results/$name.log has the figures so far" >&2
    return 1
  fi
}

pool=pool:$bootstrap
warm=(--warmup $((RECORDS / 10 + 1)))
run load a "$pool" --phase load
for workload in a b c f d; do
  run "$workload" "$workload" "$pool" "${warm[@]}"
done
# Workload d has inserted the keys that e would insert: e gets its own tree, as in YCSB.
run load_e e "$pool" --phase load -p farleaf.tree=usertable_e
run e e "$pool" "${warm[@]}" -p farleaf.tree=usertable_e
# The baseline without a search-layer cache: every internal node is read from the pool.
run a_uncached a "$pool" --cache off
# The same reads by the compute server, for a client that keeps 32 in flight on each connection.
IN_FLIGHT=32 run c_client c "$server"

echo
echo "$RECORDS records ($KEYS) on two memory servers over $FABRIC, $OPERATIONS operations, $THREADS threads x $IN_FLIGHT in flight, closed loop"
scripts/print_table.py "load=$results/load.json:load" "a=$results/a.json" "b=$results/b.json" \
  "c=$results/c.json" "d=$results/d.json" "e=$results/e.json" "f=$results/f.json" \
  "a, no cache=$results/a_uncached.json" "c by client=$results/c_client.json"
sed -n 's/^\[POOL\], BytesUsed\/key, /bytes of pool per key after the load: /p' "$results/load.log"
echo
echo "farleafctl check, on the pool that all this has left:"
"$bin/farleafctl" --pool "$bootstrap" check
