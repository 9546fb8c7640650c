#!/bin/busybox sh
# The first process of a machine that scripts/rdma_vm.sh boots; it runs from the initial RAM file system, never
# on the host. Prepares the machine, runs /command in the host's root file system (read-only, beneath a layer in
# memory), and tells how it ended.
#
# /settings, written for each run, sets share, interface, address, address6 and mtu.
# Ports to the host: out and err, the command's output; log, the kernel's messages; control, a line each:
#   to the host: "ready", "status N", "error TEXT"    from the host: "start", "stop" (SIGTERM to the command)

log() { echo "farleaf: $*" >/dev/kmsg; }

# Nothing goes on: the host shows the text, then ends the machine.
give_up() {
  log "$*"
  dmesg >"${log_port:-/dev/null}"
  if [ -n "$control_port" ]; then echo "error $*" >&9; fi
  poweroff -f
}

find_port() {
  local name
  for name in /sys/class/virtio-ports/*/name; do
    if [ "$(cat "$name")" = "$1" ]; then
      name=${name%/name}
      echo "/dev/${name##*/}"
      return
    fi
  done
}

mount_basics() {
  mkdir -p /proc /sys /dev /lower /layer /root
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t devtmpfs dev /dev
  local module tries=0
  while read -r module; do
    insmod "/modules/$module" || log "module $module was not loaded"
  done </modules/order
  until [ -n "$(find_port log)" ] && [ -e "$(find_port log)" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 400 ]; then give_up "the ports to the host are missing"; fi
    usleep 25000
  done
  control_port=$(find_port control) out_port=$(find_port out) err_port=$(find_port err) log_port=$(find_port log)
  exec 9<>"$control_port"
}

mount_root() {
  local directory plan9="trans=virtio,version=9p2000.L,msize=512000"
  mount -t 9p -o "ro,cache=loose,$plan9" root /lower || give_up "cannot mount the host's files"
  mount -t tmpfs tmpfs /layer
  mkdir /layer/upper /layer/work
  mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /root ||
    give_up "cannot lay a writable layer over the host's files"
  mkdir -p /dev/shm /dev/pts /dev/hugepages
  mount -t devpts devpts /dev/pts
  mount -t hugetlbfs hugetlbfs /dev/hugepages
  mount -t tmpfs -o size=90%,mode=1777 tmpfs /dev/shm
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  ln -s /proc/self/fd /dev/fd
  ln -s fd/0 /dev/stdin && ln -s fd/1 /dev/stdout && ln -s fd/2 /dev/stderr
  for directory in proc sys dev; do mount --rbind /$directory /root/$directory; done
  mount -t tmpfs -o mode=1777 tmpfs /root/tmp
  mount -t tmpfs -o mode=755 tmpfs /root/run
  if [ -n "$share" ]; then
    mkdir -p "/root$share"
    mount -t 9p -o "rw,cache=mmap,$plan9" share "/root$share" || give_up "cannot mount $share"
  fi
}

# The command may look for the addresses among the RDMA device's GIDs at once, so they have to be there.
await_gid() {
  local tries=0
  until cat /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | grep -q "$1\$"; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ]; then give_up "rxe0 has no GID that ends in $1"; fi
    usleep 20000
  done
}

start_network() {
  hostname farleaf-vm
  ip link set lo up
  ip link set "$interface" mtu "$mtu" || log "$interface keeps its MTU"
  ip link set "$interface" up || give_up "there is no network interface $interface"
  echo 0 >"/proc/sys/net/ipv6/conf/$interface/accept_dad"
  ip addr add "$address/24" dev "$interface"
  ip addr add "$address6/64" dev "$interface"
  chroot /root rdma link add rxe0 type rxe netdev "$interface" || give_up "cannot make the RDMA device rxe0"
  await_gid "ffff:$(printf '%02x%02x:%02x%02x' $(echo "$address" | tr . ' '))"
  await_gid "$(printf '%04x' "0x${address6##*::}")"
}

group=/sys/fs/cgroup/command

obey_host() {
  local line process
  while read -r line <&9; do
    [ "$line" = stop ] || continue
    while read -r process; do kill -TERM "$process"; done <$group/cgroup.procs
  done
}

# The command has a control group, so that nothing that it leaves behind keeps the machine, and pipes, since a
# port can be opened only once.
run_command() {
  local code line= command copy_out copy_err obeying killed
  mkdir $group
  mkfifo /out /err
  cat /out >"$out_port" &
  copy_out=$!
  cat /err >"$err_port" &
  copy_err=$!
  cp /command /root/run/farleaf-command
  ulimit -l unlimited
  ulimit -n 65536
  ulimit -c 0
  echo ready >&9
  until [ "$line" = start ]; do read -r line <&9 || give_up "the control port was closed"; done
  (
    exec 9>&-
    echo 0 >$group/cgroup.procs
    exec chroot /root /bin/bash /run/farleaf-command
  ) </dev/null >/out 2>/err &
  command=$!
  obey_host &
  obeying=$!
  wait $command
  code=$?
  echo 1 >$group/cgroup.kill
  kill $obeying
  wait $copy_out $copy_err
  sync
  dmesg >"$log_port"
  killed=$(sed -n 's/^oom_kill //p' /proc/vmstat)
  if [ "$killed" != 0 ]; then
    give_up "the machine's memory was exhausted (processes killed: $killed); give it more by --memory"
  fi
  echo "status $code" >&9
  # The host ends the machine.
  while :; do sleep 1000; done
}

export PATH=/bin
control_port=
. /settings
mount_basics
mount_root
start_network
run_command
