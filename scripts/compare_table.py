#!/usr/bin/env python3
"""Prints two kinds of runs of ycsb side by side.

    compare_table.py DIR OLD NEW

DIR has NAME.OLD.ROUND.json and NAME.NEW.ROUND.json of each name. Time is the median of the rounds; counts are of the last.
"""

import json
import pathlib
import statistics
import sys

COLUMNS = ("workload", "operation", "RT/op", "", "bytes/op", "", "p50 us", "", "p99.9 us", "", "ops/s", "", "ratio")


def phases_of(directory, name, kind):
    """Of the rounds: what was measured of the phase that ran last."""
    for path in sorted(directory.glob(f"{name}.{kind}.*.json")):
        yield list(json.loads(path.read_text(encoding="utf-8"))["phases"].values())[-1]


def bytes_of(operation):
    return operation["bytes_read_per_op"] + operation["bytes_written_per_op"]


def rows_of(directory, name, kinds):
    phases = [list(phases_of(directory, name, kind)) for kind in kinds]
    rates = [statistics.median(phase["overall"]["ops_per_second"] for phase in of_kind) for of_kind in phases]
    for operation in phases[0][-1]["operations"]:
        ones = [[phase["operations"][operation] for phase in of_kind] for of_kind in phases]

        def pair(text, figure):
            return [text.format(figure(of_kind)) for of_kind in ones]

        def median(percentile):
            return lambda rounds: statistics.median(one["latency_us"][percentile] for one in rounds)

        yield [name, operation.lower(), *pair("{:.3f}", lambda rounds: rounds[-1]["round_trips_per_op"]),
               *pair("{:,.0f}", lambda rounds: bytes_of(rounds[-1])), *pair("{:.2f}", median("p50")),
               *pair("{:.2f}", median("p999")), *(f"{rate:,.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"]


def main(arguments):
    if len(arguments) != 3 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    directory, kinds = pathlib.Path(arguments[0]), arguments[1:]
    names = dict.fromkeys(path.name.split(".")[0] for path in
                          sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns))
    try:
        rows = [COLUMNS, ["", "", *kinds * 5, f"{kinds[1]}/{kinds[0]}"]]
        for name in names:
            rows += rows_of(directory, name, kinds)
    except (OSError, ValueError, KeyError, IndexError, statistics.StatisticsError) as problem:
        print(f"compare_table.py: {directory}: {problem!r}", file=sys.stderr)
        return 1
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
