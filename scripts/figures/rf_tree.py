#!/usr/bin/env python3
"""What scripts/figures/rf_tree.sh runs; its options are described there."""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

WORKLOADS = {"load": "Load A", "a": "Workload A", "b": "Workload B", "c": "Workload C", "d": "Workload D",
             "e": "Workload E"}
LABELS = {"tree": "RF-tree (this tree)", "uncached": "Blink-tree (no cache)", "sherman": "Sherman (verb program)"}
DISTRIBUTIONS = {"zipfian": (6, 9), "uniform": (7, 10)}
PERCENTILES = ["p50", "p99", "p999", "p9999"]


class Failed(Exception):
    pass


def names(text):
    return text.split(",")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="rf_tree.sh")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/figures/rf_tree"))
    parser.add_argument("--model", default="benchmark/models/rf_tree_paper.toml")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--records", type=int)
    parser.add_argument("--confidence", type=float)
    parser.add_argument("--operations-max", type=int)
    parser.add_argument("--systems", type=names, default=["tree", "uncached", "sherman"])
    parser.add_argument("--workloads", type=names, default=list(WORKLOADS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--plot-only", action="store_true")
    parser.add_argument("--bin", default="build/release/bin")
    options = parser.parse_args(arguments)
    defaults = ({"clients": [4, 32], "records": 20_000, "confidence": 5, "operations_max": 200_000} if options.quick
                else {"clients": [4, 16, 32, 64, 96], "records": 1_000_000, "confidence": 1,
                      "operations_max": 10_000_000})
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for workload in options.workloads:
        if workload not in WORKLOADS:
            parser.error(f"--workloads: {workload} is none of {', '.join(WORKLOADS)}")
    if not pathlib.Path(options.model).is_file():
        parser.error(f"--model: there is no file {options.model}")
    return options


def cases_of(options):
    """Load inserts every key once: the same for both distributions."""
    for workload in options.workloads:
        for distribution in DISTRIBUTIONS if workload != "load" else ["any"]:
            for system in options.systems:
                for clients in options.clients:
                    yield {"workload": workload, "distribution": distribution, "system": system,
                           "clients": clients}


def command_of(options, case):
    workload = case["workload"]
    # Every verb program holds twice the records at once; the tree's region is for 64 bytes a record.
    region = max(64, 1 << (options.records * 64 // (1 << 20)).bit_length())
    command = [f"{options.bin}/ycsb", "-P", f"benchmark/workloads/workload{'a' if workload == 'load' else workload}",
               "-p", f"recordcount={options.records}", "-p", "operationcount=20000", "-p", "maxscanlength=100",
               "--target", f"sim:{options.model}?region={region}MiB", "--threads", str(case["clients"]),
               "--phase", "load" if workload == "load" else "load,run", "--seed", str(options.seed),
               "--confidence", str(options.confidence), "--operations-max", str(options.operations_max),
               "--status-interval", "0"]
    if case["distribution"] != "any":
        command += ["-p", f"requestdistribution={case['distribution']}"]
    if case["system"] == "uncached":
        command += ["--cache", "off"]
    elif case["system"] != "tree":
        command += ["--program", case["system"]]
    return command


def run(options, case):
    name = (f"{case['workload']}.{case['distribution']}.{case['system']}.{case['clients']}.{options.records}."
            f"{options.confidence:g}.{options.seed}.json")
    path = options.out / "runs" / name
    if options.fresh or not path.exists():
        partial = path.with_suffix(".partial")
        command = command_of(options, case) + ["--json", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        partial.rename(path)
    return json.loads(path.read_text())


def rows_of(case, result):
    last_phase = list(result["phases"].values())[-1]
    for operation, one in result["operations"].items():
        yield {**case, "operation": operation, "seed": result["seed"],
               "records": result["configuration"]["record_count"],
               "throughput_mops": result["overall"]["ops_per_second"] / 1e6,
               "throughput_ci95_percent": result["overall"].get("throughput_ci95_percent"),
               "operations": result["overall"]["count"],
               **{name: one["latency_us"][name] for name in PERCENTILES},
               "round_trips": one["round_trips_per_op"], "bytes_read": one["bytes_read_per_op"],
               "bytes_written": one["bytes_written_per_op"],
               **{f"utilisation_{name}": value for name, value in last_phase["simulation"]["utilisation"].items()}}


def run_all(options):
    (options.out / "runs").mkdir(parents=True, exist_ok=True)
    cases = list(cases_of(options))
    begin, rows = time.monotonic(), [None] * len(cases)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run, options, case): i for i, case in enumerate(cases)}
        for done, future in enumerate(concurrent.futures.as_completed(running), 1):
            i = running[future]
            try:
                rows[i] = list(rows_of(cases[i], future.result()))
            except Failed:
                pool.shutdown(cancel_futures=True)
                raise
            spent = time.monotonic() - begin
            case = " ".join(str(value) for value in cases[i].values())
            ci95 = rows[i][0]["throughput_ci95_percent"]
            print(f"rf_tree: {done} of {len(cases)} runs, {spent:.0f} s, about {spent / done * (len(cases) - done):.0f} "
                  f"s left: {case}: {rows[i][0]['throughput_mops']:.2f} M ops/s"
                  + (f" +-{ci95:.2f} %" if ci95 else ""), file=sys.stderr, flush=True)
    return [row for of_case in rows for row in of_case]


def of(rows, **wanted):
    return [row for row in rows if all(row[key] in (value, "any") for key, value in wanted.items())]


def plot_throughput(plt, options, rows, distribution, figure):
    picture, axes = plt.subplots(1, len(options.workloads), figsize=(3.2 * len(options.workloads), 3), squeeze=False)
    for axis, workload in zip(axes[0], options.workloads):
        for system in options.systems:
            points = {row["clients"]: row["throughput_mops"]
                      for row in of(rows, workload=workload, distribution=distribution, system=system)}
            axis.plot(list(points), list(points.values()), marker="o", label=LABELS.get(system, system))
        axis.set_title(WORKLOADS[workload])
        axis.set_xlabel("clients")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("throughput, M ops/s")
    axes[0][0].legend(fontsize="small")
    picture.suptitle(f"Figure {figure}: throughput, {distribution} (modelled, {options.records:,} records)")
    save(plt, picture, options, f"figure{figure}_throughput_{distribution}")


def plot_latency(plt, options, rows, distribution, figure):
    clients = max(options.clients)
    picture, axes = plt.subplots(1, len(options.workloads), figsize=(3.2 * len(options.workloads), 3), squeeze=False)
    for axis, workload in zip(axes[0], options.workloads):
        shown = of(rows, workload=workload, distribution=distribution, clients=clients)
        kinds = sorted({row["operation"] for row in shown})
        for number, system in enumerate(options.systems):
            for line, operation in enumerate(kinds):
                for row in of(shown, system=system, operation=operation):
                    label = f"{LABELS.get(system, system)}, {operation.lower()}"
                    axis.plot(PERCENTILES, [row[name] for name in PERCENTILES], marker="o", color=f"C{number}",
                              linestyle=["-", "--", ":"][line % 3], label=label)
        axis.set_title(WORKLOADS[workload])
        axis.set_yscale("log")
        axis.legend(fontsize=5)
    axes[0][0].set_ylabel("latency, us")
    picture.suptitle(f"Figure {figure}: latency at {clients} clients, {distribution} (modelled, "
                     f"{options.records:,} records)")
    save(plt, picture, options, f"figure{figure}_latency_{distribution}")


def save(plt, picture, options, name):
    picture.tight_layout()
    for suffix in ("png", "svg"):
        picture.savefig(options.out / f"{name}.{suffix}", dpi=120)
    plt.close(picture)
    print(f"rf_tree: {options.out / name}.png and .svg")


def plot(options, rows):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("rf_tree: python3-matplotlib is not there: data without plots (scripts/install_packages.sh figures)",
              file=sys.stderr)
        return
    for distribution, (throughput, latency) in DISTRIBUTIONS.items():
        plot_throughput(plt, options, rows, distribution, throughput)
        plot_latency(plt, options, rows, distribution, latency)


def main(arguments):
    options = parse(arguments)
    results = options.out / "results.json"
    try:
        if options.plot_only:
            rows = json.loads(results.read_text())
        else:
            rows = run_all(options)
            results.write_text(json.dumps(rows, indent=1) + "\n")
            with open(options.out / "results.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            print(f"rf_tree: {len(rows)} rows in {options.out / 'results.csv'} and {results}")
    except (Failed, OSError) as failure:
        print(f"rf_tree: {failure}", file=sys.stderr)
        return 3
    plot(options, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
