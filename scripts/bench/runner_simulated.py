"""Runs of ycsb in virtual time: workloads x distributions x clients, and each system in a case of its own. Throughput in M ops/s, latencies
in us, counts an operation, and of these what an operation's time is spent on by the model's prices."""

import os
import types

from bench import runners, simulated_runs


class Simulated(runners.Runner):
    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self.jobs = os.cpu_count() or 1
        self.options = types.SimpleNamespace(
            records=self.records, seed=self.seed, confidence=self.confidence, operations=self.operations, operations_max=self.operations_max,
            bin=context.programs, out=context.directory, fresh=True)
        (context.directory / "runs").mkdir(parents=True, exist_ok=True)

    def cases(self):
        for model in self.models:
            for workload in self.workloads:
                for distribution in self.distributions if workload != "load" else ["any"]:
                    for system in self.systems:
                        for clients in self.clients:
                            yield {"model": model, "workload": workload, "distribution": distribution, "system": system, "clients": clients}

    def run(self, case):
        result = simulated_runs.run(self.options, case)
        rows = [{key: value for key, value in row.items() if key not in case} for row in simulated_runs.rows_of(case, result)]
        slowest = max(rows, key=lambda row: row["p999"])
        for row in rows:
            half = row["throughput_mops"] * (row["throughput_ci95_percent"] or 0) / 100
            row |= parts_of(result, row) | {"slowest": row is slowest, "most_clients": case["clients"] == max(self.clients),
                                            "throughput_low": row["throughput_mops"] - half, "throughput_high": row["throughput_mops"] + half}
        return rows


def parts_of(result, row):
    """What the mean operation of a kind spends its time on, in us, by the model's prices and the counts of the run."""
    simulation = list(result["phases"].values())[-1]["simulation"]
    cpu = {name.removeprefix("cpu."): value for name, value in simulation["model"].items() if name.startswith("cpu.")}
    one = result["operations"][row["operation"]]
    of_bytes = cpu["read_byte_ns"] * one["bytes_read_per_op"] + cpu["write_byte_ns"] * one["bytes_written_per_op"]
    of_verbs = (cpu["post_ns"] + cpu["complete_ns"]) * one["round_trips_per_op"] + cpu["verb_ns"] * one["verbs_per_op"]
    mean = one["latency_us"]["mean"] * 1000
    return {"mean_us": mean / 1000, "search_us": cpu["operation_ns"] / 1000, "checksum_us": of_bytes / 1000,
            "posting_us": of_verbs / 1000, "away_us": max(0.0, mean - cpu["operation_ns"] - of_bytes - of_verbs) / 1000}


def make(parameters, context):
    return Simulated(parameters, context)
