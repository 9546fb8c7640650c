"""The JSON file of an experiment: what was run, where, and the rows of each case.

    {"name", "mode", "basis", "runner", "seed", "configuration": {...}, "cases": [{"case": {...}, "rows": [{...}]}
     | {"case": ..., "failed": TEXT} | {"case": ..., "skipped": TEXT}], "run": {"commit", "date", "machine", "seconds", "command"}}

All but "run" is the same for every run of a modelled experiment with one seed. It is written after each case, so that an interrupted run
goes on; cases of another configuration or commit are not kept, nor are those that failed or were skipped.
"""

import json
import os


class Results:
    def __init__(self, path, experiment, mode, run):
        self.path = path
        self.data = {"name": experiment.name, "mode": mode, "basis": experiment.basis, "runner": experiment.runner,
                     "seed": experiment.parameters["seed"], "configuration": experiment.parameters, "cases": [], "run": run}
        self.data["run"].setdefault("seconds", 0.0)

    def keep_from_before(self):
        """Takes over what an earlier run of the same did."""
        try:
            before = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if all(before.get(key) == self.data[key] for key in ("mode", "runner", "configuration")) and \
                before["run"].get("commit") == self.data["run"]["commit"] and before["run"].get("hosts") == self.data["run"]["hosts"]:
            self.data["cases"] = [case for case in before["cases"] if "rows" in case]
            self.data["run"] = {**before["run"], "command": self.data["run"]["command"]}

    def has(self, case):
        return any(done["case"] == case for done in self.data["cases"])

    def add(self, case, outcome, seconds):
        self.data["cases"].append({"case": case, **outcome})
        self.data["run"]["seconds"] = round(self.data["run"]["seconds"] + seconds, 1)

    def write(self, order):
        """In the order of the cases, however they came."""
        places = {json.dumps(case, sort_keys=True): i for i, case in enumerate(order)}
        self.data["cases"].sort(key=lambda done: places.get(json.dumps(done["case"], sort_keys=True), len(places)))
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.path)


def read(path):
    """None where there is none."""
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8"))


def rows_of(data):
    return [{**case["case"], **row} for case in data["cases"] for row in case.get("rows", [])]


def problems_of(data, kind):
    """(case as text, why) of the cases that failed, or were skipped."""
    return [(text_of(case["case"]), case[kind]) for case in data["cases"] if kind in case]


def text_of(case):
    return " ".join(f"{key}={value}" for key, value in case.items() if value not in ("", "any"))
