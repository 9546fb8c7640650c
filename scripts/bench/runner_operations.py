"""micro --operations: what each operation of a tree costs one thread, in CPU time and in copies of 1 KiB of the same machine, beside what is
asked for. Parameters: keys, rounds, batch (operations), copy_mib (the region copied from), leaves (parted, sorted); micro's
seed is 1."""

import json

from bench import Failed, Skipped, runners


class Operations(runners.Runner):
    def cases(self):
        for leaves in self.leaves:
            yield {"leaves": leaves}

    def run(self, case):
        client = self.context.rack.clients[0]
        if not client.has(client.program("micro")):
            raise Skipped("micro is not built")
        directory = client.make_directory()
        try:
            client.output([client.program("micro"), "--operations", f"--keys={self.keys}", f"--leaf-layout={case['leaves']}",
                           f"--rounds={self.rounds}", f"--batch={self.batch}", f"--copy-mib={self.copy_mib}", f"--json={directory}/micro.json"], timeout=1800)
            data = json.loads(client.read(f"{directory}/micro.json"))
        finally:
            client.remove(directory)
        try:
            measured = data["leaves"][case["leaves"]]["operations"]
        except KeyError as problem:
            raise Failed(f"micro's JSON has no {problem}") from problem
        return [{"operation": name, "cpu_ns": one["cpu_ns"], "cpu_ns_min": one["cpu_ns_min"], "copies": one["copies_of_1024"],
                 "copies_per_bound": one["copies_of_1024"] / one["copies_bound"] if one.get("copies_bound") else None,
                 "bound": one.get("copies_bound"), "allocations": one["allocations"], "round_trips": one["round_trips"], "bytes": one["bytes"]}
                for name, one in measured.items()]


def make(parameters, context):
    return Operations(parameters, context)
