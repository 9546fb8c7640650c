"""The commands of scripts/bench.py."""

import argparse
import concurrent.futures
import datetime
import json
import pathlib
import signal
import sys
import time

from bench import REPOSITORY, Failed, Skipped, experiments, hosts, machine, plots, readme, report, results, runners

EXIT_USAGE, EXIT_FAILED = 2, 3


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench.py", description="Experiments of scripts/figures: run them, plot them, report them.", epilog=(
        "Commands: list (what there is, and what it takes) · run (JSON, one file an experiment; goes on where it was) · plot (SVG and PDF from JSON) · "
        "report (run what is missing, plot, DIR/report.html) · readme (README.md's results from DIR's JSON). "
        "Exit code: 0; 1: readme --check found README.md different; 2: wrong arguments; 3: a case failed, the others are there."))
    parser.add_argument("command", choices=["list", "run", "plot", "report", "readme"])
    parser.add_argument("directory", type=pathlib.Path, nargs="?", metavar="DIR", help="readme: whose JSON; none: benchmark/results.json")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="minutes on a laptop instead of hours")
    size.add_argument("--tiny", action="store_true", help="seconds, which show that it works and nothing else (the tests)")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, plots and report (results/bench, results/bench-quick)")
    parser.add_argument("--hosts", type=pathlib.Path, metavar="FILE", help="a rack over ssh instead of this machine (scripts/bench/hosts.py has the format)")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="NAMES", help="of the experiments, comma-separated")
    parser.add_argument("--fresh", action="store_true", help="repeat what is there")
    parser.add_argument("--bin", default=str(REPOSITORY / "build/release/bin"), metavar="DIR", help="programs (build/release/bin)")
    parser.add_argument("--figures", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="readme: change nothing, fail if README.md says something else")
    options = parser.parse_args(arguments)
    if options.directory and options.command != "readme":
        parser.error(f"{options.command} takes no argument; --out {options.directory}?")
    options.mode = "tiny" if options.tiny else "quick" if options.quick else "full"
    options.out = options.out or REPOSITORY / "results" / ("bench" if options.mode == "full" else f"bench-{options.mode}")
    known = experiments.names()
    for name in options.only or []:
        if name not in known:
            parser.error(f"--only: there is no experiment {name}; there are {', '.join(known)}")
    options.names = [name for name in known if not options.only or name in options.only]
    return options


def command_line(options):
    """What gives the same run, but for --only and the command."""
    parts = ["scripts/bench.py"] + ([f"--{options.mode}"] if options.mode != "full" else [])
    parts += ["--hosts", str(options.hosts)] if options.hosts else []
    return " ".join(parts)


def say(text):
    print(f"bench.py: {text}", file=sys.stderr, flush=True)


class Progress:
    """What is left, by what experiments are said to take, scaled by what those that ended took."""

    def __init__(self, loaded):
        self.left = {experiment.name: experiment.seconds for experiment in loaded}
        self.said = self.took = 0.0
        say(f"{len(loaded)} experiments, about {sum(self.left.values()) / 60:.1f} min on two cores: "
            + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.left.items()))

    def case(self, experiment, done, count, case, outcome, spent):
        factor = min(10, max(0.1, self.took / self.said)) if self.said else 1
        of_this = spent / done * (count - done)
        left = of_this + factor * sum(seconds for name, seconds in self.left.items() if name != experiment.name)
        what = "" if "rows" in outcome else f": {'FAILED' if 'failed' in outcome else 'skipped'}: {outcome.get('failed', outcome.get('skipped'))}"
        say(f"{experiment.name}: {done} of {count}, about {left:.0f} s left: {results.text_of(case)}{what}")

    def ended(self, experiment, seconds):
        self.said, self.took = self.said + self.left.pop(experiment.name), self.took + seconds


def outcome_of(runner, case):
    """What becomes of a case: it never raises, so that others go on."""
    begin = time.monotonic()
    try:
        rows = runner.run(case)
        outcome = {"rows": json.loads(json.dumps(rows, allow_nan=False))}
    except Skipped as why:
        outcome = {"skipped": str(why)}
    except (Failed, OSError, KeyError, ValueError, ArithmeticError, TypeError, IndexError) as problem:
        outcome = {"failed": str(problem) if isinstance(problem, Failed) else repr(problem)}
    except Exception as problem:  # a runner's own
        outcome = {"failed": f"{type(problem).__name__}: {problem}"}
    return outcome, time.monotonic() - begin


def run_experiment(options, experiment, rack, run, progress):
    """Whether all cases ran or were skipped."""
    directory = options.out / "logs" / experiment.name
    directory.mkdir(parents=True, exist_ok=True)
    runner = runners.make(experiment.runner, experiment.parameters, runners.Context(rack, options.bin, directory))
    cases = list(runner.cases())
    kept = results.Results(options.out / f"{experiment.name}.json", experiment, options.mode, dict(run))
    if not options.fresh:
        kept.keep_from_before()
    missing = [case for case in cases if not kept.has(case)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(runner.jobs) as pool:
        try:
            running = {pool.submit(outcome_of, runner, case): case for case in missing}
            for done, future in enumerate(concurrent.futures.as_completed(running), 1):
                case, (outcome, seconds) = running[future], future.result()
                kept.add(case, outcome, seconds / runner.jobs)
                kept.write(cases)
                progress.case(experiment, done, len(missing), case, outcome, time.monotonic() - begin)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    kept.write(cases)
    progress.ended(experiment, time.monotonic() - begin)
    return not any("failed" in case for case in kept.data["cases"])


def run(options):
    """Whether everything ran."""
    rack = hosts.read_rack(options.hosts, options.bin) if options.hosts else hosts.this_machine(options.bin)
    loaded = [experiments.load(name, options.mode) for name in options.names]
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"commit": machine.commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
             "machine": machine.describe(options.bin), "hosts": str(options.hosts or ""), "command": command_line(options)}
    progress = Progress(loaded)
    return all([run_experiment(options, experiment, rack, about, progress) for experiment in loaded])


def plot(options):
    for experiment, data, _ in report.read_experiments(options.out, options.names):
        rows = results.rows_of(data)
        for figure in experiment.figures:
            path = options.out / f"{experiment.name}.{figure['name']}"
            drawn = plots.draw(figure, rows)
            for suffix, content in zip((".svg", ".pdf"), drawn or (None, None)):
                file = path.with_name(path.name + suffix)
                if content is None:
                    file.unlink(missing_ok=True)
                else:
                    file.write_bytes(content.encode() if isinstance(content, str) else content)


def list_experiments(options):
    for name in options.names:
        quick, full = experiments.load(name, "quick"), experiments.load(name, "full")
        print(f"{name:<24} {full.basis:<9} quick {quick.seconds:>4.0f} s, full {full.seconds:>6.0f} s  {full.title}")


def interrupt(*_):
    raise KeyboardInterrupt


def main(arguments):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, interrupt)  # as Ctrl-C: servers are stopped
    try:
        if options.command == "list":
            list_experiments(options)
            return 0
        if options.command == "readme":
            return readme.main(options.directory, options.check)
        complete = run(options) if options.command in ("run", "report") else True
        if options.command in ("plot", "report"):
            plot(options)
        if options.command == "report":
            # Of all that is there, also where only some were run again.
            shown = list(report.read_experiments(options.out, experiments.names()))
            say(f"{report.write(options.out, shown, options.mode)}")
    except (hosts.BadHosts, experiments.BadExperiment, plots.NoMatplotlib) as problem:
        say(str(problem))
        return EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    if not complete:
        say("some cases failed; they are named above and in the report")
        return EXIT_FAILED
    return 0
