#!/usr/bin/env python3
"""The tables of benchmark/replication.md from what `scripts/bench.py run --only replication --out DIR` has measured.

    replication_tables.py DIR/replication.json > tables.md

Prints, in Markdown: ratios of Send-Index to Build-Index (from the least to the largest of the growth factors) of each workload, all figures of each case,
those with pointers only in the tables' leaves, and where the CPU time of mixes S and SD goes. Exit code: 0; 2: wrong arguments, or the file is not one of that runner's."""

import json
import sys

MIXES = {"s": "S (33 bytes)", "m": "M (123)", "l": "L (1,023)", "sd": "SD (60 % small)", "md": "MD (20 % small)", "ld": "LD (20 % small)"}
WORKLOADS = {"load": "Load", "a": "Run a"}
TAILS = ("p99", "p999", "p9999")
IN_LEAVES = 512  # bytes of a value from which on it is kept apart, where small pairs are in the tables
# heading, field, whether the ratio is Build x Send (of what is better the less it is), or Send x Build
RATIOS = [("throughput, Send x Build", "throughput", False), ("CPU time, Build x Send", "cpu_us", True), ("device bytes, Build x Send", "io_per_byte", True),
          ("index construction's CPU time, Build x Send", "cpu_index", True), ("p99.9, Build x Send", "p999", True),
          ("network bytes, Send x Build", "network_amplification", False)]
PARTS = ("cpu_storage", "cpu_network", "cpu_logs", "cpu_index")


def table(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ratio(modes, field, inverse):
    send, build = modes["send"][field], modes["build"][field]
    return build / send if inverse else send / build


def network(row):
    return f"{row['network_amplification']:.2f} ({row['network_predicted']:.2f})"


def ratio_rows(cases, workload):
    for mix, name in MIXES.items():
        for backups in (1, 2):
            of_case = [modes for (its, _, count, separation), modes in cases[workload].items() if (its, count, separation) == (mix, backups, IN_LEAVES)]
            if not of_case:
                continue
            spans = []
            for _, field, inverse in RATIOS:
                each = [ratio(modes, field, inverse) for modes in of_case]
                spans.append(f"{min(each):.2f} to {max(each):.2f}")
            yield [name, str(backups), *spans]


def detail_rows(cases, workload):
    for (mix, growth, backups, separation), modes in cases[workload].items():
        if separation != IN_LEAVES:
            continue
        none, send, build = (modes[mode] for mode in ("none", "send", "build"))
        yield [mix, str(growth), str(backups), *(f"{row['throughput'] / 1000:.0f}" for row in (none, send, build)),
               *(f"{row['cpu_us']:.2f}" for row in (none, send, build)), *(f"{row['io_per_byte']:.2f}" for row in (none, send, build)),
               network(send), f"{build['network_amplification']:.2f}", *(f"{row['cpu_index']:.2f}" for row in (send, build)),
               *(f"{row[name]:.0f}" for name in TAILS for row in (send, build)), *(f"{row['write_path_mib']:.0f}" for row in (none, send, build)),
               f"{ratio(modes, 'throughput', False):.2f}", f"{ratio(modes, 'cpu_us', True):.2f}"]


def pointer_rows(cases):
    keys = [key for key in cases["load"] if key[3] == 1]
    for key in keys:
        for workload in WORKLOADS:
            send, build = (cases[workload][key][mode] for mode in ("send", "build"))
            yield [key[0], workload, network(send), f"{build['network_amplification']:.2f}",
                   f"{send['network_amplification'] / build['network_amplification']:.2f}", *(f"{row['throughput'] / 1000:.0f}" for row in (send, build)),
                   *(f"{row['cpu_index']:.2f}" for row in (send, build))]


def part_rows(cases):
    for mix in ("s", "sd"):
        for workload in WORKLOADS:
            modes = cases[workload].get((mix, 12, 1, IN_LEAVES), {})
            for mode, row in modes.items():
                parts = [row[part] for part in PARTS]
                yield [mix, workload, mode, *(f"{part:.2f}" for part in parts), f"{sum(parts):.2f}"]


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        measured = json.load(file)
    if measured.get("runner") != "replication":
        print(f"replication_tables.py: {sys.argv[1]} is not of the runner 'replication'", file=sys.stderr)
        return 2
    cases = {workload: {} for workload in WORKLOADS}
    for each in measured["cases"]:
        key = tuple(each["case"][name] for name in ("mix", "growth", "backups", "separation"))
        for row in each["rows"]:
            cases[row["workload"]].setdefault(key, {})[row["mode"]] = row
    for workload, name in WORKLOADS.items():
        print(f"## {name}: ratios\nFrom the least to the largest of the growth factors.\n")
        print(table(["mix", "backups", *(heading for heading, _, _ in RATIOS)], ratio_rows(cases, workload)), "\n")
    for workload, name in WORKLOADS.items():
        print(f"## {name}")
        print(table(["mix", "growth", "backups", "1,000 ops/s: none", "Send", "Build", "CPU us: none", "Send", "Build", "device bytes: none", "Send", "Build",
                     "network: Send", "Build", "index us: Send", "Build", "p99 us: Send", "Build", "p99.9: Send", "Build", "p99.99: Send", "Build",
                     "write path MiB: none", "Send", "Build", "Send x Build", "CPU of Build x Send"],
                    detail_rows(cases, workload)), "\n")
    print("## Pointers only in the leaves")
    print(table(["mix", "", "network: Send", "Build", "Send / Build", "1,000 ops/s: Send", "Build", "index us: Send", "Build"], pointer_rows(cases)), "\n")
    print("## Where CPU time goes")
    print(table(["mix", "", "mode", "storage", "network", "log replication", "index replication", "sum"], part_rows(cases)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
