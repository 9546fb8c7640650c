"""Stores on disk side by side: for each case (sizes of pairs, threads, growth factor) all stores are loaded with the same pairs and run the
workloads, in turns, with equal budgets. Device bytes are a user byte, of the phase and of what follows it.

Parameters: stores (targets of ycsb), mixes, threads, growth (lists; with sweeps, as runner_pool), workloads (load first), data_mib (as many pairs
of a mix as make so much), operations, rounds, cache_share, memtable_share (the data's size divided by them), settle (seconds at most)."""

import itertools

from bench import Failed, Skipped, ratios, runners, ycsb

PAIR_BYTES = {"s": 33, "m": 123, "l": 1023, "sd": 249, "md": 285, "ld": 645, "s40": 357, "s80": 141}


class Stores(runners.Runner):
    def cases(self):
        for sweep in self.parameters.get("sweeps", [{}]):
            workloads = sweep.get("workloads", self.workloads)
            for mix, threads, growth in itertools.product(*(sweep.get(key, getattr(self, key)) for key in ("mixes", "threads", "growth"))):
                yield {"mix": mix, "threads": threads, "growth": growth, "workloads": " ".join(workloads)}

    def run(self, case):
        client = self.context.rack.clients[0]
        known = client.run([client.program("ycsb"), "--help"]).stdout
        # This machine's ycsb may be built without RocksDB.
        stores = [store for store in self.stores if store == "lsm" or f"{store}:" in known]
        if len(stores) < 2:
            raise Skipped("this ycsb is built without RocksDB")
        rounds = {store: {workload: [] for workload in case["workloads"].split()} for store in stores}
        for number in range(self.rounds):
            directory = client.make_directory()
            try:
                self.round(client, directory, case, ratios.turn(stores, number), rounds)
            finally:
                client.remove(directory)
        return [{"workload": workload, **row} for workload in case["workloads"].split()
                for row in ratios.rows_of({store: rounds[store][workload] for store in stores}, "store")]

    def round(self, client, directory, case, stores, rounds):
        inserted = 0
        for workload in case["workloads"].split():
            counts = set()
            for store in stores:
                phase = self.phase(client, directory, case, store, workload, inserted)
                rounds[store][workload].append([row_of(phase)])
                counts.add(phase["operations"].get("INSERT", {}).get("count", 0))
            if len(counts) != 1:
                raise Failed(f"{workload} inserted {sorted(counts)} in stores that were to do the same")
            inserted += counts.pop() if workload != "load" else 0

    def phase(self, client, directory, case, store, workload, inserted):
        size = self.data_mib << 20
        records = size // PAIR_BYTES[case["mix"]]
        budgets = f"cache_mb={max(1, size // self.cache_share >> 20)}&memtable_mb={max(1, size // self.memtable_share >> 20)}&growth={case['growth']}"
        values = {"farleaf.kvmix": case["mix"], "recordcount": records + inserted,
                  "operationcount": self.operations // 20 + 1 if workload == "e" else self.operations}
        phase = "load" if workload == "load" else "run"
        options = {"phase": phase, "threads": case["threads"], "seed": self.seed, "settle": self.settle,
                   **({"warmup": records // 20 + 1} if phase == "run" else {})}
        result = ycsb.run(client, directory, f"{store}:{directory}/{store}?{budgets}", workload, values, options)
        return ycsb.phase_of(result, phase)


def row_of(phase):
    """One of all kinds of operation; percentiles of the slowest kind."""
    def worst(name):
        return max(one["latency_us"][name] for one in phase["operations"].values())

    overall, store, settle = phase["overall"], phase["store"], phase.get("settle", {})
    user = store["UserBytesRead"] + store["UserBytesWritten"]
    row = {"operation": "ALL", "throughput": overall["ops_per_second"], "cpu_us": overall["cpu_ns_per_op"] / 1000,
           "stall_ms": overall["longest_stall_us"] / 1000, "rss_mib": overall["max_rss_bytes"] / 2**20,
           "space": settle.get("SpaceAmplification", store["SpaceAmplification"])}
    row |= {name: worst(name) for name in ycsb.PERCENTILES}
    if user and "DeviceBytesRead" in store:
        read, written = (store[name] + settle.get(name, 0) for name in ("DeviceBytesRead", "DeviceBytesWritten"))
        row |= {"read_per_byte": read / user, "written_per_byte": written / user, "io_per_byte": (read + written) / user}
    return row


def make(parameters, context):
    return Stores(parameters, context)
