"""Throughput and 99th percentile by the second, of stores that are loaded and then written to, by ycsb's --interval.

Parameters: targets (a name and a target, {directory} in it is one for data), workload, records, operations, rate (0: closed), threads, interval (s)."""

from bench import Failed, runners, ycsb


class Series(runners.Runner):
    def cases(self):
        for system in self.targets:
            yield {"system": system, "workload": self.workload}

    def run(self, case):
        client = self.context.rack.clients[0]
        ycsb.require_option(client, "--interval")
        target = self.targets[case["system"]]
        directory = client.make_directory()
        try:
            values = {"recordcount": self.records, "operationcount": self.operations} | self.parameters.get("properties", {})
            result = ycsb.run(client, directory, target.format(directory=directory), self.workload, values,
                              {"threads": self.threads, "seed": self.seed, "phase": "load,run", "rate": self.rate, "interval": self.interval})
            return rows_of(ycsb.phase_of(result), self.interval)
        finally:
            client.remove(directory)


def rows_of(phase, interval):
    """A row for each interval; fields by what they are called in the series."""
    series = phase.get("series")
    if not series:
        raise Failed("the run's JSON has no series")
    return [row_of(entry, number, interval) for number, entry in enumerate(series, 1)]


def row_of(entry, number, interval):
    at = entry.get("seconds", entry.get("second", entry.get("end_s", entry.get("time_s", number * interval))))
    row = {"second": at, "throughput": entry.get("ops_per_second", entry.get("throughput"))}
    latency = entry.get("latency_us", entry)
    if "operations" in entry and isinstance(entry["operations"], dict):
        kinds = [kind.get("latency_us", kind) for kind in entry["operations"].values()]
        latency = {name: max(kind[name] for kind in kinds if name in kind) for name in ("p50", "p99", "p999") if any(name in kind for kind in kinds)}
    row |= {name: latency[name] for name in ("p50", "p99", "p999") if name in latency}
    return row


def make(parameters, context):
    return Series(parameters, context)
