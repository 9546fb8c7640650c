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
        if target.startswith(("rocksdb:", "blobdb:")):  # lsm: is always there, and not in the list
            ycsb.require_target(client, target[:target.index(":") + 1])
        directory = client.make_directory()
        try:
            values = {"recordcount": self.records, "operationcount": self.operations} | self.parameters.get("properties", {})
            result = ycsb.run(client, directory, target.format(directory=directory), self.workload, values,
                              {"threads": self.threads, "seed": self.seed, "phase": "load,run", "rate": self.rate, "interval": self.interval})
            return list(rows_of(ycsb.phase_of(result)))
        finally:
            client.remove(directory)


def rows_of(phase):
    """A row for each interval, of all kinds of operation: series has a list of intervals for each kind. Throughputs add up, and of a
    percentile the largest of the kinds' counts."""
    series = phase.get("series")
    if not series:
        raise Failed("the run's JSON has no series")
    kinds = [intervals for intervals in series.values() if isinstance(intervals, list)]
    by_second = {}
    for intervals in kinds:
        for one in intervals:
            by_second.setdefault(one["second"], []).append(one)
    if "last_interval_s" in series and series["last_interval_s"] < series["interval_s"] and len(by_second) > 1:
        by_second.pop(max(by_second))  # only begun: a rate over little
    for second, parts in sorted(by_second.items()):
        row = {"second": second, "throughput": sum(one["ops_per_s"] for one in parts)}
        for name in ("p50", "p99", "p999", "max"):
            values = [one[f"{name}_us"] for one in parts if one.get(f"{name}_us") is not None]
            row[name] = max(values) if values else None
        yield row


def make(parameters, context):
    return Series(parameters, context)
