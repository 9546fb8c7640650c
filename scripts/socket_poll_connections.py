#!/usr/bin/env python3
"""Runs ycsb against servers in turns, a thread and a connection for each request in flight, and prints what a request costs the
server in processor time, requests a second, latencies, and the median of the rounds' ratios to the first server.

    socket_poll_connections.py --ycsb PROGRAM --results DIR --servers NAME=URL,PID... --connections N...
        --keys N --rounds N --operations N --seed N

socket_poll.sh starts the servers.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

KINDS = {"GET": ("READ", "1", "0"), "SET": ("UPDATE", "0", "1")}


def cpu_seconds(process):
    """Of all threads of a process so far, by the clock that the kernel keeps for it."""
    return time.clock_gettime((~process << 3) | 2)


class Servers:
    def __init__(self, options):
        self.options = options
        self.all = []
        for text in options.servers:
            name, rest = text.split("=", 1)
            url, process = rest.rsplit(",", 1)
            self.all.append((name, url, int(process)))

    def ycsb(self, url, name, *arguments):
        """Returns the JSON of the last phase."""
        options = self.options
        path = os.path.join(options.results, name)
        with open(path + ".log", "w", encoding="utf-8") as log:
            subprocess.run([options.ycsb, "--target", url, "-p", "farleaf.keys=bytes", "-p", "fieldcount=1", "-p",
                            "fieldlength=100", "-p", "requestdistribution=uniform", "-p", f"recordcount={options.keys}",
                            "--json", path + ".json", *arguments], stdout=log, stderr=log, check=True)
        with open(path + ".json", encoding="utf-8") as file:
            return list(json.load(file)["phases"].values())[-1]

    def round(self, server, kind, connections, number):
        """CPU us a request, requests a second, p50 and p99 in us."""
        name, url, process = server
        operation, reads, updates = KINDS[kind]
        before = cpu_seconds(process)
        run = self.ycsb(url, f"{kind.lower()}-{connections}.{name}.{number}", "--phase", "run", "--threads", str(connections),
                        "--in-flight", "1", "--seed", str(self.options.seed + number), "-p", f"readproportion={reads}", "-p",
                        f"updateproportion={updates}", "-p", f"operationcount={self.options.operations}")
        spent = cpu_seconds(process) - before
        latency = run["operations"][operation]["latency_us"]
        return (spent * 1e6 / self.options.operations, run["overall"]["ops_per_second"], latency["p50"], latency["p99"])

    def compare(self, kind, connections):
        rounds = {name: [] for name, _, _ in self.all}
        for number in range(self.options.rounds):
            first = number % len(self.all)
            for server in self.all[first:] + self.all[:first]:
                rounds[server[0]].append(self.round(server, kind, connections, number))
        beside = rounds[self.all[0][0]]
        for name, of in rounds.items():
            median = [statistics.median(column) for column in zip(*of)]
            line = f"{kind:<4} {connections:>11}  {name:<18} {median[0]:>7.3f} {median[1]:>10.0f} {median[2]:>9.1f} {median[3]:>9.1f}"
            if of is not beside:
                ratios = [statistics.median(mine[i] / other[i] for mine, other in zip(of, beside)) for i in (0, 1)]
                line += f"  {ratios[0]:>6.3f} {ratios[1]:>10.3f}"
            print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("ycsb", "results"):
        parser.add_argument("--" + name, required=True)
    for name in ("keys", "rounds", "operations", "seed"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--servers", nargs="+", required=True, metavar="NAME=URL,PID")
    parser.add_argument("--connections", nargs="+", type=int, required=True)
    servers = Servers(parser.parse_args())
    servers.ycsb(servers.all[0][1], "load", "--phase", "load", "--threads", "1", "--in-flight", "64")
    print(f"{'what':<4} {'connections':>11}  {'server':<18} {'CPU us':>7} {'requests/s':>10} {'p50 us':>9} {'p99 us':>9}  "
          f"{'CPU':>6} {'requests/s':>10}")
    for kind in KINDS:
        for connections in servers.options.connections:
            servers.compare(kind, connections)


if __name__ == "__main__":
    main()
