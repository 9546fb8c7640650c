#!/usr/bin/env python3
"""What scripts/figures/rack.sh runs; its options are described there."""

import argparse
import sys

from bench import simulated_runs as runs

SCRIPT = "rack"
DISTRIBUTIONS = ["zipfian", "uniform"]
SYSTEMS = ["tree", "sorted", "sherman", "deft", "chime", "smart", "rolex", "dex", "fg", "rf_tree"]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="rack.sh")
    runs.add_options(parser, "build/figures/rack", "benchmark/models/rack.toml")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--operations", type=int)
    parser.add_argument("--systems", type=runs.names, default=SYSTEMS)
    parser.add_argument("--workloads", type=runs.names, default=list(runs.WORKLOADS))
    parser.add_argument("--distributions", type=runs.names, default=DISTRIBUTIONS)
    parser.add_argument("--plot-only", action="store_true")
    options = parser.parse_args(arguments)
    runs.set_defaults(parser, options, {"clients": 64, "records": 20_000, "confidence": 10, "operations": 20_000,
                                        "operations_max": 100_000}
                      if options.quick else {"clients": 640, "records": 2_000_000, "confidence": 2, "operations": 200_000,
                                             "operations_max": 20_000_000})
    options.clients = [options.clients]
    return options


def table_of(options, rows):
    """Markdown: a line for each workload, distribution, system and kind of operation."""
    lines = [f"{options.clients[0]} clients, {rows[0]['records']:,} records, {options.model}, seed {options.seed}; latencies in us", "",
             "| workload | keys | system | M ops/s | +-% | operation | round trips | p50 | p99 | p99.9 | p99.99 |",
             "|---|---|---|---:|---:|---|---:|---:|---:|---:|---:|"]
    seen = None
    for row in rows:
        case = (row["workload"], row["distribution"], row["system"])
        throughput = (f"{row['throughput_mops']:.2f}",
                      f"{row['throughput_ci95_percent']:.1f}" if row["throughput_ci95_percent"] else "")
        shown = [*case[:2], runs.LABELS.get(case[2], case[2]), *throughput] if case != seen else [""] * 5
        seen = case
        cells = [*shown, row["operation"].lower(), f"{row['round_trips']:.2f}",
                 *(f"{row[name]:,.1f}" for name in runs.PERCENTILES)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# What the latency tables of the summary show: workload, keys, operation.
SUMMARY_LATENCIES = [
    [(workload, keys, "READ") for workload in "ab" for keys in ("zipfian", "uniform")],
    [(workload, keys, "READ") for workload in "cd" for keys in ("zipfian", "uniform")],
    [(workload, keys, "UPDATE") for workload in "ab" for keys in ("zipfian", "uniform")],
    [("load", "any", "INSERT"), *((workload, keys, "INSERT") for workload in "de" for keys in ("zipfian", "uniform"))],
    [("e", "zipfian", "SCAN"), ("e", "uniform", "SCAN")]]
# Whom the tree is compared with: not those that own leaves, nor itself.
NOT_COMPARED = {"tree", "sorted", "uncached", "dex"}


def figure(value):
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def row_of(rows, system, workload, distribution, operation=None):
    found = [row for row in runs.of(rows, system=system, workload=workload, distribution=distribution)
             if operation in (None, row["operation"])]
    return found[0] if found else None


def throughputs_of(options, rows):
    """Markdown: a line for each system, throughput of each workload."""
    lines = [f"| M ops/s, {' / '.join(options.distributions)} | " + " | ".join(options.workloads) + " |", "|---|" + "---:|" * len(options.workloads)]
    for system in options.systems:
        cells = []
        for workload in options.workloads:
            pair = [row_of(rows, system, workload, distribution) for distribution in options.distributions]
            cells.append(" / ".join(dict.fromkeys(figure(row["throughput_mops"]) if row else "-" for row in pair)))
        lines.append(f"| {runs.LABELS.get(system, system)} | " + " | ".join(cells) + " |")
    return lines


def name_of(workload, keys, operation):
    return " ".join(part for part in (workload, keys if keys != "any" else "") if part) + f", {operation.lower()}"


def latencies_of(options, rows, cases):
    """Markdown: a line for each system, latencies of each case."""
    shown = [case for case in cases if case[0] in options.workloads]
    if not shown:
        return []
    lines = ["", "| us: p50 / p99 / p99.9 / p99.99 | " + " | ".join(name_of(*case) for case in shown) + " |",
             "|---|" + "---:|" * len(shown)]
    for system in options.systems:
        cells = []
        for case in shown:
            row = row_of(rows, system, *case)
            cells.append(" / ".join(figure(row[name]) for name in runs.PERCENTILES) if row else "-")
        lines.append(f"| {runs.LABELS.get(system, system)} | " + " | ".join(cells) + " |")
    return lines


def ahead_of_tree(options, rows):
    """Markdown: where a system that does not own its leaves is ahead of the tree, by what is shown of the figures."""
    compared = [system for system in options.systems if system not in NOT_COMPARED]
    of_tree = [row for row in rows if row["system"] == "tree"]
    one_a_run = {(row["workload"], row["distribution"]): row for row in reversed(of_tree)}
    lines = ["", "| | this tree | ahead of it |", "|---|---:|---|"]
    for name, field, sign, shown in (("M ops/s", "throughput_mops", -1, reversed(one_a_run.values())), ("p99.9, us", "p999", 1, of_tree)):
        for row in shown:
            case = (row["workload"], row["distribution"], row["operation"])
            others = [row_of(rows, system, *case) for system in compared]
            ahead = sorted((sign * other[field], other["system"]) for other in others
                           if other and sign * other[field] < sign * row[field] and figure(other[field]) != figure(row[field]))
            named = ", ".join(f"{runs.LABELS.get(system, system)} {figure(abs(value))}" for value, system in ahead)
            if named:
                of = name_of(*case) if field == "p999" else name_of(*case).split(",")[0]
                lines.append(f"| {name}: {of} | {figure(row[field])} | {named} |")
    return lines


def summary_of(options, rows):
    """Markdown: throughputs, latencies, and where the tree is not ahead."""
    lines = throughputs_of(options, rows)
    for cases in SUMMARY_LATENCIES:
        lines += latencies_of(options, rows, cases)
    return "\n".join(lines + ahead_of_tree(options, rows)) + "\n"


def plot(plt, options, rows, distribution):
    shape = {"figsize": (3.2 * len(options.workloads), 6), "squeeze": False, "sharex": False}
    picture, axes = plt.subplots(2, len(options.workloads), **shape)
    for column, workload in enumerate(options.workloads):
        shown = runs.of(rows, workload=workload, distribution=distribution)
        places = {system: place for place, system in enumerate(options.systems)}
        above, below = axes[0][column], axes[1][column]
        for system, place in places.items():
            of_system = runs.of(shown, system=system)
            above.bar(place, of_system[0]["throughput_mops"], color=f"C{place % 10}")
            # The operation that takes longest: a write, where there are any.
            slowest = max(of_system, key=lambda row: row["p9999"])
            below.plot(runs.PERCENTILES, [slowest[name] for name in runs.PERCENTILES], marker="o", color=f"C{place % 10}",
                       label=f"{runs.LABELS.get(system, system)}, {slowest['operation'].lower()}")
        above.set_xticks(list(places.values()), [runs.LABELS.get(system, system) for system in places], rotation=90, fontsize=7)
        above.set_title(runs.WORKLOADS[workload])
        below.set_yscale("log")
        below.legend(fontsize=5)
    axes[0][0].set_ylabel("throughput, M ops/s")
    axes[1][0].set_ylabel("latency, us")
    picture.suptitle(f"{options.clients[0]} clients, {distribution} (modelled: {options.model}, {options.records:,} records)")
    runs.save(plt, picture, options, f"rack_{distribution}", SCRIPT)


def main(arguments):
    options = parse(arguments)
    try:
        rows = runs.results_of(options, options.distributions, SCRIPT)
    except (runs.Failed, OSError) as failure:
        print(f"{SCRIPT}: {failure}", file=sys.stderr)
        return 3
    table, summary = table_of(options, rows), summary_of(options, rows)
    (options.out / "table.md").write_text(table)
    (options.out / "summary.md").write_text(summary)
    print(table + "\n" + summary, end="")
    if plt := runs.pyplot(SCRIPT):
        for distribution in options.distributions:
            plot(plt, options, rows, distribution)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
