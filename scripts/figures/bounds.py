#!/usr/bin/env python3
"""What scripts/figures/bounds.sh runs; its options are described there."""

import argparse
import pathlib
import re
import sys
import tomllib

from bench import simulated_runs as runs

SCRIPT = "bounds"
# What papers on these trees conclude from: (name, workload, keys, [systems]); of two systems the ratio counts.
RESULTS = [("c uniform", "c", "uniform", ["tree"]), ("c uniform / FG", "c", "uniform", ["tree", "fg"]),
           ("a uniform", "a", "uniform", ["tree"]), ("a uniform / Sherman", "a", "uniform", ["tree", "sherman"]),
           ("a zipfian", "a", "zipfian", ["tree"]), ("a zipfian / Sherman", "a", "zipfian", ["tree", "sherman"])]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bounds.sh")
    runs.add_options(parser, "build/figures/bounds", "benchmark/models/rf_tree_paper.toml")
    parser.add_argument("--bounds", type=pathlib.Path, default=pathlib.Path("benchmark/models/bounds.toml"))
    parser.add_argument("--clients", type=int, default=96)
    parser.add_argument("--parameters", type=runs.names)
    options = parser.parse_args(arguments)
    runs.set_defaults(parser, options, {"records": 20_000, "confidence": 10, "operations_max": 50_000} if options.quick
                      else {"records": 200_000, "confidence": 2, "operations_max": 4_000_000})
    if not options.bounds.is_file():
        parser.error(f"--bounds: there is no file {options.bounds}")
    return options


def with_values(model, values):
    """The model file's text with other values of some parameters."""
    for key, value in values.items():
        model, found = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value:g}", model)
        if found != 1:
            raise runs.Failed(f"the model has {found} lines of {key}")
    return model


def variants_of(options):
    """Name of a variant, and what it changes: each parameter at both ends, and all of a table."""
    bounds = tomllib.loads(options.bounds.read_text())
    yield "as given", {}
    for table, parameters in bounds.items():
        for key, ends in parameters.items():
            if options.parameters is None or key in options.parameters:
                for end in ends:
                    yield f"{key} = {end:g}", {key: end}
        # atomic_slot_bits is no rate: how addresses share slots is a question of its own.
        joint = [key for key in parameters if key != "atomic_slot_bits"]
        if options.parameters is None:
            # More of a rate is better, more of a time is worse.
            fast, slow = (1, 0) if table == "nic" else (0, 1)
            yield f"all of [{table}] at their best", {key: parameters[key][fast] for key in joint}
            yield f"all of [{table}] at their worst", {key: parameters[key][slow] for key in joint}


def cases_of(options, models):
    seen = set()
    for model in models:
        for _, workload, distribution, systems in RESULTS:
            for system in systems:
                if (model, workload, distribution, system) not in seen:
                    seen.add((model, workload, distribution, system))
                    program = {} if system == "tree" else {"program": f"benchmark/models/programs/{system}.toml"}
                    yield {"model": str(model), "workload": workload, "distribution": distribution, "system": system,
                           "clients": options.clients, **program}


def table_of(rows, variants):
    """Markdown: a line for each variant; throughput in M ops/s, and ratios of throughput."""
    at = {(row["model"], row["workload"], row["distribution"], row["system"]): row["throughput_mops"] for row in rows}
    tail = {(row["model"], row["workload"], row["distribution"], row["system"]): row["p99"] for row in rows
            if row["operation"] == "UPDATE"}
    lines = ["| | " + " | ".join(name for name, *_ in RESULTS) + " | a uniform, update p99, us |",
             "|---|" + "---:|" * (len(RESULTS) + 1)]
    for name, model in variants:
        cells = []
        for _, workload, distribution, systems in RESULTS:
            values = [at[str(model), workload, distribution, system] for system in systems]
            cells.append(f"{values[0]:.2f}" if len(values) == 1 else f"x {values[0] / values[1]:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {tail[str(model), 'a', 'uniform', 'tree']:.1f} |")
    return "\n".join(lines) + "\n"


def main(arguments):
    options = parse(arguments)
    try:
        (options.out / "models").mkdir(parents=True, exist_ok=True)
        given, variants = pathlib.Path(options.model).read_text(), []
        for name, values in variants_of(options):
            path = options.out / "models" / (re.sub(r"[^a-z0-9_]+", "_", name.replace(".", "p")).strip("_") + ".toml")
            path.write_text(with_values(given, values))
            variants.append((name, path))
        cases = list(cases_of(options, [path for _, path in variants]))
        rows = runs.run_all(options, cases, SCRIPT)
        runs.write_data(options, [{key: value for key, value in row.items() if key != "program"} for row in rows], SCRIPT)
    except (runs.Failed, OSError) as failure:
        print(f"{SCRIPT}: {failure}", file=sys.stderr)
        return 3
    table = table_of(rows, variants)
    (options.out / "table.md").write_text(table)
    print(table, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
