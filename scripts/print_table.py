#!/usr/bin/env python3
"""Prints the results of several ycsb runs as one table.

    print_table.py NAME=FILE[:PHASE]...

FILE is what `ycsb --json FILE` wrote; PHASE is load or run (default: run). One line an operation kind.
"""

import json
import sys

COLUMNS = ("workload", "ops/s", "operation", "share", "p50 us", "p99 us", "p99.9 us",
           "RT/op", "B read/op", "B written/op")


def number(value, digits=1):
    """Thousands are set apart; a missing figure is a dash."""
    return "-" if value is None else f"{value:,.{digits}f}"


def rows_of(name, phase):
    overall = phase["overall"]
    first = True
    for kind, stats in phase["operations"].items():
        latency = stats["latency_us"]
        share = stats["count"] / max(overall["count"], 1)
        yield (name if first else "",
               number(overall["ops_per_second"], 0) if first else "",
               kind, f"{share:.0%}",
               number(latency["p50"], 2), number(latency["p99"], 2), number(latency["p999"], 2),
               number(stats.get("round_trips_per_op"), 3),
               number(stats.get("bytes_read_per_op"), 0),
               number(stats.get("bytes_written_per_op"), 0))
        first = False


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    rows = [COLUMNS]
    for argument in arguments:
        name, separator, source = argument.partition("=")
        path, _, phase = source.partition(":")
        if not separator or not path:
            print(f"print_table.py: '{argument}' is not NAME=FILE[:PHASE]", file=sys.stderr)
            return 2
        try:
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
            rows.extend(rows_of(name, result["phases"][phase or "run"]))
        except (OSError, ValueError, KeyError) as problem:
            print(f"print_table.py: {path}: {problem!r}", file=sys.stderr)
            return 1
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) if i in (0, 2) else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
