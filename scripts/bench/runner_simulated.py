"""Runs of ycsb in virtual time: models x workloads x distributions x systems x clients, each a case. Throughput in M ops/s, latencies in us,
counts an operation, and of these what an operation's time is spent on by the model's prices.

Parameters beside the obvious ones: models, files, behind a '?' what else of [machine] is to be ("rack.toml?memory_servers=4"); breakdown:
each case is run with one client, too, so that what it waits for beside others is known."""

import os
import re
import threading
import types

from bench import REPOSITORY, Failed, runners, simulated_runs


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
        result = self.result_of(case)
        if self.parameters.get("breakdown"):
            return [breakdown_of(result, self.result_of({**case, "clients": 1}))]
        rows = [{key: value for key, value in row.items() if key not in case} for row in simulated_runs.rows_of(case, result)]
        slowest = max(rows, key=lambda row: row["p999"])
        for row in rows:
            half = row["throughput_mops"] * (row["throughput_ci95_percent"] or 0) / 100
            row |= {"slowest": row is slowest, "first": row is rows[0], "most_clients": case["clients"] == max(self.clients),
                    "throughput_low": row["throughput_mops"] - half, "throughput_high": row["throughput_mops"] + half}
            row |= {f"machine_{key}": value for key, value in machine_of(result).items()}
        return rows

    def result_of(self, case):
        """The JSON of a run; its paths are those of a file of its own where the model is another than its file says."""
        return simulated_runs.run(self.options, {**case, "model": self.model_file(case["model"])})

    def model_file(self, model):
        """The path, from the repository, of a model with other values behind its '?'."""
        name, _, changes = model.partition("?")
        if not changes:
            return name
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        for change in changes.split("&"):
            key, value = change.split("=")
            text, found = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
            if found != 1:
                raise Failed(f"{name} has {found} lines of {key}")
        path = self.context.directory / (re.sub(r"[^a-z0-9]+", "_", model) + ".toml")
        partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")  # cases run at a time
        partial.write_text(text, encoding="utf-8")
        partial.rename(path)
        return str(path)


def simulation_of(result):
    return list(result["phases"].values())[-1]["simulation"]


def machine_of(result):
    return {name.removeprefix("machine."): value for name, value in simulation_of(result)["model"].items() if name.startswith("machine.")}


def mean_of(result, figure):
    """Over all operations, of a figure of one kind."""
    kinds = result["operations"].values()
    return sum(figure(kind) * kind["count"] for kind in kinds) / sum(kind["count"] for kind in kinds)


def parts_of(result):
    """What the mean operation spends its time on, in us, by the model's prices and the counts of the run: CPU on bytes, CPU on posting and
    on completions, all other CPU, and what is not of its CPU at all."""
    cpu = {name.removeprefix("cpu."): value for name, value in simulation_of(result)["model"].items() if name.startswith("cpu.")}
    of_bytes = mean_of(result, lambda kind: cpu["read_byte_ns"] * kind["bytes_read_per_op"] + cpu["write_byte_ns"] * kind["bytes_written_per_op"])
    of_verbs = mean_of(result, lambda kind: (cpu["post_ns"] + cpu["complete_ns"]) * kind["round_trips_per_op"] + cpu["verb_ns"] * kind["verbs_per_op"])
    total, mean = result["overall"]["cpu_ns_per_op"], mean_of(result, lambda kind: kind["latency_us"]["mean"]) * 1000
    return {"mean": mean / 1000, "checksum": of_bytes / 1000, "posting": of_verbs / 1000, "search": max(0.0, total - of_bytes - of_verbs) / 1000,
            "away": max(0.0, mean - total) / 1000}


def breakdown_of(result, alone):
    """A row of all kinds of operation together; what takes longer than with one client is waiting: for locks, NICs, links, processors."""
    parts, parts_alone = parts_of(result), parts_of(alone)
    network = min(parts["away"], parts_alone["away"])
    return {"operation": "ALL", "mean_us": parts["mean"], "search_us": parts["search"], "checksum_us": parts["checksum"],
            "fabric_us": network + parts["posting"], "waiting_us": parts["away"] - network, "alone_mean_us": parts_alone["mean"],
            "round_trips": mean_of(result, lambda kind: kind["round_trips_per_op"]), "atomics": mean_of(result, lambda kind: kind["atomics_per_op"])}


def make(parameters, context):
    return Simulated(parameters, context)
