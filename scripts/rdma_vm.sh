#!/usr/bin/env bash
# Runs a command in a small virtual machine that has an RDMA device: the soft-RoCE driver (rxe) of Debian's
# kernel. For hosts without an RDMA card; needs no root.
#
#   scripts/rdma_vm.sh [options] -- COMMAND [ARGUMENTS...]
#   scripts/rdma_vm.sh [options] --server SHELL_COMMAND -- COMMAND [ARGUMENTS...]
#
# The machine sees the host's files, as far as the caller may read them. It may write anywhere too, but what it
# writes vanishes with it, except beneath --share; /tmp, /run and /dev/shm are new and empty. The command runs
# as root in the current directory; its output and its exit status become the script's. Standard input is
# empty. Its environment is PATH, HOME, what --env names, and
#   FARLEAF_RDMA_ADDRESS, FARLEAF_RDMA_ADDRESS6   the machine's addresses, IPv4 and IPv6
#   FARLEAF_RDMA_DEVICE                           the RDMA device's name
# With --server there are two machines, joined by a network. The server's shell command runs in the one, and
# its output appears on standard error, each line after "server: "; COMMAND starts in the other as soon as
# both are up (it has to wait itself until the server listens), and when it ends, the server is sent SIGTERM
# and has 10 s to end. Both have besides
#   FARLEAF_RDMA_PEER_ADDRESS, FARLEAF_RDMA_PEER_ADDRESS6   the other machine's addresses
#
#   --share DIR          DIR is the host's own: what the machines write there stays
#   --env NAME[=VALUE]   sets a variable, or passes the caller's; may be repeated
#   --cpus N             processors of each machine (2)
#   --memory MIB         memory of each machine (3072)
#   --hugepages MIB      of which in huge pages of 2 MiB, mounted at /dev/hugepages (0)
#   --timeout SECONDS    ends all that long after the command's start (no limit)
#   --accel KIND         auto (KVM where it works, else emulation), kvm, or tcg (emulation)
#   --kernel-log FILE    the kernel's messages
#   --verbose            tells on standard error what it does and how long it takes
#
# Exit status: the command's (128 + N after signal N); 124 after --timeout; 125 if a machine failed (its last
# messages are shown); 141 if nobody reads the output any more; 2 for wrong arguments.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$scripts/install_packages.sh"
source "$scripts/rdma_vm/image.sh"

