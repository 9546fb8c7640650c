#!/usr/bin/env bash
# Tests scripts/rdma_vm.sh: what passes into its machine and out of it, how it ends, and that RDMA works there.
# Boots a dozen machines, one after the other: two minutes on two quiet cores.
#
#   test/rdma_vm/rdma_vm_test.sh [TEST...]
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/install_packages.sh

# Whoever runs a machine for the first time is told what is installed; tests look at all that is printed.
install_packages "${farleaf_rdma_vm_packages[@]}"

# Bounds what would hang; on a busy host a machine may take a minute to boot.
machine() { scripts/rdma_vm.sh --timeout 180 "$@"; }

failures=0
# expect WHAT WANTED GOT
expect() {
  [[ $2 == "$3" ]] && return
  printf '%s: FAILED: %s is\n%q, not\n%q\n' "$test" "$1" "$3" "$2"
  failures=$((failures + 1))
}

# status COMMAND...: sets code to its exit status, out and err to its output.
status() {
  code=0
  "$@" >"$work/out" 2>"$work/err" || code=$?
  out=$(tr -d '\0' <"$work/out") err=$(tr -d '\0' <"$work/err")
}

ArgumentsAndEnvironmentArriveAsTheyAre() {
  local words=('' 'two words' "it's" '"$HOME" * \' $'new\nline' 'ü' --share)
  PASSED='a  b' status machine --env PASSED --env 'SET=$x "y"=z' --env NOT_SET -- \
    bash -c 'printf "%s\n" "$PWD" "$PASSED" "$SET" "${NOT_SET-unset}" "$@"' 0 "${words[@]}"
  expect status 0 "$code"
  expect output "$(printf '%s\n' "$PWD" 'a  b' '$x "y"=z' unset "${words[@]}")" "$out"
  expect errors "" "$err"
}

OutputArrivesByteForByte() {
  head -c 3000000 /dev/urandom >"$work/share/bytes"
  status machine --share "$work/share" -- bash -c 'cat "$0/bytes"; cat "$0/bytes" >&2' "$work/share"
  expect status 0 "$code"
  expect "comparison of output" "" "$(cmp "$work/share/bytes" "$work/out" 2>&1)"
  expect "comparison of errors" "" "$(cmp "$work/share/bytes" "$work/err" 2>&1)"
}

StatusIsTheCommands() {
  status machine -- bash -c 'exit 3'
  expect "status of exit 3" 3 "$code"
  status machine -- bash -c 'kill -KILL $$'
  expect "status after SIGKILL" 137 "$code"
  status machine -- ./no-such-command
  expect "status without a command" 127 "$code"
}

OnlySharedFilesStay() {
  local mark=rdma_vm_test.$$
  status machine --share "$work/share" -- bash -c \
    'for d in "$1" . /tmp /dev/shm; do echo text >"$d/$2" && cat "$d/$2"; done' 0 "$work/share" "$mark"
  expect status 0 "$code"
  expect output $'text\ntext\ntext\ntext' "$out"
  expect "shared file" text "$(cat "$work/share/$mark")"
  expect "other files" "" "$(ls "$mark" "/tmp/$mark" "/dev/shm/$mark" 2>/dev/null)"
}

# What is left running does not keep the machine, and its output is not waited for.
LeftProcessesDoNotKeepTheMachine() {
  status machine -- bash -c 'sleep 1000 & echo done'
  expect status 0 "$code"
  expect output done "$out"
}

ping_own_addresses='
  for address in $FARLEAF_RDMA_ADDRESS $FARLEAF_RDMA_ADDRESS6; do
    rping -s -a $address -C 3 >/dev/null 2>&1 &
    for try in {1..100}; do rping -c -a $address -C 3 >/dev/null 2>&1 && echo answered && break; sleep 0.1; done
    wait
  done
  ibv_devices | grep -c $FARLEAF_RDMA_DEVICE'
DeviceConnectsToItsOwnAddresses() {
  status machine -- bash -c "$ping_own_addresses"
  expect status 0 "$code"
  expect output $'answered\nanswered\n1' "$out"
}

# Copies by single bytes (rep movsb) would tear an aligned word that a queue pair reads or writes.
WordsAreCopiedWhole() {
  status machine -- grep -cwE 'erms|fsrm' /proc/cpuinfo
  expect "number of processors with erms or fsrm" 0 "$out"
}

# The emulated counter is the host's; a kernel that is wrong about its speed has a wrong clock.
ClockRunsAtTheHostsSpeed() {
  local host_khz percent
  host_khz=$(scripts/rdma_vm/tsc_khz.py)
  status machine --accel tcg -- scripts/rdma_vm/tsc_khz.py
  percent=$(awk -v guest="$out" -v host="$host_khz" 'BEGIN { print int(100 * guest / host + 0.5) }')
  expect "the clock within 3 %" yes "$( ((percent >= 97 && percent <= 103)) && echo yes || echo "$percent %")"
}

HugePagesAreThere() {
  status machine --hugepages 64 -- grep HugePages_Total: /proc/meminfo
  expect output "HugePages_Total:      32" "$out"
}

TimeoutEndsTheMachine() {
  status scripts/rdma_vm.sh --timeout 2 -- sleep 1000
  expect status 124 "$code"
  expect errors "rdma_vm.sh: the command did not end within 2 s" "$err"
}

PanicIsAnErrorWithTheKernelsMessages() {
  status machine -- bash -c 'echo c >/proc/sysrq-trigger'
  expect status 125 "$code"
  expect "panic shown" yes "$([[ $err == *'Kernel panic'*'the machine ended before its command did'* ]] && echo yes)"
}

ExhaustedMemoryIsAnError() {
  status machine --memory 512 -- python3 -c 'x = [bytearray(b"x" * (1 << 20)) for i in range(1024)]'
  expect status 125 "$code"
  expect "remedy shown" yes "$([[ $err == *"memory was exhausted"*"--memory"* ]] && echo yes)"
}

WrongArgumentsAreNamed() {
  status scripts/rdma_vm.sh --cpus many -- true
  expect status 2 "$code"
  expect errors "rdma_vm.sh: --cpus needs a number, not 'many'; try --help" "$err"
  status scripts/rdma_vm.sh --verbose
  expect errors "rdma_vm.sh: there is no command; try --help" "$err"
}

SigtermLeavesNothingBehind() {
  local pid code=0 tries=0
  mkdir "$work/tmp"
  TMPDIR=$work/tmp scripts/rdma_vm.sh --share "$work/share" -- bash -c 'touch "$0/started"; sleep 1000' "$work/share" &
  pid=$!
  until [[ -e $work/share/started ]] || ((++tries > 1800)); do sleep 0.1; done
  kill -TERM "$pid"
  wait "$pid" || code=$?
  expect status 143 "$code"
  expect "files left" "" "$(ls "$work/tmp")"
  expect "processes left" "" "$(pgrep -f "$work/tmp" || true)"
}

ping_peer='
  ibv_devinfo | sed -n "s/.*active_mtu:[[:space:]]*\([0-9]*\).*/\1/p"
  for address in $FARLEAF_RDMA_PEER_ADDRESS $FARLEAF_RDMA_PEER_ADDRESS6; do
    for try in {1..100}; do rping -c -a $address -C 3 >/dev/null 2>&1 && echo answered && break; sleep 0.1; done
  done
  touch "$0/main"'
TwoMachinesReachEachOther() {
  local server="cd '$work/share'; rping -s -P -a ::0 & trap 'echo stopped; exit' TERM; touch server; while :; do sleep 0.1; done"
  status machine --share "$work/share" --server "$server" -- bash -c "$ping_peer" "$work/share"
  expect status 0 "$code"
  expect output $'4096\nanswered\nanswered' "$out"
  expect "server's end" 1 "$(grep -c '^server: stopped$' "$work/err")"
  expect "shared files" $'main\nserver' "$(cd "$work/share" && ls main server)"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/farleaf-test-rdma-vm.XXXXXX")
trap 'rm -rf "$work"' EXIT
(($# > 0)) || mapfile -t tests < <(sed -n 's/^\([A-Z][A-Za-z]*\)() {$/\1/p' "$0")
(($# == 0)) || tests=("$@")
for test in "${tests[@]}"; do
  before=$failures begin=$SECONDS
  mkdir -p "$work/share"
  "$test"
  ((failures > before)) || printf '%s: passed, %d s\n' "$test" $((SECONDS - begin))
  ((failures == before)) || { echo "its output:"; head -c 4000 "$work/out"; echo "its errors:"; head -c 4000 "$work/err"; }
  rm -rf "$work/share"
done
echo "$failures failures in ${#tests[@]} tests"
((failures == 0))
