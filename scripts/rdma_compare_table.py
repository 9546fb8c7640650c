#!/usr/bin/env python3
"""Prints what scripts/rdma_compare.sh has measured: theirs (perftest), ours, and the ratio.

    rdma_compare_table.py [--check] [--latency-ratio-max X] [--rate-ratio-min X] [--json FILE]
                          [--set NAME=VALUE]... INDEX

A line of INDEX names the files of one round: `ROW latency|rate ROUND [theirs=FILE] LOOP=FILE...`. Theirs is
the text that a perftest program printed, ours what `verb_bench --json` wrote. Latencies are medians of
one measurement, in us; rates are in thousands of verbs a second. --set adds to the JSON's configuration.
Exit code: 0; 1: with --check, a bound does not hold; 2: wrong arguments; 3: a file is not as expected.
"""

import argparse
import json
import re
import statistics
import sys

COLUMN = re.compile(r"#\w+|[\d.]+% percentile\[\w+\]|BW \w+\[[^\]]+\]|\w+\[\w+\]")
UNITS = {"latency": "us", "rate": "k/s"}


class Failure(Exception):
    """What was wrong with which file."""


def perftest_columns(path):
    """The first line of figures that a perftest program printed, by the names of its columns."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file]
    for number, line in enumerate(lines):
        if not line.startswith("#bytes"):
            continue
        names = COLUMN.findall(line)
        values = lines[number + 1].split() if number + 1 < len(lines) else []
        if len(names) != len(values):
            raise Failure(f"{path}: {len(names)} columns ({', '.join(names)}), but figures '{' '.join(values)}'")
        return dict(zip(names, values))
    raise Failure(f"{path}: no line of columns (#bytes ...) in it")


def their_figure(kind, path):
    columns = perftest_columns(path)
    name, scale = ("t_typical[usec]", 1) if kind == "latency" else ("MsgRate[Mpps]", 1000)
    try:
        value = float(columns[name]) * scale
    except (KeyError, ValueError) as problem:
        raise Failure(f"{path}: no figure {name}: {problem!r}") from problem
    if value <= 0:
        raise Failure(f"{path}: {name} is {value}: more iterations are needed")
    return value


def our_figure(kind, path):
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        return result["latency_us"]["p50"] if kind == "latency" else result["verbs_per_second"] / 1000
    except (ValueError, KeyError, TypeError) as problem:
        raise Failure(f"{path}: {problem!r}") from problem


def read_index(path):
    """{(row, loop): {"kind", "theirs": [..], "ours": [..]}} in the order of the index."""
    series = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            row, kind, _, *sources = line.split()
            if kind not in UNITS:
                raise Failure(f"{path}: '{kind}' is neither latency nor rate")
            files = dict(source.split("=", 1) for source in sources)
            theirs = files.pop("theirs", None)
            for loop, ours in files.items():
                entry = series.setdefault((row, loop), {"kind": kind, "theirs": [], "ours": []})
                entry["ours"].append(our_figure(kind, ours))
                if theirs is not None:
                    entry["theirs"].append(their_figure(kind, theirs))
    return series


def summary(row, loop, entry, options):
    kind, theirs, ours = entry["kind"], entry["theirs"], entry["ours"]
    result = {"row": row, "loop": loop, "kind": kind, "unit": UNITS[kind], "ours": ours,
              "ours_median": statistics.median(ours)}
    if theirs:
        ratios = [our / their for our, their in zip(ours, theirs)]
        ratio = statistics.median(ratios)
        bound = options.latency_ratio_max if kind == "latency" else options.rate_ratio_min
        result |= {"theirs": theirs, "theirs_median": statistics.median(theirs), "ratios": ratios,
                   "ratio": ratio, "bound": bound,
                   "holds": ratio <= bound if kind == "latency" else ratio >= bound}
    return result


def cells(result, check):
    line = [result["row"], result["loop"], result["unit"]]
    line.append(f"{result['theirs_median']:.2f}" if "theirs" in result else "-")
    line.append(f"{result['ours_median']:.2f}")
    if "theirs" in result:
        line += [f"{result['ratio']:.2f}", f"{min(result['ratios']):.2f}..{max(result['ratios']):.2f}"]
        sign = "<=" if result["kind"] == "latency" else ">="
        line.append(f"{sign} {result['bound']:g}: {'yes' if result['holds'] else 'NO'}" if check else "")
    else:
        line += ["-", "-", ""]
    return line


def print_table(results, check):
    rows = [["verb", "ours by", "unit", "theirs", "ours", "ratio", "of rounds", "bound" if check else ""]]
    rows += [cells(result, check) for result in results]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        padded = [cell.ljust(width) if i in (0, 1, 2, 7) else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(padded).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--latency-ratio-max", type=float, default=1.3)
    parser.add_argument("--rate-ratio-min", type=float, default=0.7)
    parser.add_argument("--json")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("index")
    options = parser.parse_args()
    try:
        series = read_index(options.index)
        if not series:
            raise Failure(f"{options.index}: nothing was measured")
        results = [summary(row, loop, entry, options) for (row, loop), entry in series.items()]
        if options.check and not all("ratio" in result for result in results):
            raise Failure("--check: there is nothing of theirs to compare with")
        print_table(results, options.check)
        if options.json:
            pairs = (setting.split("=", 1) for setting in options.set)
            configuration = {name: int(value) if value.isdigit() else value for name, value in pairs}
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"configuration": configuration, "rows": results}, file, indent=2)
                file.write("\n")
    except (Failure, OSError, ValueError) as problem:
        print(f"rdma_compare_table.py: {problem}", file=sys.stderr)
        return 3
    return 0 if not options.check or all(result["holds"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
