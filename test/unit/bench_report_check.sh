#!/usr/bin/env bash
# The whole chain of bench.py with tiny data, and the page looked at in a headless browser: bench_report_check.sh BIN OUT.
# What is modelled is the same in a second run, and a plot of JSON alone is the same as before. Exit code 77 where matplotlib or
# chromium is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$1 out=$2
python3 -c 'import matplotlib' 2>/dev/null || /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || exit 77
rm -rf "$out"
scripts/bench.py --tiny --bin "$bin" --out "$out" report
cp "$out/rf_tree.json" "$out/before.json"
scripts/bench.py --tiny --bin "$bin" --out "$out" --only rf_tree --fresh run
python3 - "$out/before.json" "$out/rf_tree.json" <<'END'
import json
import sys

one, other = ({key: value for key, value in json.load(open(path)).items() if key != "run"} for path in sys.argv[1:])
assert one == other, "two runs with one seed in virtual time differ"
END
exec scripts/bench/check_report.py "$out"
