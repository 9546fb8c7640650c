#!/usr/bin/env python3
"""What scripts/model_check.sh runs; its options are described there."""

import argparse
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

OPERATIONS = {"get": ("readproportion=1", "updateproportion=0"),
              "update": ("readproportion=0", "updateproportion=1")}
READ_BYTES, WRITE_BYTES = 1016, 1136  # of a leaf, and of an update's write-back

VERBS = {"read": READ_BYTES, "write": WRITE_BYTES}  # what verb_bench measures of tcp: a round trip of each

# At no delay, so many operations in flight keep the thread busy as it is when delays are hidden: one turn of its loop
# then finds several batches due, as it will there.
CALIBRATION_IN_FLIGHT = 8

MODEL = """
[machine]
memory_servers = {memory_servers}
compute_servers = 1
shared_hosts = 0
cores = 1
[latency]
request_ns = {delay_ns}
wire_ns = 0
read_ns = {read_ns}
write_ns = {write_ns}
atomic_ns = 0
device_atomic_ns = 0
reply_ns = 0
jitter_ns_max = 0
[nic]
request_rate_mps = 1e6
read_rate_mps = 1e6
write_rate_mps = 1e6
atomic_rate_mps = 1e6
atomic_slot_bits = 48
bandwidth_gbps = 1e6
header_bytes = 0
device_memory_bytes = 0
[cpu]
operation_ns = {operation_ns}
post_ns = 0
verb_ns = 0
complete_ns = {complete_ns}
read_byte_ns = {read_byte_ns}
write_byte_ns = {write_byte_ns}
handover_ns = 0
"""


