"""Runs of ycsb in virtual time, which bench.py and the scripts of scripts/figures make figures and tables of.

A run is a case: {"model", "workload", "distribution", "system", "clients"}. Its result is kept in OUT/runs, so that an interrupted
call goes on where it was.
"""

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
LABELS = {"tree": "this tree", "sorted": "its sorted leaves", "uncached": "this tree, no cache", "sherman": "Sherman", "deft": "Deft",
          "chime": "CHIME", "smart": "SMART", "rolex": "ROLEX", "dex": "DEX", "fg": "uncached B-link (FG)", "rf_tree": "RF-tree (paper)"}
# How this tree runs where it is not as it comes. Sorted leaves: as it was before its leaves had parts, read and written whole.
OPTIONS = {"tree": [], "uncached": ["--cache", "off"],
           "sorted": ["--sorted-leaves", "--share-reads", "off", "--combine-writes", "off", "--small-write-backs", "off"]}
PERCENTILES = ["p50", "p99", "p999", "p9999"]


class Failed(Exception):
    pass


def names(text):
    return text.split(",")


def add_options(parser, out, model):
    """What all of the scripts take."""
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(out))
    parser.add_argument("--model", default=model)
    parser.add_argument("--records", type=int)
    parser.add_argument("--confidence", type=float)
    parser.add_argument("--operations-max", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--bin", default="build/release/bin")


def set_defaults(parser, options, defaults):
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for workload in getattr(options, "workloads", []):
        if workload not in WORKLOADS:
            parser.error(f"--workloads: {workload} is none of {', '.join(WORKLOADS)}")
    if not pathlib.Path(options.model).is_file():
        parser.error(f"--model: there is no file {options.model}")


def cases_of(options, distributions):
    """Load has new keys only: it is the same for all distributions."""
    for workload in options.workloads:
        for distribution in distributions if workload != "load" else ["any"]:
            for system in options.systems:
                for clients in options.clients:
                    yield {"model": options.model, "workload": workload, "distribution": distribution,
                           "system": system, "clients": clients}


def command_of(options, case):
    workload = case["workload"]
    # Every verb program holds twice the records at once; the tree's regions are for 64 bytes a record, all in one.
    region = max(64, 1 << (options.records * 64 // (1 << 20)).bit_length())
    command = [f"{options.bin}/ycsb", "-P", f"benchmark/workloads/workload{'a' if workload == 'load' else workload}",
               "-p", f"recordcount={options.records}", "-p", f"operationcount={getattr(options, 'operations', 20_000)}",
               "-p", "maxscanlength=100", "--target", f"sim:{case['model']}?region={region}MiB", "--threads",
               str(case["clients"]), "--phase", "load,run", "--seed", str(options.seed),
               "--confidence", str(options.confidence), "--operations-max", str(options.operations_max),
               "--status-interval", "0"]
    if workload == "load":  # into a tree of full size: the verb programs know no other
        command += ["-p", "readproportion=0", "-p", "updateproportion=0", "-p", "insertproportion=1"]
    if case["distribution"] != "any":
        command += ["-p", f"requestdistribution={case['distribution']}"]
    program = ["--program", case.get("program", case["system"])]
    return command + OPTIONS.get(case["system"], program)


def run(options, case):
    parts = [pathlib.Path(case["model"]).stem, case["workload"], case["distribution"], case["system"], case["clients"],
             options.records, f"{options.confidence:g}", options.seed]
    path = options.out / "runs" / (".".join(str(part) for part in parts) + ".json")
    if options.fresh or not path.exists():
        partial = path.with_suffix(".partial")
        command = command_of(options, case) + ["--json", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        partial.rename(path)
    return json.loads(path.read_text())


def rows_of(case, result):
    """One for each kind of operation of the case."""
    last_phase = list(result["phases"].values())[-1]
    for operation, one in result["operations"].items():
        yield {**case, "operation": operation, "seed": result["seed"],
               "records": result["configuration"]["record_count"],
               "throughput_mops": result["overall"]["ops_per_second"] / 1e6,
               "throughput_ci95_percent": result["overall"].get("throughput_ci95_percent"),
               "operations": result["overall"]["count"],
               **{name: one["latency_us"][name] for name in PERCENTILES},
               "round_trips": one["round_trips_per_op"], "atomics": one["atomics_per_op"],
               "bytes_read": one["bytes_read_per_op"], "bytes_written": one["bytes_written_per_op"],
               **{f"utilisation_{name}": value for name, value in last_phase["simulation"]["utilisation"].items()}}


def results_of(options, distributions, script):
    """The rows to be shown: run and written, or, with --plot-only, read back."""
    if options.plot_only:
        return json.loads((options.out / "results.json").read_text())
    rows = run_all(options, list(cases_of(options, distributions)), script)
    write_data(options, rows, script)
    return rows


def run_all(options, cases, script):
    (options.out / "runs").mkdir(parents=True, exist_ok=True)
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
            case = " ".join(str(value) for value in list(cases[i].values())[1:])
            ci95 = rows[i][0]["throughput_ci95_percent"]
            print(f"{script}: {done} of {len(cases)} runs, {spent:.0f} s, about {spent / done * (len(cases) - done):.0f} "
                  f"s left: {case}: {rows[i][0]['throughput_mops']:.2f} M ops/s"
                  + (f" +-{ci95:.2f} %" if ci95 else ""), file=sys.stderr, flush=True)
    return [row for of_case in rows for row in of_case]


def write_data(options, rows, script):
    (options.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    with open(options.out / "results.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{script}: {len(rows)} rows in {options.out / 'results.csv'} and {options.out / 'results.json'}")


def of(rows, **wanted):
    return [row for row in rows if all(row[key] in (value, "any") for key, value in wanted.items())]


def pyplot(script):
    """matplotlib's, or None where it is not there."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print(f"{script}: python3-matplotlib is not there: data without plots (scripts/install_packages.sh figures)",
              file=sys.stderr)
        return None
    return plt


def save(plt, picture, options, name, script):
    picture.tight_layout()
    for suffix in ("png", "svg"):
        picture.savefig(options.out / f"{name}.{suffix}", dpi=120)
    plt.close(picture)
    print(f"{script}: {options.out / name}.png and .svg")
