#!/usr/bin/env python3
"""Prints what lsm_compare.sh has measured, and writes it to DIR/summary.json.

    lsm_compare_table.py DIR TARGET...

DIR has MIX.THREADS.GROWTH.ROUND.WORKLOAD.TARGET.json. Figures are medians of the rounds; a ratio is the median of the rounds'
ratios to the first target. Device bytes are a user byte, of the phase and of what went on behind it.

Where there is more than one number of threads or growth factor, a second table has the last target beside each of the others, for each mix and
workload: the ratio of throughputs in each setting (THREADS/GROWTH), the last target's best setting beside the other's best one, and the
range of the settings' ratios of CPU time, of device bytes written and read, and of the longest stalls.
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
RANGES = (("CPU us/op", "CPU"), ("written/byte", "written"), ("read/byte", "read"), ("p99.9 us", "p99.9"), ("stall ms", "stall"))


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


def range_of(pairs):
    """From the least to the largest ratio, of those that there are."""
    ratios = sorted(one / other for one, other in pairs if one is not None and other)
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "-"


def settings_table(summary, targets):
    """A line for each mix, workload and other target: the last target's ratios to it by setting."""
    settings = sorted({(row["threads"], row["growth"]) for row in summary})
    figures = {(row["mix"], row["workload"], row["target"], (row["threads"], row["growth"])): row for row in summary}
    cases = list(dict.fromkeys((row["mix"], row["workload"]) for row in summary))
    lines = [["mix", "workload", "beside", *(f"{threads}/{growth}" for threads, growth in settings), "best",
              *(f"{name} x" for _, name in RANGES)]]
    for mix, workload in cases:
        for rival in targets[:-1]:
            pairs = {setting: (figures[mix, workload, targets[-1], setting], figures[mix, workload, rival, setting])
                     for setting in settings if (mix, workload, rival, setting) in figures}
            best = [max(pair[i]["ops/s"] for pair in pairs.values()) for i in (0, 1)]
            lines.append([mix, workload, rival,
                          *(f"{pairs[setting][0]['ops/s'] / pairs[setting][1]['ops/s']:.2f}" if setting in pairs else "-"
                            for setting in settings), f"{best[0] / best[1]:.2f}",
                          *(range_of((one[figure], other[figure]) for one, other in pairs.values()) for figure, _ in RANGES)])
    return lines


def print_table(lines, words):
    """The first `words` columns are of words, the others of numbers."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) if i < words else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))).rstrip())


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
    print_table(lines, 5)
    if len(targets) > 1 and len({(row["threads"], row["growth"]) for row in summary}) > 1:
        print()
        print_table(settings_table(summary, targets), 3)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
