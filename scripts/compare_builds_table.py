#!/usr/bin/env python3
"""Prints runs of ycsb by two builds side by side, as compare_builds.sh leaves them.

    compare_builds_table.py DIR                 the table of DIR's WORKLOAD.before|after.ROUND.json
    compare_builds_table.py --records FILE N    how many records there are behind a run, which began with N
"""

import json
import math
import pathlib
import statistics
import sys

COLUMNS = ("workload", "rounds", "RT/op", "", "bytes/op", "", "best ns/op", "", "ratio of ops/s", "least", "largest")


def phase_of(path):
    """What was measured of the phase that ran last."""
    name, phase = list(json.loads(path.read_text(encoding="utf-8"))["phases"].items())[-1]
    return name, phase


def records_behind(path, records):
    name, phase = phase_of(path)
    inserts = phase["operations"].get("INSERT", {}).get("count", 0)
    return records if name == "load" else records + inserts


def per_operation(phase, figure):
    """Mean over all operations of the phase, whatever their kind."""
    operations = phase["operations"].values()
    return sum(figure(one) * one["count"] for one in operations) / sum(one["count"] for one in operations)


def row_of(directory, name):
    kinds = [[phase_of(path)[1] for path in sorted(directory.glob(f"{name}.{kind}.*.json"))] for kind in ("before", "after")]
    costs = [[1e9 / phase["overall"]["ops_per_second"] for phase in of_kind] for of_kind in kinds]
    ratios = [before / after for before, after in zip(*costs)]
    mean = math.exp(statistics.mean(math.log(ratio) for ratio in ratios))
    row = [name, str(len(ratios))]
    row += [f"{per_operation(of_kind[-1], lambda one: one['round_trips_per_op']):.3f}" for of_kind in kinds]
    row += [f"{per_operation(of_kind[-1], lambda one: one['bytes_read_per_op'] + one['bytes_written_per_op']):,.0f}"
            for of_kind in kinds]
    row += [f"{min(cost):,.0f}" for cost in costs]
    return row + [f"{mean:.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}"]


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--records":
        print(records_behind(pathlib.Path(arguments[1]), int(arguments[2])))
        return 0
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    directory = pathlib.Path(arguments[0])
    names = dict.fromkeys(path.name.split(".")[0] for path in
                          sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns))
    rows = [COLUMNS, ["", "", *["before", "after"] * 3, "after/before", "", ""]]
    try:
        rows += [row_of(directory, name) for name in names]
    except (OSError, ValueError, KeyError, IndexError, statistics.StatisticsError) as problem:
        print(f"compare_builds_table.py: {directory}: {problem!r}", file=sys.stderr)
        return 1
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
