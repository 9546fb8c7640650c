"""What an experiment's `runner` may be, and what all of them have in common.

A runner is made of an experiment's parameters. `cases()` are dictionaries of text and numbers, always the same and in the same order;
`run(case)` returns rows, one dictionary each, and raises Failed or Skipped. `jobs`: cases that may run at a time.
"""

import dataclasses
import importlib
import pathlib

from bench import hosts

RUNNERS = {"simulated": "runner_simulated", "pool": "runner_pool", "front_ends": "runner_front_ends", "stores": "runner_stores",
           "rivals": "runner_rivals", "pieces": "runner_pieces", "series": "runner_series", "operations": "runner_operations",
           "replication": "runner_replication"}


@dataclasses.dataclass
class Context:
    rack: hosts.Rack
    programs: str            # of this machine
    directory: pathlib.Path  # for logs and data in between; results of one experiment only


class Runner:
    jobs = 1

    def __init__(self, parameters, context):
        self.parameters, self.context = parameters, context

    def __getattr__(self, name):
        """parameters.toml's values, as attributes."""
        try:
            return self.__dict__["parameters"][name]
        except KeyError:
            raise AttributeError(f"parameters.toml has no {name}") from None

    @property
    def fabrics(self):
        """The experiment's, or, on a rack, the rack's."""
        return self.parameters["fabrics"] if self.context.rack.is_local else list(self.context.rack.fabrics)

    def cases(self):
        raise NotImplementedError

    def run(self, case):
        raise NotImplementedError


def make(name, parameters, context):
    return importlib.import_module(f"bench.{RUNNERS[name]}").make(parameters, context)
