#!/usr/bin/env bash
# Figures 6, 7, 9 and 10 of the RF-tree paper on the performance model: throughput against the number of clients (6: zipfian,
# 7: uniform) and latency percentiles at the most clients (9: zipfian, 10: uniform), for load A and workloads A to E, of the
# cached tree, the tree without cache (the paper's Blink-tree, after FG) and Sherman's verb program. Needs a build; plots
# need python3-matplotlib.
#
#   scripts/figures/rf_tree.sh [options]
#
#   --out DIR          where data and plots go (build/figures/rf_tree)
#   --model FILE       the cost model (benchmark/models/rf_tree_paper.toml)
#   --clients LIST     one thread with one operation in flight each (4,16,32,64,96)
#   --records N        key-value pairs; the paper has 10000000 (1000000)
#   --confidence P     a run goes on until its throughput's 95 % interval is within +-P % (1)
#   --operations-max N but not beyond so many operations (10000000)
#   --systems LIST     of tree, uncached and names of verb programs (tree,uncached,sherman)
#   --workloads LIST   of load,a,b,c,d,e
#   --jobs N           runs at a time (the processors)
#   --seed N           (1)
#   --quick            little of everything, for a look: 4 and 32 clients, 20000 records, +-5 %
#   --fresh            repeats runs whose results are there
#   --plot-only        plots from the data that is there
#   --bin DIR          where ycsb is (build/release/bin)
#
# A run that has its result in DIR/runs already is not repeated, so that an interrupted call goes on where it was: use --fresh
# after a change of code or model. Data: DIR/results.csv, DIR/results.json. Exit code: 0; 2: wrong arguments; 3: a run failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
case "${1:-}" in
  -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' scripts/figures/rf_tree.sh; exit 0 ;;
esac
# One that has matplotlib, if there is one.
python=python3
"$python" -c 'import matplotlib' 2>/dev/null || ! /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3
PYTHONPATH=scripts exec "$python" scripts/figures/rf_tree.py "$@"