class Failed(Exception):
    pass


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="model_check.sh")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fabrics", type=lambda text: text.split(","), default=["shm", "tcp"])
    parser.add_argument("--delays", type=numbers, default=[5, 20])
    parser.add_argument("--in-flight", type=numbers, default=[1, 8, 32])
    parser.add_argument("--within", type=float, default=20)
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    parser.add_argument("--json")
    parser.add_argument("--bin", default="build/release/bin")
    options = parser.parse_args(arguments)
    for fabric in options.fabrics:
        if fabric not in ("shm", "tcp"):
            parser.error(f"--fabrics: {fabric} is neither shm nor tcp")
    return options


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TcpPool:
    """One memory server on loopback, so that it and the client have a processor each where there are two."""

    def __init__(self, bench):
        self.bench, self.file, self.log = bench, bench.folder / "pool", bench.folder / "memory_server.log"

    def __enter__(self):
        port = free_port()
        self.file.write_text(f"cluster model_check\n0 tcp:127.0.0.1:{port}\n")
        with open(self.log, "w", encoding="utf-8") as log:
            self.server = subprocess.Popen(
                [f"{self.bench.options.bin}/memory_server", "--bootstrap", f"file:{self.file}", "--fabric", "tcp", "--listen",
                 f"127.0.0.1:{port}", "--size", "256MiB"], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while " serves " not in self.log.read_text():
            if self.server.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise Failed(f"memory_server does not start: {self.log.read_text().strip()}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        if self.server.poll() is None:
            self.server.terminate()
        self.server.wait()

    def verb(self, verb):
        """Median latency of one batch at a time, in us."""
        result = self.bench.folder / "verb.json"
        self.bench.run([f"{self.bench.options.bin}/verb_bench", "--bootstrap", f"file:{self.file}", "--loop", "worker", "--verb",
                        verb, "--bytes", str(VERBS[verb]), "--operations", str(self.bench.options.operations), "--json",
                        str(result)])
        return json.loads(result.read_text())["latency_us"]["p50"]

    def median(self, operation, phase="run"):
        run = self.bench.ycsb(operation, f"pool:file:{self.file}", 1 if phase == "run" else 32,
                              ("--warmup", str(self.bench.options.records // 4)) if phase == "run" else (), phase)
        return median_of(run)


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.runs = 0

    def run(self, command):
        self.runs += 1
        if sys.stderr.isatty():
            print(f"\rmodel_check: run {self.runs}", end="", file=sys.stderr, flush=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")

    def ycsb(self, operation, target, in_flight, more=(), phases="load,run"):
        """The last phase of one run, as JSON."""
        result = self.folder / "result.json"
        command = [f"{self.options.bin}/ycsb", "-P", "benchmark/workloads/workloadc",
                   "-p", f"recordcount={self.options.records}",
                   "-p", f"operationcount={self.options.operations}", "-p", "requestdistribution=uniform",
                   "--target", target, "--phase", phases, "--in-flight", str(in_flight),
                   "--status-interval", "0", "--json", str(result), *more]
        for setting in OPERATIONS[operation]:
            command += ["-p", setting]
        self.run(command)
        return list(json.loads(result.read_text())["phases"].values())[-1]

    def measure(self, operation, delay_us, in_flight, more=()):
        target = f"local:?servers=2&region=256MiB&delay_us={delay_us}"
        return self.ycsb(operation, target, in_flight, ("--clock", self.options.clock, *more))

    def predict(self, calibration, operation, in_flight, **latencies):
        """The run on the model: nothing but the calibrated steps and these latencies takes time."""
        model = self.folder / "model.toml"
        values = {"memory_servers": 2, "delay_ns": 0, "read_ns": 0, "write_ns": 0, **latencies}
        model.write_text(MODEL.format(**values, **calibration))
        return self.ycsb(operation, f"sim:{model}?region=256MiB", in_flight)


def median_of(run):
    (one,) = run["operations"].values()
    return one["latency_us"]["p50"]


def calibrate(times):
    """What steps cost, from ns per operation without a delay: a get, a get without cache (one more batch and
    one more node for each further round trip), and an update (one more batch, and what it writes)."""
    step_ns = max((times["uncached"] - times["get"]) / (times["uncached_round_trips"] - 1), 0)
    second_batch_ns = step_ns / 2
    return {"operation_ns": round(max(times["get"] - step_ns, 0), 3),
            "complete_ns": round(step_ns / 2, 3),
            "read_byte_ns": round(step_ns / 2 / READ_BYTES, 6),
            "write_byte_ns": round(max(times["update"] - times["get"] - second_batch_ns, 0) / WRITE_BYTES, 6)}


def row_of(fabric, operation, delay_us, in_flight, unit, measured, predicted):
    """`measured`: of all rounds. The fastest counts: what else the machine does only ever slows a run down."""
    fastest = max(measured) if unit == "1/s" else min(measured)
    return {"fabric": fabric, "operation": operation, "delay_us": delay_us, "in_flight": in_flight, "unit": unit,
            "measured": fastest, "predicted": predicted, "ratio": predicted / fastest, "measured_rounds": measured}


def check(options, bench, pool):
    cases = [(operation, delay, in_flight) for operation in OPERATIONS for delay in options.delays
             for in_flight in options.in_flight] if "shm" in options.fabrics else []
    calibrations = {"get": [], "update": [], "uncached": []}
    shm = {case: [] for case in cases}
    verbs, tcp = {verb: [] for verb in VERBS}, {operation: [] for operation in OPERATIONS}
    round_trips = 0
    if pool:
        pool.median("update", "load")
    # Calibration and measurements take turns, so that a slow minute of the machine meets both.
    for _ in range(options.rounds):
        for name in calibrations:
            run = bench.measure("get" if name == "uncached" else name, 0, CALIBRATION_IN_FLIGHT,
                                ("--cache", "off") if name == "uncached" else ())
            calibrations[name].append(1e9 / run["overall"]["ops_per_second"])
            if name == "uncached":
                round_trips = run["operations"]["READ"]["round_trips_per_op"]
        for case in cases:
            shm[case].append(bench.measure(*case)["overall"]["ops_per_second"])
        if pool:
            for verb in VERBS:
                verbs[verb].append(pool.verb(verb))
            for operation in OPERATIONS:
                tcp[operation].append(pool.median(operation))
    times = {name: min(of) for name, of in calibrations.items()}
    times["uncached_round_trips"] = round_trips
    calibration = calibrate(times)
    rows = []
    for operation, delay, in_flight in cases:
        predicted = bench.predict(calibration, operation, in_flight, delay_ns=delay * 1000)
        rows.append(row_of("shm", operation, delay, in_flight, "1/s", shm[operation, delay, in_flight],
                           predicted["overall"]["ops_per_second"]))
    latencies = {f"{verb}_ns": min(of) * 1000 for verb, of in verbs.items() if of}
    for operation in OPERATIONS if pool else ():
        predicted = bench.predict(calibration, operation, 1, memory_servers=1, **latencies)
        rows.append(row_of("tcp", operation, 0, 1, "us", tcp[operation], median_of(predicted)))
    return {"calibration_ns_per_operation": times, "calibration": calibration, "tcp_verbs": latencies, "rounds": options.rounds,
            "clock": options.clock, "records": options.records, "operations": options.operations, "results": rows}


def print_table(outcome):
    print("calibration: " + ", ".join(f"{name} {value:g}" for name, value in
                                      {**outcome["calibration"], **outcome["tcp_verbs"]}.items()))
    print(f"{'fabric':6}  {'operation':9}  {'delay us':>8}  {'in flight':>9}  {'measured':>12}  {'predicted':>12}  "
          f"{'predicted/measured':>18}")
    for row in outcome["results"]:
        digits = 0 if row["unit"] == "1/s" else 1
        delay = row["delay_us"] or "-"
        print(f"{row['fabric']:6}  {row['operation']:9}  {delay:>8}  {row['in_flight']:9}  "
              f"{row['measured']:8,.{digits}f} {row['unit']:3}  {row['predicted']:8,.{digits}f} {row['unit']:3}  "
              f"{row['ratio']:18.2f}")


def main(arguments):
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(options, folder)
            with TcpPool(bench) if "tcp" in options.fabrics else contextlib.nullcontext() as pool:
                outcome = check(options, bench, pool)
    except (Failed, OSError) as failure:
        print(f"model_check: {failure}", file=sys.stderr)
        return 3
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print_table(outcome)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(outcome, indent=2) + "\n")
    off = [row for row in outcome["results"] if abs(row["ratio"] - 1) > options.within / 100]
    for row in off:
        print(f"model_check: {row['operation']} over {row['fabric']} at {row['delay_us']} us, {row['in_flight']} in flight: "
              f"predicted {row['ratio']:.2f} of what was measured, more than {options.within:g} % off", file=sys.stderr)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
