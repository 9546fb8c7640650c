#!/usr/bin/env bash
# Runs scripts/cluster.sh with NETWORK=namespaces and does what it says that one can: looks, writes and reads, parts a node from the others and from
# ZooKeeper, heals that, and ends it all.
#
#   cluster_script_check.sh SCRIPT
#
# BIN: where the programs are; RESULTS: a directory of this check's own. Exit code 77: network namespaces are not permitted, or ZooKeeper or redis-cli
# is not installed.
set -euo pipefail
script=$1
seconds_max=120  # of all of it, on a machine that does much else

fail() {
  echo "$*" >&2
  for log in "$RESULTS"/logs/node?.log; do echo "---- $log"; tail -n 30 "$log"; done >&2
  exit 1
}
skip() {
  echo "$*"
  exit 77
}
command -v redis-cli >/dev/null || skip "redis-cli is not installed"
[[ -e /usr/share/java/zookeeper.jar ]] || skip "ZooKeeper is not installed"
# One at a time on this machine, of whatever build: its names and addresses are fixed. (Of a file that is there anyway.)
exec {turn}</usr/share/java/zookeeper.jar
flock -w 120 "$turn" || fail "another check of this kind does not end"
SECONDS=0
((EUID == 0)) || skip "network namespaces take root"
probe=farleaf-probe-$$
ip netns add "$probe" 2>/dev/null || skip "network namespaces are not permitted"
ip netns del "$probe"
ip link add farleaf-probe type bridge 2>/dev/null || skip "bridges are not permitted"
ip link del farleaf-probe

rm -rf "$RESULTS"
mkdir -p "$RESULTS/logs" "$RESULTS/temporary" "$RESULTS/stores"
# What the script has made: names, so that another one's are not taken for them.
left_behind() {
  ip netns list | grep -E '^farleaf-[123]( |$)' || true
  ip -o link show | grep -E ': farleaf0(-[123])?[@:]' || true
  ls -A "$RESULTS/temporary"
  pgrep -af -- "$RESULTS/" | grep -v -e "^$$ " -e cluster_script_check || true
}
[[ -z $(left_behind) ]] || fail "there is a cluster already: $(left_behind)"

TMPDIR=$RESULTS/temporary LOGS=$RESULTS/logs NETWORK=namespaces "$script" "$RESULTS/stores" \
  >"$RESULTS/output" 2>&1 {turn}<&- &
cluster=$!
# Whatever goes wrong here, it ends.
end_cluster() {
  local i
  kill -TERM "$cluster" 2>/dev/null || return 0
  for ((i = 0; i < 300; ++i)); do
    kill -0 "$cluster" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL -- "-$cluster" 2>/dev/null || true
}
trap end_cluster EXIT

# until_true WHAT COMMAND...
note() { echo "$SECONDS s: $*"; }
until_true() {
  local what=$1
  note "$what?"
  shift
  until "$@"; do
    kill -0 "$cluster" 2>/dev/null || fail "cluster.sh has ended: $(cat "$RESULTS/output")"
    ((SECONDS < seconds_max)) || fail "not within $seconds_max s: $what; regions: $(regions)"
    sleep 0.3
  done
}
regions() { timeout 10 "$BIN/farleafctl" region --cluster zookeeper://10.117.0.253:21810/cluster list --json 2>/dev/null; }
# in_sync NUMBERS: each region is served, and these nodes are in sync with it
in_sync() {
  regions | python3 -c '
import json, sys
regions = json.load(sys.stdin)["regions"]
good = all(r["state"] == "serving" and r["in_sync"] == json.loads(sys.argv[1]) and not r["filling"] for r in regions)
sys.exit(0 if regions and good else 1)' "[$1]" 2>/dev/null
}
redis() {
  local node=$1
  shift
  timeout 20 redis-cli -h "10.117.0.$node" -p 6380 "$@" 2>&1
}
# says NODE ANSWER COMMAND...
says() {
  local node=$1 wanted=$2
  shift 2
  [[ $(redis "$node" "$@") == "$wanted" ]]
}

until_true "there is a primary" grep -qs "is the primary" "$RESULTS/output"
until_true "three nodes are in sync" in_sync "1, 2, 3"
for node in 1 2 3; do
  says "$node" OK SET "key$node" "of $node" || fail "node $node does not take a write: $(redis "$node" SET "key$node" x)"
done
for node in 1 2 3; do
  for key in 1 2 3; do
    says "$node" "of $key" GET "key$key" || fail "node $node answers '$(redis "$node" GET "key$key")' of key$key"
  done
done
[[ $(curl -s --max-time 10 http://10.117.0.2:9400/health) == ok ]] || fail "node 2 is not healthy"
code=0
TMPDIR=$RESULTS/temporary LOGS=$RESULTS/logs_of_second NETWORK=namespaces timeout 20 "$script" 2>"$RESULTS/second" || code=$?
[[ $code == 2 ]] || fail "a second cluster ends with exit code $code: $(cat "$RESULTS/second")"
says 2 "of 1" GET key1 || fail "a second cluster that is refused takes the network of the first"

# Node 3 is alone: the others go on without it, and it answers nothing that is old.
for other in 1 2 zookeeper; do "$script" part 3 "$other"; done
until_true "the others go on alone" in_sync "1, 2"
until_true "they are written to" says 1 OK SET key1 "without 3"
until_true "they are read" says 2 "without 3" GET key1
answer=$(timeout 2 redis-cli -h 10.117.0.3 -p 6380 GET key1 2>&1 || true)
[[ $answer != "of 1" ]] || fail "who is parted from all answers what is old"
for other in 1 2 zookeeper; do "$script" heal 3 "$other"; done
until_true "all three are in sync again" in_sync "1, 2, 3"
until_true "who was parted reads what was written meanwhile" says 3 "without 3" GET key1

# The script alone, as a service's stop does.
kill -TERM "$cluster"
code=0
wait "$cluster" || code=$?
trap - EXIT
[[ $code == 143 ]] || fail "cluster.sh ended with exit code $code behind SIGTERM: $(cat "$RESULTS/output")"
[[ -z $(left_behind) ]] || fail "left behind: $(left_behind)"
ls "$RESULTS/stores/node1" >/dev/null || fail "the stores are gone"
rm -rf "$RESULTS/stores"
echo "all well within $SECONDS s"
