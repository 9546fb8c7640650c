"""Rounds of systems that ran in turns: medians, ranges, and ratios to the first system with their interval."""

import math
import statistics

# Student's t for 95 % on both sides, by degrees of freedom; beyond them 2.
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
RATIO_FIELDS = ("throughput", "cpu_us")


def turn(systems, number):
    """The order of a round: another one begins each time."""
    first = number % len(systems)
    return systems[first:] + systems[:first]


def interval_of(ratios):
    """Geometric mean of ratios and its 95 % interval, (mean, low, high); low and high are None of a single one."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    half = (T95[len(logs) - 2] if len(logs) - 2 < len(T95) else 2) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def rows_of(rounds, field):
    """rounds: name -> one list of rows a round, a row for each kind of operation. A row for each name and kind: each figure's median, the
    least and the largest throughput, and the ratios of the same round to the first name's."""
    first = next(iter(rounds))
    rows = []
    for name, of_rounds in rounds.items():
        for operation in dict.fromkeys(row["operation"] for rows_ in of_rounds for row in rows_):
            same = [[row for row in rows_ if row["operation"] == operation] for rows_ in of_rounds]
            same = [row[0] if row else None for row in same]
            there = [row for row in same if row]
            row = {field: name, "operation": operation, "rounds": len(there)}
            for key in there[0]:
                values = [one[key] for one in there if one.get(key) is not None]
                if key != "operation" and values:
                    row[key] = values[0] if isinstance(values[0], bool) else statistics.median(values)
            for key in ("throughput", "cpu_us", "p99", "p999"):
                if key in there[0]:
                    row[f"{key}_low"], row[f"{key}_high"] = min(one[key] for one in there), max(one[key] for one in there)
            if name != first:
                row |= ratios_to(rounds[first], of_rounds)
            rows.append(row)
    return rows


def ratios_to(first, other):
    found = {}
    for key in RATIO_FIELDS:
        pairs = [(b[0][key], a[0][key]) for a, b in zip(first, other) if a and b and a[0].get(key) and b[0].get(key)]
        if pairs:
            mean, low, high = interval_of([one / base for one, base in pairs])
            found |= {f"{key}_ratio": mean, f"{key}_ratio_low": low, f"{key}_ratio_high": high}
    return found