fail() { echo "rdma_vm.sh: $*" >&2; exit 125; }
wrong() { echo "rdma_vm.sh: $*; try --help" >&2; exit 2; }
tell() { ! $verbose || echo "rdma_vm.sh: $*, $(seconds_since_start) s after the start" >&2; }
seconds_since_start() { awk -v a="$script_begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

script_begin=$EPOCHREALTIME
machines=(main)
server_command='' share='' environment=() cpus=2 memory_mib=3072 hugepages_mib=0 timeout_s='' accel=auto
kernel_log='' verbose=false
readonly kvm_boot_s=15 boot_s=240 server_stop_s=10
declare -A qemu=() control=() partial=()
show=() # the processes that show output

parse() {
  while (($# > 0)); do
    case "$1" in
      --verbose) verbose=true; shift; continue ;;
      -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$scripts/rdma_vm.sh"; exit 0 ;;
      --) shift; break ;;
      --server | --share | --env | --accel | --kernel-log) (($# > 1)) || wrong "$1 needs a value" ;;
      --cpus | --memory | --hugepages | --timeout)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || wrong "$1 needs a number, not '${2-}'" ;;
      *) wrong "unknown option '$1'" ;;
    esac
    case "$1" in
      --server) server_command=$2 machines=(server main) ;;
      --share) share=$(cd -- "$2" 2>/dev/null && pwd -P) || wrong "--share: there is no directory '$2'" ;;
      --env) add_variable "$2" ;;
      --cpus) cpus=$2 ;;
      --memory) memory_mib=$2 ;;
      --hugepages) hugepages_mib=$2 ;;
      --timeout) timeout_s=$2 ;;
      --accel) [[ $2 =~ ^(auto|kvm|tcg)$ ]] || wrong "--accel: '$2' is none of auto, kvm, tcg"; accel=$2 ;;
      --kernel-log) kernel_log=$2 ;;
    esac
    shift 2
  done
  (($# > 0)) || wrong "there is no command"
  command=("$@")
}

add_variable() {
  [[ $1 =~ ^[A-Za-z_][A-Za-z_0-9]*(=|$) ]] || wrong "--env: '$1' is neither NAME nor NAME=VALUE"
  if [[ $1 == *=* ]]; then
    environment+=("$1")
  elif [[ -v $1 ]]; then
    environment+=("$1=${!1}")
  fi
}

# write_settings FILE INTERFACE ADDRESS ADDRESS6 [PEER_ADDRESS PEER_ADDRESS6]
write_settings() {
  printf 'share=%q interface=%q address=%q address6=%q mtu=9000\n' "$share" "$2" "$3" "$4" >"$1"
  variables=("PATH=$PATH:/usr/sbin:/sbin" "HOME=${HOME:-/}" "FARLEAF_RDMA_DEVICE=rxe0"
    "FARLEAF_RDMA_ADDRESS=$3" "FARLEAF_RDMA_ADDRESS6=$4")
  if (($# > 4)); then
    variables+=("FARLEAF_RDMA_PEER_ADDRESS=$5" "FARLEAF_RDMA_PEER_ADDRESS6=$6")
  fi
  variables+=("${environment[@]}")
}

# write_command FILE COMMAND [ARGUMENTS...]: a script that runs it with the variables, and nothing else.
write_command() {
  local file=$1
  shift
  {
    printf 'cd -- %q 2>/dev/null || {\n' "$PWD"
    printf '  echo rdma_vm.sh: the machine does not see %q, give a directory above it by --share >&2\n' "'$PWD'"
    echo '  exit 125'
    echo '}'
    printf 'exec env -i'
    # The shell between them takes a command's name that holds "=" for what it is.
    printf ' %q' "${variables[@]}" /bin/bash -c 'exec -- "$@"' bash "$@"
    echo
  } >"$file"
}

# write_files: the folder of each machine, with its initial RAM file system.
write_files() {
  local variables machine LC_ALL=C
  for machine in "${machines[@]}"; do mkdir -p "$work/$machine/files"; done
  if [[ ${machines[0]} == main ]]; then
    write_settings "$work/main/files/settings" dummy0 10.77.0.1 fd77::1
  else
    write_settings "$work/server/files/settings" eth0 10.78.0.1 fd78::1 10.78.0.2 fd78::2
    write_command "$work/server/files/command" /bin/bash -c "$server_command"
    write_initrd "$work/server"
    write_settings "$work/main/files/settings" eth0 10.78.0.2 fd78::2 10.78.0.1 fd78::1
  fi
  write_command "$work/main/files/command" "${command[@]}"
  write_initrd "$work/main"
}

# Without erms and fsrm the kernel and libc copy by words, never by bytes, so that an aligned word is never torn.
# Emulated, a carry-less multiplication is slower than the tables that take its place, and the kernel must be told
# how fast the host's time stamp counter is.
accel_flags() {
  case $1 in
    kvm)
      flags=(-accel kvm -cpu host,-erms,-fsrm,-arch-capabilities)
      clock=tsc=reliable ;;
    tcg)
      flags=(-accel tcg,thread=multi -cpu max,-erms,-fsrm,-pclmulqdq)
      clock="tsc=reliable tsc_early_khz=$("$scripts/rdma_vm/tsc_khz.py")" ;;
  esac
}

# device_flags MACHINE: paths are relative to its folder, since a socket's may have 107 characters only.
device_flags() {
  local port
  # Without ioeventfd, what the machine has written to a port is in the host's file when the write returns.
  devices=(-device virtio-serial-pci,ioeventfd=off -chardev pipe,id=control,path=control)
  for port in out err log; do devices+=(-chardev "file,id=$port,path=$port"); done
  for port in control out err log; do devices+=(-device "virtserialport,chardev=$port,name=$port"); done
  devices+=(-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap
    -device virtio-9p-pci,fsdev=root,mount_tag=root)
  if [[ -n $share ]]; then
    devices+=(-fsdev "local,id=share,path=${share//,/,,},security_model=none,multidevs=remap"
      -device virtio-9p-pci,fsdev=share,mount_tag=share)
  fi
  if ((${#machines[@]} == 2)); then
    case $1 in
      server) devices+=(-netdev stream,id=net,server=on,addr.type=unix,addr.path=../net
        -device virtio-net-pci,netdev=net,host_mtu=9000,mac=52:54:00:78:00:01) ;;
      main) devices+=(-netdev stream,id=net,server=off,addr.type=unix,addr.path=../net
        -device virtio-net-pci,netdev=net,host_mtu=9000,mac=52:54:00:78:00:02) ;;
    esac
  fi
}

# start_machine MACHINE ACCEL
start_machine() {
  local name=$1 flags clock devices stream
  accel_flags "$2"
  device_flags "$name"
  cd "$work/$name"
  rm -f control.in control.out console out err log
  mkfifo control.in control.out
  : >out
  : >err
  exec {stream}<>control.out
  control[$name]=$stream
  partial[$name]=
  # The kernel's watchdogs end a machine that hangs.
  setpriv --pdeathsig KILL \
    qemu-system-x86_64 -M q35,i8042=off,vmport=off "${flags[@]}" -smp "$cpus" -m "$memory_mib" \
    -nodefaults -no-user-config -display none -no-reboot -kernel "$image/vmlinux" -initrd initrd \
    -append "console=ttyS0 quiet panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=30 hung_task_panic=1 \
mitigations=off $clock random.trust_cpu=on 8250.nr_uarts=1 cryptomgr.notests hugepages=$((hugepages_mib / 2))" \
    -serial file:console "${devices[@]}" </dev/null >qemu.log 2>&1 &
  qemu[$name]=$!
  cd "$OLDPWD"
}

# start_machines ACCEL: the client of the network's socket needs the server's to exist.
start_machines() {
  local deadline=$((SECONDS + 20)) name
  tell "starting with $1"
  for name in "${machines[@]}"; do
    start_machine "$name" "$1"
    [[ $name == server ]] || continue
    until [[ -S $work/net ]] || ! kill -0 "${qemu[server]}" 2>/dev/null || ((SECONDS > deadline)); do
      sleep 0.05
    done
  done
}

# Ends the machines and what shows their output, having shown all.
stop_machines() {
  local name
  for name in "${!qemu[@]}"; do
    kill -KILL "${qemu[$name]}" 2>/dev/null || true
    wait "${qemu[$name]}" 2>/dev/null || true
    exec {control[$name]}>&-
  done
  ((${#show[@]} == 0)) || wait "${show[@]}" 2>/dev/null || true
  show=()
  if [[ -n $kernel_log && ${#qemu[@]} -gt 0 ]]; then
    for name in "${machines[@]}"; do
      echo "=== $name"
      if [[ -s $work/$name/log ]]; then cat "$work/$name/log"; else cat "$work/$name/console"; fi
    done >"$kernel_log" 2>/dev/null || echo "rdma_vm.sh: cannot write $kernel_log" >&2
  fi
  qemu=()
  rm -f "$work/net"
}

# machine_failed MACHINE REASON
machine_failed() {
  local name=$1
  stop_machines
  {
    cat "$work/$name/qemu.log"
    if [[ -s $work/$name/console ]]; then tail -n 60 "$work/$name/console"; else tail -n 20 "$work/$name/log"; fi
  } >&2 || true
  if ((${#machines[@]} == 2)); then fail "$2 (machine $name)"; else fail "$2"; fi
}

# next_line MACHINE SECONDS: sets line to its next one; "" if there is none in that time, "gone" if it ended.
next_line() {
  line=
  if IFS= read -r -t "$2" line <&"${control[$1]}"; then
    line=${partial[$1]-}$line
    partial[$1]=
    return
  fi
  # The time may have run out within a line.
  partial[$1]=${partial[$1]-}$line
  line=
  if ! kill -0 "${qemu[$1]}" 2>/dev/null || grep -q 'internal error' "$work/$1/qemu.log"; then
    IFS= read -r -t 0.1 line <&"${control[$1]}" || line=gone
  fi
}

# boot ACCEL SECONDS: returns when all machines are ready, or with 1 and failed_machine and reason set.
boot() {
  local deadline=$((SECONDS + $2)) line
  start_machines "$1"
  for failed_machine in "${machines[@]}"; do
    while :; do
      next_line "$failed_machine" 0.5
      case "$line" in
        ready) break ;;
        gone) reason="it ended before it was ready"; return 1 ;;
        "error "*) reason=${line#error }; return 1 ;;
      esac
      if ((SECONDS >= deadline)); then
        reason="it was not ready within $2 s"
        return 1
      fi
    done
  done
}

# KVM may be there and yet fail or hang with a real kernel, as in some nested machines: then emulation takes its
# place, from the next run on at once.
boot_best() {
  local failed_machine reason kvm_failed
  kvm_failed=$cache/rdma_vm-kvm-failed-$(cat /proc/sys/kernel/random/boot_id)
  if [[ $accel == auto ]]; then
    accel=tcg
    if [[ -r /dev/kvm && -w /dev/kvm && ! -e $kvm_failed ]]; then
      boot kvm "$kvm_boot_s" && return
      tell "KVM does not work here: $reason"
      stop_machines
      : >"$kvm_failed"
    fi
  fi
  boot "$accel" "$boot_s" || machine_failed "$failed_machine" "a machine did not start: $reason"
}

# follow MACHINE out|err: shows it until the machine has ended. A tail of two files may miss the end of one: it takes
# one change at a time, and at most one more once the machine is gone.
follow() { tail -c +1 -s 0.05 --pid="${qemu[$1]}" -f "$work/$1/$2"; }

# start_command MACHINE: shows its output from now on.
start_command() {
  local name=$1
  case $name in
    main)
      follow main out &
      show+=($!)
      follow main err >&2 &
      show+=($!)
      ;;
    server)
      follow server out | sed -u 's/^/server: /' >&2 &
      show+=($!)
      follow server err | sed -u 's/^/server: /' >&2 &
      show+=($!)
      ;;
  esac
  echo start >"$work/$name/control.in"
}

# look_at MACHINE SECONDS: sets statuses[MACHINE] if its command has ended in that time.
look_at() {
  local line
  next_line "$1" "$2"
  case "$line" in
    "status "*) statuses[$1]=${line#status } ;;
    "error "*) machine_failed "$1" "${line#error }" ;;
    gone) machine_failed "$1" "the machine ended before its command did" ;;
  esac
}

stop_server() {
  local deadline=$((SECONDS + server_stop_s))
  [[ -z ${statuses[server]} ]] || return 0
  echo stop >"$work/server/control.in"
  until [[ -n ${statuses[server]} ]] || ((SECONDS >= deadline)); do look_at server 0.2; done
  [[ -n ${statuses[server]} ]] || echo "rdma_vm.sh: the server command did not end on SIGTERM" >&2
}

# Waits for the command's end: sets status.
attend() {
  local begin=$SECONDS name process
  local -A statuses=([main]='' [server]='')
  while [[ -z ${statuses[main]} ]]; do
    look_at main 0.3
    if [[ ${machines[0]} == server && -z ${statuses[server]} ]]; then
      look_at server 0.01
      if [[ -n ${statuses[server]} ]]; then
        echo "rdma_vm.sh: the server command has ended with status ${statuses[server]}" >&2
      fi
    fi
    kill -0 "${show[@]: -2:1}" 2>/dev/null || exit 141
    if [[ -z ${statuses[main]} && -n $timeout_s ]] && ((SECONDS - begin >= timeout_s)); then
      echo "rdma_vm.sh: the command did not end within $timeout_s s" >&2
      exit 124
    fi
  done
  status=${statuses[main]}
  tell "the command has ended with status $status"
  [[ ${machines[0]} == main ]] || stop_server
}

clean_up() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP
  stop_machines
  rm -rf "$work"
  exit "$code"
}

main() {
  parse "$@"
  install_packages "${farleaf_rdma_vm_packages[@]}" >&2
  work=$(mktemp -d "${TMPDIR:-/tmp}/farleaf-rdma-vm.XXXXXX")
  trap clean_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  find_cache "$work"
  find_kernel
  prepare_image
  write_files
  boot_best
  local name
  for name in "${machines[@]}"; do start_command "$name"; done
  tell "the command starts"
  attend
  exit "$status"
}

main "$@"
