"""ycsb on pools: each case is a pool of its own, in which all systems run in turns, `rounds` times, each on trees of its own.

Parameters: fabrics, memory_servers, clients (processes of ycsb at a time), threads (of each), in_flight, workloads, distributions, records,
operations (of each process), warmup, rounds, region_mib (of each memory server), and systems: a name, and options of ycsb. All lists are combined
with one another, or, with sweeps, each sweep's lists only, where the first value of the others stands: [[parameters.sweeps]] threads = [1, 2].
shared_tree = true: all systems run on one tree, which nothing may write to."""

import itertools

from bench import Skipped, ratios, runners, servers, ycsb


class Pool(runners.Runner):
    AXES = ("fabric", "memory_servers", "clients", "threads", "in_flight")

    def cases(self):
        lists = dict(zip(self.AXES, (self.fabrics, self.memory_servers, self.clients, self.threads, self.in_flight)))
        for sweep in self.parameters.get("sweeps", [{}]):
            of_sweep = {axis: sweep.get(axis, values[:1] if sweep and axis != "fabric" else values) for axis, values in lists.items()}
            for values in itertools.product(*of_sweep.values()):
                for workload in self.workloads:
                    for distribution in self.distributions if workload != "load" else ["any"]:
                        yield {**({"sweep": "+".join(sweep)} if sweep else {}), **dict(zip(self.AXES, values)), "workload": workload,
                               "distribution": distribution}

    def run(self, case):
        rounds = {name: [] for name in self.systems}
        with servers.Servers(self.context.rack) as started:
            bootstrap = started.start_memory(case["fabric"], case["memory_servers"], self.region_mib)
            if self.parameters.get("shared_tree"):
                self.load(started, bootstrap, case, {}, "shared")
            for number in range(self.rounds):
                for name in ratios.turn(list(self.systems), number):
                    rounds[name].append(self.one(started, bootstrap, case, name, f"{name}_{number}"))
        return ratios.rows_of(rounds, "system")

    def one(self, started, bootstrap, case, name, tree):
        """Rows of one system's run."""
        clients = [host for _, host in zip(range(case["clients"]), itertools.cycle(self.context.rack.clients))]
        if case["fabric"] == "shm" and any(host.ssh for host in clients):
            raise Skipped("shared memory reaches no other host")
        shared = self.parameters.get("shared_tree")
        values = {"recordcount": self.records, "operationcount": self.operations, "farleaf.tree": "shared" if shared else tree}
        if case["distribution"] != "any":
            values["requestdistribution"] = case["distribution"]
        options = {"threads": case["threads"], "in-flight": case["in_flight"], "seed": self.seed, **self.systems[name]}
        target = f"pool:{bootstrap}"
        if case["workload"] == "load":
            result = ycsb.run(clients[0], started.directory(clients[0]), target, "load", values, {**options, "phase": "load"})
            return list(ycsb.rows_of([ycsb.phase_of(result, "load")]))
        if not shared:
            self.load(started, bootstrap, case, self.systems[name], tree)
        run = {**options, "phase": "run", "warmup": self.warmup}
        results = ycsb.run_all([(host, started.directory(host), target, case["workload"], values, {**run, "seed": self.seed + i})
                                for i, host in enumerate(clients)])
        together = ycsb.merged(clients[0], started.directory(clients[0]), results)
        rows = list(ycsb.rows_of([ycsb.phase_of(result) for result in together]))
        caches = [result["phases"]["run"].get("cache", {}) for result in results]
        for row in rows:
            row["cache_bytes_used"] = max((cache.get("Bytes", 0) for cache in caches), default=0)
        return rows

    def load(self, started, bootstrap, case, options, tree):
        """Many in flight, so that a load behind a network takes no longer than what is measured."""
        client = self.context.rack.clients[0]
        ycsb.run(client, started.directory(client), f"pool:{bootstrap}", "load", {"recordcount": self.records, "farleaf.tree": tree},
                 {**options, "phase": "load", "threads": 1, "in-flight": 64, "seed": self.seed})


def make(parameters, context):
    return Pool(parameters, context)
