#!/usr/bin/env bash
# How much hangs on parameters of the performance model whose sources leave them open: runs it with each of them at both ends of what
# it may be (benchmark/models/bounds.toml), one at a time and a whole table at once, and prints what becomes of the results: throughput
# of the tree in M ops/s, and its ratio to the uncached tree (FG) and to Sherman. Needs a build.
#
#   scripts/figures/bounds.sh [options]
#
#   --out DIR          where data, models and table go (build/figures/bounds)
#   --model FILE       the cost model (benchmark/models/rf_tree_paper.toml)
#   --bounds FILE      (benchmark/models/bounds.toml)
#   --parameters LIST  only these, by name without their table
#   --clients N        (96)
#   --records N        key-value pairs (200000)
#   --confidence P     a run goes on until its throughput's 95 % interval is within +-P % (2)
#   --operations-max N but not beyond so many operations (4000000)
#   --jobs N           runs at a time (the processors)
#   --seed N           (1)
#   --quick            little of everything, for a look: 20000 records, +-10 %
#   --fresh            repeats runs whose results are there
#   --bin DIR          where ycsb is (build/release/bin)
#
# A run that has its result in DIR/runs already is not repeated: use --fresh after a change of code, model or program. Data:
# DIR/results.csv, DIR/results.json, DIR/table.md. Exit code: 0; 2: wrong arguments; 3: a run failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
case "${1:-}" in
  -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' scripts/figures/bounds.sh; exit 0 ;;
esac
PYTHONPATH=scripts exec python3 scripts/figures/bounds.py "$@"
