"""The store with backups beside itself without: for each case (sizes of pairs, growth factor, backups) all modes (none, send, build) are loaded with the
same pairs and run the workloads, in turns, with equal budgets; each phase a process of its own. Device and network bytes are a user byte, of the phase and
of what follows it; so is the CPU time by part (benchmark/adapters/README.md says what each is).

Parameters: modes, mixes, growth, backups, separation (lists; with sweeps, as runner_pool; separation: bytes of a value from which on it is kept apart, 1:
tables hold keys and pointers only), workloads (load first), data_mib (as many pairs of a mix as make so
much), operations, rounds, threads, in_flight, cache_share (the data's size divided by it), memtable_mib (4: some 64,000 keys of SD, as in the paper), settle
(seconds at most)."""

import itertools

from bench import Failed, ratios, runners, ycsb
from bench.runner_stores import PAIR_BYTES

# ycsb's figure: its part of a row, in us an operation. The first four are Talos' figure 8.
CPU_PARTS = {"CpuStorage(us)": "cpu_storage", "CpuNetwork(us)": "cpu_network", "CpuLogReplication(us)": "cpu_logs",
             "CpuIndexReplication(us)": "cpu_index", "CpuClients(us)": "cpu_clients", "CpuPrimaryMerges(us)": "cpu_primary_merges"}
BYTE_PARTS = {"NetworkBytes": "network_per_byte", "PredictedNetworkBytes": "predicted_per_byte", "LogReplicationBytes": "log_per_byte", "TableShippingBytes": "tables_per_byte",
              "MessageBytes": "messages_per_byte"}


class Replication(runners.Runner):
    def cases(self):
        for sweep in self.parameters.get("sweeps", [{}]):
            lists = (sweep.get(key, getattr(self, key)) for key in ("mixes", "growth", "backups", "separation"))
            for mix, growth, backups, separation in itertools.product(*lists):
                yield {"mix": mix, "growth": growth, "backups": backups, "separation": separation}

    def run(self, case):
        client = self.context.rack.clients[0]
        ycsb.require_target(client, "replicated:")
        rounds = {mode: {workload: [] for workload in self.workloads} for mode in self.modes}
        for number in range(self.rounds):
            directory = client.make_directory()
            try:
                self.round(client, directory, case, ratios.turn(self.modes, number), rounds)
            finally:
                client.remove(directory)
        return [{"workload": workload, **row} for workload in self.workloads
                for row in ratios.rows_of({mode: rounds[mode][workload] for mode in self.modes}, "mode")]

    def round(self, client, directory, case, modes, rounds):
        for workload in self.workloads:
            counts = set()
            for mode in modes:
                phase = self.phase(client, directory, case, mode, workload)
                rounds[mode][workload].append([row_of(phase)])
                counts.add(phase["overall"]["count"])
            if len(counts) != 1:
                raise Failed(f"{workload} did {sorted(counts)} operations where all were to do the same")

    def phase(self, client, directory, case, mode, workload):
        size = self.data_mib << 20
        records = size // PAIR_BYTES[case["mix"]]
        options = {"mode": mode, "cache_mb": max(1, size // self.cache_share >> 20), "memtable_mb": self.memtable_mib,
                   "growth": case["growth"], "separation_bytes": case["separation"], "collect": 0} | ({} if mode == "none" else {"backups": case["backups"]})
        values = {"farleaf.kvmix": case["mix"], "recordcount": records, "operationcount": self.operations}
        phase = "load" if workload == "load" else "run"
        target = f"replicated:{directory}/{mode}?" + "&".join(f"{name}={value}" for name, value in options.items())
        flags = {"phase": phase, "threads": self.threads, "in-flight": self.in_flight, "seed": self.seed, "settle": self.settle}
        return ycsb.phase_of(ycsb.run(client, directory, target, workload, values, flags), phase)


def row_of(phase):
    """One of all kinds of operation; percentiles of the slowest kind. With a settle, figures are of the phase and of what followed."""
    overall, store = phase["overall"], phase["store"]
    settle = phase.get("settle", {})
    whole = store | settle  # of the target's own figures, the later ones have all since the phase began
    user = store["UserBytesRead"] + store["UserBytesWritten"]
    count = max(1, overall["count"])
    cpu_us = overall["cpu_ns_per_op"] / 1000 + settle.get("CpuTime(ms)", 0) * 1000 / count
    row = {"operation": "ALL", "throughput": overall["ops_per_second"], "cpu_us": cpu_us, "stall_ms": overall["longest_stall_us"] / 1000,
           "write_path_mib": whole["WritePathBytes"] / 2**20}
    row |= {name: max(one["latency_us"][name] for one in phase["operations"].values()) for name in ycsb.PERCENTILES}
    row |= {field: whole[name] / count for name, field in CPU_PARTS.items()}
    if user:
        row |= {field: whole[name] / user for name, field in BYTE_PARTS.items()}
        row["network_amplification"] = 1 + row["network_per_byte"]
        row["network_predicted"] = 1 + row["predicted_per_byte"]
        row["primary_io_per_byte"] = (whole["PrimaryBytesRead"] + whole["PrimaryBytesWritten"]) / user
        row["backup_io_per_byte"] = (whole["BackupBytesRead"] + whole["BackupBytesWritten"]) / user
    if user and "DeviceBytesRead" in store:
        row["io_per_byte"] = sum(part.get(name, 0) for part in (store, settle) for name in ("DeviceBytesRead", "DeviceBytesWritten")) / user
    return row


def make(parameters, context):
    return Replication(parameters, context)
