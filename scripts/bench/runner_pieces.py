"""What operations on a real fabric are made of: the mean latency of each kind (one client, one operation in flight), and what its parts take by
themselves on the same machine: verbs by verb_bench on the same pool, the search and the checksum by micro.

    fabric    round trips that carry data: a READ of as many bytes as the operation reads in a round trip, and, for what it writes, a WRITE
    lock      one CAS, and one WRITE of 8 bytes which unlocks, for each atomic verb, where they are not in a round trip with data; over a
              network they are, and only what a batch takes longer than its largest verb counts
    search    of a sorted array of separators as many as the tree has
    checksum  of the bytes read and written
    rest      the mean, less all that: coroutines, generator, clock, splits, waiting; none where the parts add up to more than the mean

Parameters: fabrics, memory_servers, workloads, records, operations, warmup, region_mib, verb_operations, search_keys."""

import json

from bench import Failed, Skipped, runners, servers, ycsb


# That verbs meet as many cold lines as the tree's do.
POOL_BYTES_OF_RECORD = 36


class Pieces(runners.Runner):
    def cases(self):
        for fabric in self.fabrics:
            for workload in self.workloads:
                yield {"fabric": fabric, "workload": workload}

    def run(self, case):
        client = self.context.rack.clients[0]
        if not client.has(client.program("micro")) or not client.has(client.program("verb_bench")):
            raise Skipped("micro and verb_bench are not built")
        search_ns, checksum_ns = self.micro(client)
        with servers.Servers(self.context.rack) as started:
            bootstrap = started.start_memory(case["fabric"], self.memory_servers, self.region_mib)
            phase = self.rows_of_workload(client, started, bootstrap, case["workload"])
            return [self.row(client, started, bootstrap, row, search_ns, checksum_ns) for row in phase]

    def micro(self, client):
        """ns of a search, and of the checksum of a byte."""
        text = client.output([client.program("micro"), f"--keys={self.search_keys}", "--benchmark_filter=search_separators|crc32c_1016B",
                              "--benchmark_min_time=0.05", "--benchmark_format=json"], timeout=300)
        times = {one["name"]: one["cpu_time"] for one in json.loads(text[text.index("{"):])["benchmarks"]}
        try:
            return times["search_separators"], times["crc32c_1016B"] / 1016
        except KeyError as problem:
            raise Failed(f"micro has no {problem}") from problem

    def rows_of_workload(self, client, started, bootstrap, workload):
        values = {"recordcount": self.records, "operationcount": self.operations}
        common, target, directory = {"threads": 1, "seed": self.seed}, f"pool:{bootstrap}", started.directory(client)
        if workload == "load":
            result = ycsb.run(client, directory, target, "load", values, {**common, "in-flight": 1, "phase": "load"})
            phase = ycsb.phase_of(result, "load")
        else:
            ycsb.run(client, directory, target, workload, values, {**common, "in-flight": 16, "phase": "load"})
            phase = ycsb.phase_of(ycsb.run(client, directory, target, workload, values, {**common, "in-flight": 1, "phase": "run", "warmup": self.warmup}))
        for row in ycsb.rows_of([phase]):
            yield {**row, "mean_us": phase["operations"][row["operation"]]["latency_us"]["mean"]}

    def verb(self, client, started, bootstrap, verb, size):
        """Mean us of one verb by itself."""
        path = f"{started.directory(client)}/verb.json"
        client.output([client.program("verb_bench"), "--bootstrap", bootstrap, "--memory-servers-min", self.memory_servers, "--verb", verb,
                       *(["--bytes", size] if verb != "cas" else []), "--operations", self.verb_operations,
                       "--span", self.records * POOL_BYTES_OF_RECORD >> 16 << 16 or 1 << 16, "--loop", "transport",
                       "--json", path], timeout=300)
        return json.loads(client.read(path))["latency_us"]["mean"]

    def row(self, client, started, bootstrap, row, search_ns, checksum_ns):
        def rounded(size):
            return max(8, int(size + 7) // 8 * 8)

        writes = 1 if row["bytes_written"] >= 8 else 0
        reads = max(0.0, row["round_trips"] - writes)
        read_us = self.verb(client, started, bootstrap, "read", rounded(row["bytes_read"] / max(reads, 1)))
        write_us = self.verb(client, started, bootstrap, "write", rounded(row["bytes_written"])) if writes else 0
        lock_us = 0
        if row["atomics"] >= 0.5:
            cas_us, unlock_us = self.verb(client, started, bootstrap, "cas", 8), self.verb(client, started, bootstrap, "write", 8)
            # Verbs of one batch: over a network they overlap, and what is left is what a batch adds; in shared memory they follow one another.
            lock_us = row["atomics"] * (cas_us + unlock_us) if read_us < 2 else 0
        parts = {"fabric_us": reads * read_us + write_us, "lock_us": lock_us, "search_us": search_ns / 1000,
                 "checksum_us": checksum_ns * (row["bytes_read"] + row["bytes_written"]) / 1000}
        return {**row, **parts, "rest_us": max(0.0, row["mean_us"] - sum(parts.values()))}


def make(parameters, context):
    return Pieces(parameters, context)
