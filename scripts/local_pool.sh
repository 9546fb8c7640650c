# To be sourced: processes of a pool on this machine, which are stopped when the script ends.
#
#   begin_processes LOGS        logs go there; $work is a directory that lives as long as the script; $after_processes: a function that is called
#                               when they have ended
#   start NAME COMMAND...       runs it in the background, its output in LOGS/NAME.log
#   wait_for NAME FILE          until the process started last has written the file; fails if it ends before
#   require_counts VARIABLE...  ends the script with exit code 2 if one that is set is no number above 0
#   require_programs BIN NAME...  ends it likewise if one of them is not built
#   start_memory MIB FLAGS...   memcached and two memory servers of MIB each; sets $bootstrap
#   start_compute NAME ARGS...  a compute server that has joined both; its addresses are in $work/NAME.ready

begin_processes() {
  logs=$1
  work=$(mktemp -d "${TMPDIR:-/tmp}/farleaf.XXXXXX")
  started=()
  trap stop_processes EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir -p "$logs"
}

require_counts() {
  local name
  for name in "$@"; do
    [[ ${!name-1} =~ ^[1-9][0-9]*$ ]] && continue
    echo "${0##*/}: $name=${!name} is no number above 0" >&2
    exit 2
  done
}

require_programs() {
  local bin=$1 name
  shift
  for name in "$@"; do
    [[ -x $bin/$name ]] && continue
    echo "${0##*/}: there is no $bin/$name: cmake --preset release && cmake --build --preset release, or set BIN" >&2
    exit 2
  done
}

# The last started is stopped first: compute servers leave the pool while there is one.
stop_processes() {
  local code=$? i
  trap - EXIT INT TERM
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do
    kill -TERM "${started[i]}" 2>/dev/null || true
    wait "${started[i]}" 2>/dev/null || true
  done
  rm -rf "$work"
  "${after_processes:-:}"
  exit "$code"
}

start() {
  local name=$1
  shift
  "$@" >"$logs/$name.log" 2>&1 &
  started+=($!)
}

wait_for() {
  local name=$1 file=$2 deadline=$((SECONDS + 60))
  until [[ -s $file ]]; do
    if ! kill -0 "${started[-1]}" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "${0##*/}: $name does not start:" >&2
      cat "$logs/$name.log" >&2
      return 1
    fi
    sleep 0.05
  done
}

start_memory() {
  local mib=$1 id
  shift
  start memcached env MEMCACHED_PORT_FILENAME="$work/memcached.port" \
    memcached -l 127.0.0.1 -p -1 -U 0 -u "$(id -un)"
  wait_for memcached "$work/memcached.port"
  bootstrap=memcached://127.0.0.1:$(sed -n 's/^TCP INET: //p' "$work/memcached.port")/farleaf
  for id in 0 1; do
    start "memory_server_$id" "$bin/memory_server" --bootstrap "$bootstrap" --id "$id" --size "${mib}MiB" \
      --socket "$work/memory-$id.sock" "$@"
  done
}

start_compute() {
  local name=$1
  shift
  start "$name" "$bin/compute_server" --bootstrap "$bootstrap" --memory-servers-min 2 --listen 127.0.0.1:0 \
    --ready-file "$work/$name.ready" "$@"
  wait_for "$name" "$work/$name.ready"
}
