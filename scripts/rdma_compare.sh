#!/usr/bin/env bash
# Measures this project's verbs beside perftest's (ib_read_lat, ib_atomic_lat, ib_read_bw) on one RDMA device,
# taking turns in one run, and prints the ratios. Needs a build, and a device; where there is none:
#
#   scripts/rdma_vm.sh -- scripts/rdma_compare.sh [options]
#
#   --device NAME         RDMA device ($FARLEAF_RDMA_DEVICE)
#   --address ADDRESS     IPv4 address of its port ($FARLEAF_RDMA_ADDRESS)
#   --iterations N        operations of each measurement of a latency, a quarter of those of a rate (5000)
#   --rounds N            how often each pair is measured (5)
#   --loops LIST          who drives ours: transport, worker or transport,worker (transport)
#   --check               exit code 1 if a median ratio is out of bounds:
#   --latency-ratio-max X   of the latencies, ours to theirs (1.3)
#   --rate-ratio-min X      of the rates, ours to theirs (0.7)
#   --json FILE           the result of every round, and the ratios
#   --fabric NAME         ours on verbs, tcp or shm (verbs)
#   --without-perftest    measures ours alone
#   --port N              uses the TCP ports N and N+1 (18515)
#   --bin DIR             where the programs are (build/release/bin)
#
# A ratio is the median of the rounds' ratios; in every other round ours goes first. Both sides poll.
# Exit code: 0; 1: a bound does not hold; 2: wrong arguments; 3: a measurement failed.
set -euo pipefail
cd "$(dirname "$0")/.."

wrong() { echo "rdma_compare.sh: $*; try --help" >&2; exit 2; }

device=${FARLEAF_RDMA_DEVICE:-} address=${FARLEAF_RDMA_ADDRESS:-}
iterations=5000 rounds=5 loops=transport fabric=verbs perftest=true port=18515 bin=build/release/bin
table=()
while (($# > 0)); do
  case "$1" in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' scripts/rdma_compare.sh; exit 0 ;;
    --check) table+=(--check); shift; continue ;;
    --without-perftest) perftest=false; shift; continue ;;
    --device | --address | --iterations | --rounds | --loops | --fabric | --port | --bin) ;;
    --latency-ratio-max | --rate-ratio-min | --json) ;;
    *) wrong "unknown option '$1'" ;;
  esac
  (($# > 1)) || wrong "$1 needs a value"
  case "$1" in
    --iterations | --rounds | --port)
      [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || wrong "$1 needs a number, not '$2'"
      printf -v "${1#--}" %s "$2" ;;
    --latency-ratio-max | --rate-ratio-min)
      [[ $2 =~ ^[0-9]+(\.[0-9]+)?$ ]] || wrong "$1 needs a number, not '$2'"
      table+=("$1" "$2") ;;
    --json) table+=("$1" "$2") ;;
    *) printf -v "${1#--}" %s "$2" ;;
  esac
  shift 2
done
[[ $loops =~ ^(transport|worker|transport,worker)$ ]] || wrong "--loops: '$loops'"
((iterations >= 5)) || wrong "--iterations: perftest takes at least 5"
((port < 65535)) || wrong "--port: $port is too large"
[[ $fabric =~ ^(verbs|tcp|shm)$ ]] || wrong "--fabric: '$fabric' is none of verbs, tcp, shm"
if ! $perftest; then
  [[ ${table[*]} != *--check* ]] || wrong "--check: without perftest there is nothing to compare with"
  [[ $fabric == verbs ]] || address=${address:-127.0.0.1}
fi
[[ -n $address ]] || wrong "--address is missing"
if $perftest; then
  [[ -n $device ]] || wrong "--device is missing"
  [[ $address =~ ^[0-9]+(\.[0-9]+){3}$ ]] || wrong "--address: '$address' is no IPv4 address"
  for program in ib_read_lat ib_atomic_lat ib_read_bw; do
    command -v "$program" >/dev/null || wrong "$program is missing: install perftest"
  done
fi
for program in memory_server verb_bench; do
  [[ -x $bin/$program ]] || wrong "$bin/$program is missing: build it, or give --bin"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/farleaf-rdma-compare.XXXXXX")
server='' their_server=''
clean_up() {
  local pid
  for pid in $their_server $server; do
    kill -TERM "$pid" 2>/dev/null || continue
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# failed TEXT FILE...: ends the run with what the programs said.
failed() {
  echo "rdma_compare.sh: $1" >&2
  shift
  cat "$@" >&2
  exit 3
}

# until_true PID COMMAND...: waits for COMMAND to succeed; fails if the process ends before, or time is up.
until_true() {
  local pid=$1 deadline=$((SECONDS + 30))
  shift
  until "$@"; do
    kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)) || return 1
    sleep 0.02
  done
}

