#!/usr/bin/env python3
"""Two builds of `micro --operations` in turns, round by round, on a machine that others use, too.

  scripts/compare_micro.py BEFORE AFTER [--rounds N] [arguments of micro --operations]

Each program loads a tree of its own and stays; then they take turns, one round of batches each, in
alternate order, so that what disturbs one disturbs the other. Printed of each operation: medians and lower quartiles of CPU
ns, of the same in copies of 1 KiB of the same round, and the median of the rounds' ratios, with its quartiles.
"""
import statistics
import subprocess
import sys


class Micro:
    def __init__(self, program, arguments):
        self.process = subprocess.Popen([program, "--operations", "--paced", *arguments], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ready(self):
        """Reads a line: empty once the tree is loaded, then of the round before."""
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            sys.exit(f"compare_micro.py: micro has ended with {self.process.wait()}")
        words = line.split()
        return dict(zip(words[::2], map(float, words[1::2])))

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.ready()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait()


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def main():
    arguments = sys.argv[1:]
    if len(arguments) < 2 or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    rounds = 60
    if "--rounds" in arguments:
        at = arguments.index("--rounds")
        rounds = int(arguments[at + 1])
        del arguments[at:at + 2]
    builds = [Micro(program, arguments[2:]) for program in arguments[:2]]
    for build in builds:
        build.ready()
    told = []
    for number in range(rounds + 1):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        of_builds = [None, None]
        for which in order:
            of_builds[which] = builds[which].round()
        if number > 0:  # the first one warms up
            told.append(of_builds)
    for build in builds:
        if build.end() != 0:
            sys.exit("compare_micro.py: micro has failed")
    print(f"{rounds} rounds in turns; CPU ns and copies: median (lower quartile); ratio: median (quartiles)")
    print(f"{'operation':<18}{'ns before':>16}{'ns after':>16}{'copies before':>16}{'copies after':>16}"
          f"{'after/before':>22}")
    for name in told[0][0]:
        row = f"{name:<18}"
        for scaled in (False, True):
            for which in (0, 1):
                values = [each[which][name] / (each[which]["copy_1024"] if scaled else 1)
                          for each in told]
                low, middle, _ = quartiles(values)
                row += f"{middle:.2f} ({low:.2f})".rjust(16) if scaled else \
                    f"{middle:.0f} ({low:.0f})".rjust(16)
        low, middle, high = quartiles([each[1][name] / each[0][name] for each in told])
        print(row + f"{middle:.3f} ({low:.3f}-{high:.3f})".rjust(22))


main()
