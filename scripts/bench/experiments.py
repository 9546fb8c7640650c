"""An experiment is a folder of scripts/figures:

    parameters.toml    title, about, basis ("measured" or "modelled"), runner, seconds (what it takes on two cores), missing (what it
                       does not show), and [parameters] of the runner, seed among them. [quick] and [tiny] are what is
                       different there: seconds, and parameters; tiny comes on top of quick.
    style.toml         [[figure]]: see plots.py; [table]: see report.py.
"""

import dataclasses
import tomllib

from bench import FIGURES

MODES = ("full", "quick", "tiny")


class BadExperiment(Exception):
    """A folder that is no experiment: names the file and what is wrong in it."""


@dataclasses.dataclass
class Experiment:
    name: str
    title: str
    about: str
    basis: str
    runner: str
    missing: str
    seconds: float
    parameters: dict
    style: dict

    @property
    def figures(self):
        return self.style.get("figure", [])


def names(directory=FIGURES):
    """Folders with parameters, in the order of a report: `order` in style.toml, then by name."""
    found = [path.parent for path in directory.glob("*/parameters.toml")]
    return [path.name for path in sorted(found, key=lambda path: (read_toml(path / "style.toml").get("order", 1000), path.name))]


def read_toml(path):
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise BadExperiment(f"{path}: {problem}") from problem


def load(name, mode, directory=FIGURES):
    path = directory / name / "parameters.toml"
    data, style = read_toml(path), read_toml(directory / name / "style.toml")
    parameters, seconds = dict(data.get("parameters", {})), data.get("seconds", 0)
    for of_mode in MODES[1:MODES.index(mode) + 1]:
        different = dict(data.get(of_mode, {}))
        seconds = different.pop("seconds", seconds)
        for key in different:
            if key not in parameters:
                raise BadExperiment(f"{path}: [{of_mode}] has {key}, which [parameters] has not")
        parameters |= different
    for key in ("title", "about", "basis", "runner"):
        if not isinstance(data.get(key), str):
            raise BadExperiment(f"{path}: {key} = \"...\" is missing")
    if data["basis"] not in ("measured", "modelled"):
        raise BadExperiment(f"{path}: basis is {data['basis']}, not measured or modelled")
    if "seed" not in parameters:
        raise BadExperiment(f"{path}: [parameters] has no seed")
    return Experiment(name, data["title"], data["about"], data["basis"], data["runner"], data.get("missing", ""), seconds, parameters, style)