listens() {
  local hex
  printf -v hex %04X "$port"
  grep -qs ":$hex [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6
}

# Their default, GID 0, is the port's link-local address; ours is the one of --address.
gid_options() {
  local octets gid file
  IFS=. read -ra octets <<<"$address"
  printf -v gid '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${octets[@]}"
  for file in /sys/class/infiniband/"$device"/ports/1/gids/*; do
    [[ $(cat "$file" 2>/dev/null) == "$gid" ]] || continue
    [[ $(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/types/${file##*/}") == "RoCE v2" ]] || continue
    echo "-x ${file##*/}"
    return
  done
}

# theirs FILE ITERATIONS PROGRAM OPTIONS...
theirs() {
  local file=$1 count=$2
  shift 2
  local command=("$@" -F -d "$device" -p "$port" -n "$count")
  # shellcheck disable=SC2206  # two words, or none
  command+=($gid)
  "${command[@]}" >"$work/their_server.log" 2>&1 &
  their_server=$!
  until_true "$their_server" listens || failed "$1, as the server, does not start" "$work/their_server.log"
  timeout 120 "${command[@]}" "$address" >"$file" 2>"$file.log" ||
    failed "$1 failed" "$file" "$file.log" "$work/their_server.log"
  wait "$their_server" || failed "$1, as the server, failed" "$work/their_server.log"
  their_server=''
}

# ours FILE ITERATIONS LOOP OPTIONS...
ours() {
  local file=$1 count=$2 loop=$3
  shift 3
  timeout 120 "$bin/verb_bench" --bootstrap "$bootstrap" --loop "$loop" --idle spin --place fixed \
    --operations "$count" --json "$file" "$@" >"$file.log" 2>&1 ||
    failed "verb_bench failed" "$file.log" "$work/server.log"
}

# pair ROUND ROW KIND "THEIR PROGRAM AND OPTIONS" "OUR OPTIONS": measures both, and notes it in the index.
pair() {
  local round=$1 row=$2 kind=$3 base=$work/$2.$1 count=$iterations their_command our_options loop files=''
  [[ $kind == latency ]] || count=$((4 * iterations))
  read -ra their_command <<<"$4"
  read -ra our_options <<<"$5"
  ! $perftest || ((round % 2 == 0)) || theirs "$base.txt" "$count" "${their_command[@]}"
  for loop in ${loops//,/ }; do
    ours "$base.$loop.json" "$count" "$loop" "${our_options[@]}"
    files+=" $loop=$base.$loop.json"
  done
  ! $perftest || ((round % 2 == 1)) || theirs "$base.txt" "$count" "${their_command[@]}"
  ! $perftest || files+=" theirs=$base.txt"
  echo "$row $kind $round$files" >>"$work/index"
}

endpoint=$fabric:$address:$((port + 1))
[[ $fabric != shm ]] || endpoint=shm:$work/server.sock
printf 'cluster compare\n0 %s\n' "$endpoint" >"$work/pool"
bootstrap=file:$work/pool server_options=()
if [[ $fabric == verbs && -n $device ]]; then
  bootstrap+="?rdma_device=$device"
  server_options=(--rdma-device "$device")
fi
: >"$work/server.log"
"$bin/memory_server" --bootstrap "file:$work/pool" "${server_options[@]}" --fabric "$fabric" --size 16MiB --socket "$work/server.sock" \
  --listen "$address:$((port + 1))" --insecure >"$work/server.log" 2>&1 &
server=$!
until_true "$server" grep -q ' serves ' "$work/server.log" ||
  failed "memory_server does not start" "$work/server.log"

gid=''
! $perftest || gid=$(gid_options)
for ((round = 1; round <= rounds; round++)); do
  pair "$round" read_8 latency "ib_read_lat -s 8" "--verb read --bytes 8"
  pair "$round" read_1024 latency "ib_read_lat -s 1024" "--verb read --bytes 1024"
  pair "$round" cas latency "ib_atomic_lat -A CMP_AND_SWAP" "--verb cas"
  pair "$round" read_1024_x32 rate "ib_read_bw -s 1024 -t 32" "--verb read --bytes 1024 --in-flight 32"
done
version=none
! $perftest || version=$({ ib_read_lat --version || true; } 2>/dev/null | sed -n 's/.*[Vv]ersion *: *//p')
code=0
scripts/rdma_compare_table.py "${table[@]}" --set "fabric=$fabric" --set "device=$device" \
  --set "address=$address" --set "iterations=$iterations" --set "rounds=$rounds" \
  --set "perftest=${version:-unknown}" --set "kernel=$(uname -r)" "$work/index" || code=$?
((code <= 1)) || exit 3
exit "$code"
