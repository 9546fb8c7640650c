#!/usr/bin/env bash
# The tests that run on the verbs fabric, one program after the other: the fabric's contract, cutting off, the
# tree's model and histories, the ring's protocol, YCSB by processes, nodes of a cluster that are killed, and our verbs beside perftest's. For a
# machine with an RDMA device, whose address is in FARLEAF_RDMA_ADDRESS:
#
#   scripts/rdma_vm.sh -- test/rdma_vm/verbs_suite.sh [--build DIR] [--every] [PROGRAM...]
#
# Runs all programs, or those named, with --every all of their tests on verbs; prints each one's outcome and
# time, and all output of those that fail. The comparison with perftest is printed, not judged: times belong to
# benchmarks (rdma_compare.sh --check judges).
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release every=
while (($# > 0)); do
  case $1 in
    --build) build=$2; shift 2 ;;
    --every) every=true; shift ;;
    *) break ;;
  esac
done
export FARLEAF_TEST_SCALE=${FARLEAF_TEST_SCALE:-small}
[[ -n "${FARLEAF_RDMA_ADDRESS:-}" ]] || {
  echo "verbs_suite.sh: FARLEAF_RDMA_ADDRESS, the address of an RDMA device, is not set; see scripts/rdma_vm.sh" >&2
  exit 2
}

programs=(transport_contract_test peer_contract_test fencing_contract_test verbs_test verbs_fault_test model_test concurrent_history_test
  tree_threads_test ring_test process_test process_cluster_test rdma_compare)
(($# == 0)) || programs=("$@")

run() {
  if [[ $1 == rdma_compare ]]; then
    scripts/rdma_compare.sh --bin "$build/bin" --iterations 1000 --rounds 3
  else
    # A filter that selects nothing is a failure, not a success.
    local filter='*verbs*:*Verbs*'
    # YCSB by processes, and what it costs; all else that processes do takes longer than there is time for.
    [[ $1 != process_test || -n $every ]] || filter='*CostTest*verbs*:*WorkloadTest*verbs*:*FencingTest*verbs*:*KillTest*verbs*'
    "$build/bin/$1" --gtest_filter="$filter" --gtest_brief=1
  fi
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for program in "${programs[@]}"; do
  begin=$SECONDS outcome=passed
  run "$program" >"$output" 2>&1 || outcome=FAILED
  tests=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? from.* ran.*/\1/p' "$output")
  [[ $program == rdma_compare || ${tests:-0} -gt 0 ]] || outcome=FAILED
  printf '%-26s %-7s %4d tests %4d s\n' "$program" "$outcome" "${tests:-0}" $((SECONDS - begin))
  if [[ $outcome == FAILED ]]; then
    failed=1
    cat "$output"
  elif [[ $program == rdma_compare ]]; then
    cat "$output"
  fi
done
exit "$failed"
