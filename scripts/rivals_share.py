#!/usr/bin/env python3
"""Prints what the tree's operations are of the native server's processor time for a request.

    rivals_share.py RESULTS

RESULTS is where rivals.sh leaves rivals.json and embedded-get.json, embedded-set.json: the same operations by ycsb, in one
process with the tree. Its generator, checks and clock readings are in its figures, so that the share is an upper bound; what
the server saves where it looks at requests that came together side by side is not.
"""

import json
import os
import sys


def main(arguments):
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2

    def load(name):
        with open(os.path.join(arguments[0], name), encoding="utf-8") as file:
            return json.load(file)

    native = {result["request"]: result for result in load("rivals.json")["results"]
              if result["server"] == "farleaf-native"}
    if not native:  # it is measured at 64 in flight only
        return 0
    print("the tree's part of the native server's processor time, at most: the same operations in one process")
    print(f"{'what':<4} {'depth':>5} {'native us':>10} {'user':>7} {'kernel':>7} {'embedded us':>12} {'share':>6}")
    for what in ("GET", "SET"):
        server = native[what]
        embedded_us = load(f"embedded-{what.lower()}.json")["phases"]["run"]["overall"]["cpu_ns_per_op"] / 1e3
        print(f"{what:<4} {server['depth']:>5} {server['cpu_us']:>10.3f} {server['user_us']:>7.3f} "
              f"{server['kernel_us']:>7.3f} {embedded_us:>12.3f} {embedded_us / server['cpu_us']:>6.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
