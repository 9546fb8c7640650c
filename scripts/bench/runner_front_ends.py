"""Latency against load: a compute server in front of a pool, and the rivals of its protocols, each asked by ycsb through its own front end.

The most that a front end does in a closed loop is measured first; then operations come at fixed rates, shares of that, and latencies count from when
each was due. Parameters: front_ends (of native, unix, ring, memcached, redis, rival_memcached, rival_redis), loads (shares), rate_seconds (of each),
threads, in_flight, server_threads, records, value_bytes, workload, fabric, memory_servers, region_mib."""

import shutil

from bench import Failed, Skipped, runners, servers, ycsb


class FrontEnds(runners.Runner):
    def cases(self):
        for name in self.front_ends:
            yield {"front_end": name, "workload": self.workload}

    def run(self, case):
        client = self.context.rack.clients[0]
        with servers.Servers(self.context.rack) as started:
            return list(self.loads_of(client, started, self.start(started, case["front_end"], client)))

    def start(self, started, name, client):
        """The target to send to."""
        server = self.context.rack.compute_servers[0]
        if name in ("unix", "ring") and (client.ssh or server.ssh):
            raise Skipped("sockets of one machine reach no other host")
        scheme = {"memcached": "memcached://", "rival_memcached": "memcached://", "redis": "redis://", "rival_redis": "redis://"}.get(name)
        if scheme:
            ycsb.require_target(client, scheme)
        if name.startswith("rival_"):
            return self.start_rival(started, server, name.removeprefix("rival_"), scheme)
        bootstrap = started.start_memory(self.fabric if self.context.rack.is_local else self.context.rack.fabrics[0], self.memory_servers, self.region_mib)
        socket = f"{started.directory(server)}/clients.sock"
        arguments = ["--threads", self.server_threads, "--listen", f"{server.address}:0", "--unix-socket", socket]
        port = servers.free_port(server)
        if scheme:
            arguments += [f"--{name}-listen", f"{server.address}:{port}"]
        urls, _ = started.start_compute(server, "compute_server", bootstrap, self.memory_servers, arguments)
        native = next((url for url in urls if url.startswith("farleaf://")), None)
        if native is None:
            raise Failed(f"the compute server wrote no address: {urls}")
        return {"native": native, "unix": f"farleaf+unix:{socket}", "ring": f"farleaf+ring:{socket}"}.get(name) or f"{scheme}{server.address}:{port}"

    def start_rival(self, started, server, name, scheme):
        program = {"memcached": "memcached", "redis": "redis-server"}[name]
        if not (server.has(program) if server.ssh else shutil.which(program)):
            raise Skipped(f"{program} is not installed")
        port = servers.free_port(server)
        ready = f"{started.directory(server)}/{name}.ready"
        if name == "memcached":
            argv = ["memcached", "-l", server.address, "-p", port, "-U", "0", "-t", self.server_threads, "-m", self.region_mib * self.memory_servers,
                    "-u", server.output(["id", "-un"]).strip()]
        else:
            argv = ["redis-server", "--bind", server.address, "--port", port, "--save", "", "--appendonly", "no", "--io-threads", self.server_threads,
                    "--protected-mode", "no" if server.ssh else "yes", "--dir", started.directory(server)]
        process = started.start(server, f"rival_{name}", argv)
        probe = f"until (exec 3<>/dev/tcp/{server.address}/{port}) 2>/dev/null; do sleep 0.05; done; echo up >{ready}"
        server.run(["timeout", "30", "bash", "-c", probe], timeout=40)
        process.wait_for(ready, 1)
        return f"{scheme}{server.address}:{port}"

    def loads_of(self, client, started, target):
        values = {"recordcount": self.records, "farleaf.keys": "bytes", "fieldcount": 1, "fieldlength": self.value_bytes}
        common = {"threads": self.threads, "in-flight": self.in_flight, "seed": self.seed}
        directory = started.directory(client)

        def measured(operations, **options):
            result = ycsb.run(client, directory, target, self.workload, {**values, "operationcount": int(operations)}, {**common, "phase": "run", **options})
            return ycsb.phase_of(result)

        ycsb.run(client, directory, target, self.workload, {**values, "operationcount": 1}, {**common, "phase": "load"})
        # A short run tells how many operations take as long as is wanted.
        pace = measured(self.in_flight * self.threads * 50)["overall"]["ops_per_second"]
        closed = measured(max(1000, pace * self.rate_seconds))
        most = closed["overall"]["ops_per_second"]
        for row in ycsb.rows_of([closed]):
            yield {"loop": "closed", "offered": most, **row}
        for load in self.loads:
            phase = measured(max(500, most * load * self.rate_seconds), rate=round(most * load, 1))
            for row in map(known_of, ycsb.rows_of([phase])):
                yield {"loop": "open", "load": load, "load_percent": load * 100, "offered": most * load, **row}


def known_of(row):
    """Without percentiles above which there was no operation at all."""
    count = row["count"] * row["share"]
    return {key: None if count < {"p999": 1_000, "p9999": 10_000}.get(key, 0) else value for key, value in row.items()}


def make(parameters, context):
    return FrontEnds(parameters, context)
