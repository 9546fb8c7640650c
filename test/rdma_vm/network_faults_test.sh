#!/usr/bin/env bash
# The verbs fabric when the network between two machines fails for a while: a memory server in the one, the
# tests named VerbsNetworkTest in the other.
#
#   test/rdma_vm/network_faults_test.sh [--build DIR] [TEST PROGRAM'S OPTIONS...]
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=build/release/bin
if [[ "${1:-}" == --build ]]; then
  bin=$2/bin
  shift 2
fi

# Listens on both addresses: the tests cut the network of the one, and look on by the other.
server='printf "cluster tested\n0 verbs:%s:7100\n" "$FARLEAF_RDMA_ADDRESS" >/tmp/pool
exec "$0/memory_server" --bootstrap file:/tmp/pool --id 0 --size 64MiB --fabric verbs --listen "[::]:7100" \
  --advertise "$FARLEAF_RDMA_ADDRESS:7100" --insecure'

exec scripts/rdma_vm.sh --timeout 400 --memory 1024 --server "$(printf 'bash -c %q %q' "$server" "$bin")" \
  -- "$bin/verbs_fault_test" --gtest_filter='VerbsNetworkTest.*' "$@"
