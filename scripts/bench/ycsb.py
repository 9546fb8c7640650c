"""Runs of the program ycsb on a host: its command, and what its JSON says as rows."""

import itertools
import json
import re

from bench import REPOSITORY, Failed, Skipped

PERCENTILES = ("p50", "p95", "p99", "p999", "p9999")
TIMEOUT_S = 900
run_numbers = itertools.count()


def properties(workload):
    """Of one of benchmark/workloads, as -p options, so that a host needs no file of it. "load" is inserts into what is there."""
    path = REPOSITORY / "benchmark" / "workloads" / f"workload{'a' if workload == 'load' else workload}"
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {key: value for key, value in values.items() if key not in ("recordcount", "operationcount", "workload")}


def command(host, target, workload, values, options):
    """values: properties beside the workload's own; options: of ycsb, each a name and a value (None: a flag)."""
    argv = [host.program("ycsb"), "--target", target, "--status-interval", "0"]
    for key, value in (properties(workload) | values).items():
        argv += ["-p", f"{key}={value}"]
    for name, value in options.items():
        argv += [f"--{name}"] if value is None else [f"--{name}", str(value)]
    return argv


def run(host, directory, target, workload, values, options):
    """The JSON of a run."""
    return run_all([(host, directory, target, workload, values, options)])[0]


def run_all(runs):
    """The JSON of runs that go on at a time."""
    started = []
    try:
        for host, directory, target, workload, values, options in runs:
            number = next(run_numbers)
            path = f"{directory}/ycsb-{number}.json"
            argv = command(host, target, workload, values, {**options, "json": path})
            started.append((host, path, host.start(f"ycsb-{number}", argv, directory), argv))
        for host, _, process, argv in started:
            try:
                code = process.process.wait(timeout=TIMEOUT_S)
            except Exception as problem:
                raise Failed(f"{' '.join(argv)} did not end within {TIMEOUT_S} s") from problem
            if code != 0:
                log = host.run(["tail", "-n", "3", process.log]).stdout.strip()
                raise Failed(f"{' '.join(argv)}: exit code {code}: {log}")
        return [json.loads(host.read(path)) for host, path, _, _ in started]
    finally:
        for _, _, process, _ in started:
            process.stop()


def merged(host, directory, results):
    """The results of processes that ran at a time as one, percentiles of all operations together, where ycsb can (`ycsb merge`); else as
    they are."""
    if len(results) < 2 or "ycsb merge" not in host.run([host.program("ycsb"), "--help"]).stdout:
        return results
    files = [f"{directory}/merge-{next(run_numbers)}.json" for _ in results]
    for path, result in zip(files, results):
        host.write(path, json.dumps(result))
    host.output([host.program("ycsb"), "merge", f"{directory}/merged.json", *files])
    return [json.loads(host.read(f"{directory}/merged.json"))]


def phase_of(result, name="run"):
    phase = result["phases"][name]
    if phase["overall"].get("problems"):
        raise Failed("; ".join(map(str, phase["overall"]["problems"])))
    return phase


def rows_of(phases):
    """One row for each kind of operation, of one phase, or of the same phase of processes that ran at a time: their throughputs' sum, counts
    and CPU time by the operations, and of each percentile the largest (that of all together is not above it)."""
    total = sum(phase["overall"]["count"] for phase in phases)
    common = {"throughput": sum(phase["overall"]["ops_per_second"] for phase in phases),
              "cpu_us": sum(phase["overall"]["cpu_ns_per_op"] * phase["overall"]["count"] for phase in phases) / max(total, 1) / 1000,
              "count": total}
    stalls = [phase["overall"]["longest_stall_us"] / 1000 for phase in phases if "longest_stall_us" in phase["overall"]]
    common |= {"stall_ms": max(stalls)} if stalls else {}
    kinds = list(dict.fromkeys(kind for phase in phases for kind in phase["operations"]))
    for kind in kinds:
        parts = [phase["operations"][kind] for phase in phases if kind in phase["operations"]]
        count = sum(part["count"] for part in parts)
        row = {**common, "operation": kind, "share": count / max(total, 1), "first": kind == kinds[0], "main": count >= 0.4 * total}
        row |= {name: max(part["latency_us"][name] for part in parts) for name in PERCENTILES}
        for field, name in (("round_trips_per_op", "round_trips"), ("atomics_per_op", "atomics"), ("bytes_read_per_op", "bytes_read"),
                            ("bytes_written_per_op", "bytes_written")):
            if all(field in part for part in parts):
                row[name] = sum(part[field] * part["count"] for part in parts) / max(count, 1)
        yield row


def require_target(host, scheme):
    """Skips where this ycsb does not know it; pool:memcached:// is another one."""
    if not re.search(rf"(?<![\w:+]){re.escape(scheme)}", host.run([host.program("ycsb"), "--help"]).stdout):
        raise Skipped(f"this ycsb knows no target {scheme}")


def require_option(host, option):
    if option not in host.run([host.program("ycsb"), "--help"]).stdout:
        raise Skipped(f"this ycsb has no {option}")
