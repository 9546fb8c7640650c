#!/usr/bin/env bash
# A memory server in one machine and YCSB in another, which reach each other over an emulated network: RDMA
# whose bytes cross a wire. Loads, runs workload a, and checks the pool; the round trips are those of every
# other fabric.
#
#   test/rdma_vm/two_machines_test.sh [--build DIR]
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=build/release/bin
if [[ "${1:-}" == --build ]]; then bin=$2/bin; fi

share=$(mktemp -d "${TMPDIR:-/tmp}/farleaf-test-two-machines.XXXXXX")
trap 'rm -rf "$share"' EXIT

# The directory's file appears whole, and then the server is about to listen.
server='printf "cluster demo\n0 verbs:%s:7100\n" "$FARLEAF_RDMA_ADDRESS" >"$0.new" && mv "$0.new" "$0"
exec "$1/memory_server" --bootstrap "file:$0" --id 0 --size 128MiB --fabric verbs \
  --listen "$FARLEAF_RDMA_ADDRESS:7100" --insecure'
client='set -e
until [[ -e $0 ]]; do sleep 0.2; done
"$1/ycsb" -P benchmark/workloads/workloada --target "pool:file:$0" --phase load,run --in-flight 4 \
  -p recordcount=2000 -p operationcount=1000 -p farleaf.keys=fixed8 --warmup 200 --json "$2"
"$1/farleafctl" --pool "file:$0" check'

scripts/rdma_vm.sh --timeout 240 --memory 1024 --share "$share" \
  --server "$(printf 'bash -c %q %q %q' "$server" "$share/pool" "$bin")" \
  -- bash -c "$client" "$share/pool" "$bin" "$share/results.json"

python3 - "$share/results.json" <<'PYTHON'
import json, sys

operations = json.load(open(sys.argv[1]))["phases"]["run"]["operations"]
for name, bound in (("READ", 1.0), ("UPDATE", 2.0)):
    trips = operations[name]["round_trips_per_op"]
    print(f"{name}: {trips:.3f} round trips an operation, over two machines")
    assert operations[name]["count"] > 0 and 0 < trips <= bound, (name, trips)
PYTHON
