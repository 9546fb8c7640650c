"""What scripts/bench.py consists of.

Reading order: experiments.py (what an experiment is) · results.py (its JSON file) · cli.py (commands) · runners.py and what it names (how a
case is run) · hosts.py, servers.py (where) · plots.py, report.py, readme.py (what becomes of JSON).
"""

import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIGURES = REPOSITORY / "scripts" / "figures"


class Failed(Exception):
    """A case that did not run; its text tells why."""


class Skipped(Exception):
    """A case that cannot run here; its text tells what is missing."""
