#!/usr/bin/env bash
# Compares what the performance model predicts with what is measured, on fabrics that this machine has.
#
# shm: shared memory behind a delay (local:?delay_us=N). A calibration measures what steps cost the CPU, at no delay; from that alone
#   the model predicts the throughput of gets and of updates at several delays and numbers in flight, which are then measured. The
#   clock of both is the process's CPU time, so that a busy machine does little harm.
# tcp: a memory server on loopback, one operation in flight. verb_bench measures the median latency of a READ of a leaf and of a
#   WRITE of an update's size in the same run; from that and the calibration the model predicts the median latency of gets and of updates.
#   With more in flight a system call is shared by all that a turn posts, which the model does not know; so that is not compared.
#
# Needs a build; takes a minute or two.
#
#   scripts/model_check.sh [options]
#
#   --records N        keys in the tree (20000)
#   --operations N     of each measurement (20000)
#   --rounds N         how often each is measured, in turns; the fastest counts (7)
#   --fabrics LIST     of shm,tcp (shm,tcp)
#   --delays LIST      shm: in us, of a round trip (5,20)
#   --in-flight LIST   shm: operations in flight on the one thread (1,8,32)
#   --clock cpu|wall   shm: wall: for an idle machine; reading it costs the calls less (cpu)
#   --within PERCENT   exit code 1 if a prediction is further from the measurement (20)
#   --json FILE        calibration, predictions and measurements
#   --bin DIR          where the programs are (build/release/bin)
#
# Exit code: 0; 1: a prediction is too far off; 2: wrong arguments; 3: a measurement failed.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' scripts/model_check.sh; exit 0 ;;
esac
exec python3 scripts/model_check.py "$@"
