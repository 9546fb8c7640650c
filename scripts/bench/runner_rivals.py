"""What scripts/rivals.sh measures: Farleaf's front ends beside redis-server and memcached, one server thread each, rounds in turns.

Parameters: keys, rounds, round_ms, depths."""

import json
import os
import shutil
import statistics
import subprocess

from bench import REPOSITORY, Failed, Skipped, ratios, runners


class Rivals(runners.Runner):
    def cases(self):
        yield {"depths": ",".join(map(str, self.depths))}

    def run(self, case):
        if not self.context.rack.is_local:
            raise Skipped("one machine's experiment: run it there without --hosts")
        for program in ("redis-server", "memcached"):
            if not shutil.which(program):
                raise Skipped(f"{program} is not installed")
        settings = {"KEYS": self.keys, "ROUNDS": self.rounds, "ROUND_MS": self.round_ms, "DEPTHS": case["depths"], "SEED": self.seed, "EMBEDDED": 0,
                    "RING_REQUESTS": 0, "BIN": self.context.programs, "RESULTS": self.context.directory}
        done = subprocess.run([REPOSITORY / "scripts" / "rivals.sh"], env={**os.environ, **{key: str(value) for key, value in settings.items()}},
                              capture_output=True, text=True, check=False, timeout=3600)
        if done.returncode != 0:
            raise Failed(f"scripts/rivals.sh: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
        return list(rows_of(json.loads((self.context.directory / "rivals.json").read_text(encoding="utf-8"))["results"]))


def rows_of(measured):
    """A row for each server, request and depth; ratios of each round to the rival's, with the interval of all of them."""
    at = {(one["request"], one["depth"], one["server"]): one for one in measured}
    for one in measured:
        row = {key: value for key, value in one.items() if not isinstance(value, list) and not key.endswith("_ratio")}
        row = {key.replace("p99.9", "p999"): value for key, value in row.items()}
        row["shape"] = f"{one['request']}, {one['depth']}"
        if rival := at.get((one["request"], one["depth"], one.get("rival"))):
            for name in ("cpu_us", "requests_per_second"):
                pairs = [own / other for own, other in zip(one[f"{name}_of_rounds"], rival[f"{name}_of_rounds"]) if own and other]
                if pairs:
                    _, low, high = ratios.interval_of(pairs)
                    row |= {f"{name}_ratio": statistics.median(pairs), f"{name}_ratio_low": low, f"{name}_ratio_high": high}
        yield row


def make(parameters, context):
    return Rivals(parameters, context)
