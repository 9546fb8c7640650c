#!/usr/bin/env python3
"""What scripts/figures/rf_tree.sh runs; its options are described there."""

import argparse
import sys

from bench import simulated_runs as runs

SCRIPT = "rf_tree"
DISTRIBUTIONS = {"zipfian": (6, 9), "uniform": (7, 10)}
LABELS = {**runs.LABELS, "tree": "RF-tree (this tree)", "uncached": "Blink-tree (no cache)", "sherman": "Sherman (verb program)"}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="rf_tree.sh")
    runs.add_options(parser, "build/figures/rf_tree", "benchmark/models/rf_tree_paper.toml")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--systems", type=runs.names, default=["tree", "uncached", "sherman"])
    parser.add_argument("--workloads", type=runs.names, default=list(runs.WORKLOADS))
    parser.add_argument("--plot-only", action="store_true")
    options = parser.parse_args(arguments)
    runs.set_defaults(parser, options, {"clients": [4, 32], "records": 20_000, "confidence": 5, "operations_max": 200_000}
                      if options.quick else {"clients": [4, 16, 32, 64, 96], "records": 1_000_000, "confidence": 1,
                                             "operations_max": 10_000_000})
    return options


def plot_throughput(plt, options, rows, distribution, figure):
    picture, axes = plt.subplots(1, len(options.workloads), figsize=(3.2 * len(options.workloads), 3), squeeze=False)
    for axis, workload in zip(axes[0], options.workloads):
        for system in options.systems:
            points = {row["clients"]: row["throughput_mops"]
                      for row in runs.of(rows, workload=workload, distribution=distribution, system=system)}
            axis.plot(list(points), list(points.values()), marker="o", label=LABELS.get(system, system))
        axis.set_title(runs.WORKLOADS[workload])
        axis.set_xlabel("clients")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("throughput, M ops/s")
    axes[0][0].legend(fontsize="small")
    picture.suptitle(f"Figure {figure}: throughput, {distribution} (modelled, {options.records:,} records)")
    runs.save(plt, picture, options, f"figure{figure}_throughput_{distribution}", SCRIPT)


def plot_latency(plt, options, rows, distribution, figure):
    clients = max(options.clients)
    picture, axes = plt.subplots(1, len(options.workloads), figsize=(3.2 * len(options.workloads), 3), squeeze=False)
    for axis, workload in zip(axes[0], options.workloads):
        shown = runs.of(rows, workload=workload, distribution=distribution, clients=clients)
        kinds = sorted({row["operation"] for row in shown})
        for number, system in enumerate(options.systems):
            for line, operation in enumerate(kinds):
                for row in runs.of(shown, system=system, operation=operation):
                    label = f"{LABELS.get(system, system)}, {operation.lower()}"
                    axis.plot(runs.PERCENTILES, [row[name] for name in runs.PERCENTILES], marker="o", color=f"C{number}",
                              linestyle=["-", "--", ":"][line % 3], label=label)
        axis.set_title(runs.WORKLOADS[workload])
        axis.set_yscale("log")
        axis.legend(fontsize=5)
    axes[0][0].set_ylabel("latency, us")
    picture.suptitle(f"Figure {figure}: latency at {clients} clients, {distribution} (modelled, "
                     f"{options.records:,} records)")
    runs.save(plt, picture, options, f"figure{figure}_latency_{distribution}", SCRIPT)


def main(arguments):
    options = parse(arguments)
    try:
        rows = runs.results_of(options, DISTRIBUTIONS, SCRIPT)
    except (runs.Failed, OSError) as failure:
        print(f"{SCRIPT}: {failure}", file=sys.stderr)
        return 3
    if plt := runs.pyplot(SCRIPT):
        for distribution, (throughput, latency) in DISTRIBUTIONS.items():
            plot_throughput(plt, options, rows, distribution, throughput)
            plot_latency(plt, options, rows, distribution, latency)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
