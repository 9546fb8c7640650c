#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: all of them in the release build; those of
# protocols, parsers and concurrency under the address and undefined-behaviour sanitizers; those of
# concurrency under the thread sanitizer; then those of the virtual machine with an RDMA device. Under
# sanitizers tests do less of the same (FARLEAF_TEST_SCALE=small). About an hour on two idle cores, half of it building.
#
#   scripts/test.sh [--long] [--jobs N]
#
# --long runs every test in all three builds, with all of its data (FARLEAF_TEST_SCALE=long) and all checks
# of undefined behaviour: those that the asan preset leaves out take half of its build's time. It compiles each file
# by itself, so that each is seen to include what it uses. Exit code 0 only if all passed. The last lines tell what was
# skipped, how each step ended, and, last of all, what failed and what that printed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/install_packages.sh

long=false
jobs=$(nproc)
while (($# > 0)); do
  case "$1" in
    --long) long=true ;;
    --jobs)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "test.sh: --jobs needs a number" >&2; exit 2; }
      jobs=$2
      shift
      ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
  esac
  shift
done

install_packages "${farleaf_packages[@]}" "${farleaf_figures_packages[@]}"

summary=()
failed=()
declare -A log_of
started=$SECONDS
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# step NAME COMMAND...: runs it, goes on if it fails, and remembers how it ended, how long it took and, if it failed,
# what it printed.
step() {
  local name=$1 begin=$SECONDS outcome=passed log
  shift
  log=$logs/${name//[^A-Za-z]/_}
  echo "=== $name"
  if ! "$@" 2>&1 | tee "$log"; then
    outcome=FAILED
    failed+=("$name")
    log_of[$name]=$log
  fi
  summary+=("$(printf '%-22s %-7s %4d s' "$name" "$outcome" $((SECONDS - begin)))")
  [[ $outcome == passed ]]
}

# build PRESET [target]
build() {
  cmake --preset "$1" "${configuration[@]}" >/dev/null &&
    cmake --build --preset "$1" --parallel "$jobs" ${2:+--target "$2"}
}

# tests PRESET [ctest arguments]: concurrent tests share the machine, so that no test may count on time; one more at a time
# than there are processors, for many wait. What ctest tells to have been skipped is remembered.
tests() {
  local preset=$1 code=0 log=$logs/ctest
  shift
  ctest --preset "$preset" --parallel "$((jobs + 1))" --no-tests=error "$@" | tee "$log" || code=$?
  sed -n '/^The following tests did not run:/,/^$/s/^[[:space:]]*[0-9]* - \([^ ]*\).*/\1/p' "$log" |
    sed "s/^/$preset: /" >>"$logs/skipped"
  return "$code"
}

# tell_skipped: how many tests of each suite were skipped.
tell_skipped() {
  [[ -s $logs/skipped ]] || return 0
  echo "skipped:"
  sed 's/[.][^.]*$//' "$logs/skipped" | sort | uniq -c
}

# tell_failure LOG: of ctest's output what the failed tests printed, of any other the end.
tell_failure() {
  if grep -q '^The following tests FAILED:' "$1"; then
    sed -n '/^The following tests FAILED:/,/^$/p' "$1" | grep -v Skipped
    # A failed test's output stands behind its line, up to the next line of ctest.
    awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/ { show = /\*\*\*/ && !/\*\*\*Skipped/; gsub(/[.][.][.]+/, "...") }
         /^ +Start +[0-9]+:/ { next }
         show { print substr($0, 1, 300) }' "$1" | grep -v '^Note: Google Test filter' | tail -n 60
  else
    tail -n 30 "$1" | cut -c -300
  fi
}

asan_selection=(-L 'concurrency|contract|fuzz|model|parser|simulation' -LE 'slow|benchmark')
asan_target=memory_safety_tests
tsan_selection=(-L concurrency -LE benchmark)
tsan_target=concurrency_tests
machine_tests=(OutputArrivesByteForByte StatusIsTheCommands OnlySharedFilesStay DeviceConnectsToItsOwnAddresses
               TimeoutEndsTheMachine WrongArgumentsAreNamed SigtermLeavesNothingBehind TwoMachinesReachEachOther)
configuration=()
if $long; then
  configuration=(-DFARLEAF_SANITIZE_SKIP= -DFARLEAF_UNITY=OFF)
  export FARLEAF_TEST_SCALE=long
  asan_selection=()
  asan_target=
  tsan_selection=()
  tsan_target=
  machine_tests=()
fi

if step "release: build" build release; then
  step "release: tests" tests release || true
fi
$long || export FARLEAF_TEST_SCALE=small  # a sanitizer needs several times as long
if step "asan: build" build asan $asan_target; then
  step "asan: tests" tests asan "${asan_selection[@]}" || true
fi
if step "tsan: build" build tsan $tsan_target; then
  step "tsan: tests" tests tsan "${tsan_selection[@]}" || true
fi
$long || unset FARLEAF_TEST_SCALE
step "RDMA: machine" test/rdma_vm/rdma_vm_test.sh "${machine_tests[@]}" || true
step "RDMA: fabric, tree" scripts/rdma_vm.sh --timeout 1200 -- test/rdma_vm/verbs_suite.sh || true
step "RDMA: two machines" test/rdma_vm/two_machines_test.sh || true
step "RDMA: network faults" test/rdma_vm/network_faults_test.sh || true

echo
tell_skipped
echo "=== summary, $((SECONDS - started)) s in all"
printf '%s\n' "${summary[@]}"
for name in "${failed[@]}"; do
  echo "--- $name"
  tell_failure "${log_of[$name]}"
done
((${#failed[@]} == 0))
