#!/usr/bin/env bash
# Runs scripts/rivals.sh, whose settings are in the environment, and checks that its tables have all rows.
#
#   rivals_check.sh SCRIPT
#
# Exit code 77: a rival is not installed.
set -euo pipefail
for program in redis-server memcached taskset; do
  command -v "$program" >/dev/null || {
    echo "$program is not installed"
    exit 77
  }
done
output=$("$1")
echo "$output"

# expect WHAT PATTERN: a line that is of this form
expect() {
  grep -Eq -- "$2" <<<"$output" && return
  echo "no row: $1" >&2
  exit 1
}
number='[0-9]+\.[0-9]+'
for what in GET SET; do
  for depth in 1 16 64; do
    for server in redis memcached; do
      expect "$what $depth $server" "^$what +$depth  $server +($number +){3}[0-9]+ +($number *){3}$"
      expect "$what $depth farleaf-$server" "^$what +$depth  farleaf-$server +($number +){3}[0-9]+ +($number +){3}$server +$number +$number$"
    done
  done
  expect "$what 64 farleaf-native" "^$what +64  farleaf-native +($number +){3}[0-9]+ +($number +){3}redis +$number +$number$"
  expect "the tree's share of $what" "^$what +64 +($number +){4}[0-9]+%$"
done
for what in ping get put; do
  for transport in "tcp, loopback" "unix socket" ring; do
    expect "$what over $transport" "^$what +$transport +($number *){6}$"
  done
done
