#!/usr/bin/env python3
"""Prints what lsm_compare.sh has measured, and writes it to DIR/summary.json.

    lsm_compare_table.py DIR TARGET...

DIR has MIX.THREADS.GROWTH.ROUND.WORKLOAD.TARGET.json. Figures are medians of the rounds; a ratio is the median of the rounds'
ratios to the first target. Device bytes are a user byte, of the phase and of what went on behind it.
"""

import json
import pathlib
import statistics
import sys


def per_user_byte(phase, name):
    user = phase["store"]["UserBytesRead"] + phase["store"]["UserBytesWritten"]
    device = phase["store"].get(name)
    if device is None or not user:
        return None
    return (device + phase.get("settle", {}).get(name, 0)) / user


def worst(phase, percentile):
    return max(one["latency_us"][percentile] for one in phase["operations"].values())


# Name, what it is of a phase, how it is printed.
FIGURES = (
    ("ops/s", lambda phase: phase["overall"]["ops_per_second"], "{:,.0f}"),
    ("CPU us/op", lambda phase: phase["overall"]["cpu_ns_per_op"] / 1000, "{:.1f}"),
    ("p50 us", lambda phase: worst(phase, "p50"), "{:,.1f}"),
    ("p99 us", lambda phase: worst(phase, "p99"), "{:,.0f}"),
    ("p99.9 us", lambda phase: worst(phase, "p999"), "{:,.0f}"),
    ("p99.99 us", lambda phase: worst(phase, "p9999"), "{:,.0f}"),
    ("stall ms", lambda phase: phase["overall"]["longest_stall_us"] / 1000, "{:.1f}"),
    ("read/byte", lambda phase: per_user_byte(phase, "DeviceBytesRead"), "{:.2f}"),
    ("written/byte", lambda phase: per_user_byte(phase, "DeviceBytesWritten"), "{:.2f}"),
    ("space", lambda phase: phase.get("settle", phase["store"])["SpaceAmplification"], "{:.2f}"),
    ("RSS MiB", lambda phase: phase["overall"]["max_rss_bytes"] / 2**20, "{:,.0f}"),
)
RATIOS = ("ops/s", "CPU us/op")


def read_runs(directory):
    """(mix, threads, growth, workload) -> target -> round -> figures."""
    groups = {}
    for path in sorted(directory.glob("*.*.*.*.*.*.json"), key=lambda path: path.stat().st_mtime_ns):
        mix, threads, growth, round_, workload, target = path.name.split(".")[:6]
        phase = list(json.loads(path.read_text(encoding="utf-8"))["phases"].values())[-1]
        figures = {name: of_phase(phase) for name, of_phase, _ in FIGURES}
        group = groups.setdefault((mix, int(threads), int(growth), workload), {})
        group.setdefault(target, {})[int(round_)] = figures
    return groups


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def summarize(group, targets):
    """For each target: the figures, and the ratios to the first."""
    first, rows = group[targets[0]], []
    for target in targets:
        rounds = group[target]
        row = {"target": target, "rounds": len(rounds)}
        for name, _, _ in FIGURES:
            row[name] = median(one[name] for one in rounds.values())
        for name in RATIOS:
            row[f"{name} ratio"] = median(one[name] / first[number][name] for number, one in rounds.items()
                                          if number in first and first[number][name])
        rows.append(row)
    return rows


def text_of(value, form):
    return "-" if value is None else form.format(value)


def main(arguments):
    if len(arguments) < 2 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    directory, targets = pathlib.Path(arguments[0]), arguments[1:]
    lines = [["mix", "threads", "growth", "workload", "store", *(name for name, _, _ in FIGURES),
              *(f"{name} ratio" for name in RATIOS)]]
    summary = []
    try:
        for (mix, threads, growth, workload), group in read_runs(directory).items():
            for row in summarize(group, targets):
                summary.append({"mix": mix, "threads": threads, "growth": growth, "workload": workload, **row})
                lines.append([mix, str(threads), str(growth), workload, row["target"],
                              *(text_of(row[name], form) for name, _, form in FIGURES),
                              *(text_of(row[f"{name} ratio"], "{:.2f}") for name in RATIOS)])
        (directory / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    except (OSError, ValueError, KeyError, IndexError, statistics.StatisticsError) as problem:
        print(f"lsm_compare_table.py: {directory}: {problem!r}", file=sys.stderr)
        return 1
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) if i < 5 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
