#!/usr/bin/env bash
# A rack on the performance model: 10 memory servers, 10 compute servers, 640 clients. Tables and plots of throughput and latency
# percentiles for load A (inserts into a tree of full size) and workloads A to E, zipfian (0.99) and uniform, of this tree (its own
# code), of the verb programs of the indexes it is compared with, of the uncached tree's and of the RF-tree's as its paper tells it.
# Needs a build; plots need python3-matplotlib.
#
#   scripts/figures/rack.sh [options]
#
#   --out DIR          where data, table and plots go (build/figures/rack)
#   --model FILE       the cost model (benchmark/models/rack.toml)
#   --clients N        one thread with one operation in flight each, spread over the compute servers (640)
#   --records N        key-value pairs (2000000)
#   --confidence P     a run goes on until its throughput's 95 % interval is within +-P % (2)
#   --operations N     but for so many operations at least (200000)
#   --operations-max N and not beyond so many (20000000)
#   --systems LIST     of tree, sorted (its sorted leaves, neither READs nor writes shared), uncached and names of verb programs
#                      (tree,sorted,sherman,deft,chime,smart,rolex,dex,fg,rf_tree)
#   --workloads LIST   of load,a,b,c,d,e
#   --distributions LIST  of zipfian,uniform
#   --jobs N           runs at a time (the processors)
#   --seed N           (1)
#   --quick            little of everything, for a look: 64 clients, 20000 records, +-10 %
#   --fresh            repeats runs whose results are there
#   --plot-only        table and plots from the data that is there
#   --bin DIR          where ycsb is (build/release/bin)
#
# A run that has its result in DIR/runs already is not repeated, so that an interrupted call goes on where it was: use --fresh
# after a change of code, model or program. Data: DIR/results.csv, DIR/results.json, DIR/table.md (everything), DIR/summary.md (what
# benchmark/models/README.md shows: throughputs, latencies, and where the tree is not ahead of one that does not own leaves). Exit
# code: 0; 2: wrong arguments; 3: a run failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
case "${1:-}" in
  -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' scripts/figures/rack.sh; exit 0 ;;
esac
# One that has matplotlib, if there is one.
python=python3
"$python" -c 'import matplotlib' 2>/dev/null || ! /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3
PYTHONPATH=scripts exec "$python" scripts/figures/rack.py "$@"
