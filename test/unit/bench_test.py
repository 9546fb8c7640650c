#!/usr/bin/env python3
"""What scripts/bench.py does with parameters, rows, failures, hosts and pages; it runs no program of ours. bench_test.py [unittest's options]"""

import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from bench import (Failed, Skipped, check_report, cli, experiments, hosts, machine, plots, ratios, readme, report, results,  # noqa: E402
                   runner_pool, runner_replication, runner_rivals, runner_series, runner_simulated, runner_stores, runners, ycsb)

FIGURE = {"name": "f", "title": "F", "kind": "lines", "panel": "workload", "x": "clients", "y": "rate", "series": "system",
          "labels": {"tree": "this tree", "other": "the other"}}


def row(**values):
    return {"workload": "a", "clients": 1, "rate": 2.0, "system": "tree", **values}


class Arranging(unittest.TestCase):
    def test_rows_that_lack_a_field_are_left_out(self):
        rows = [row(), row(clients=2, rate=None), {"workload": "a", "clients": 3, "system": "tree"}, row(clients=4, rate=float("nan"))]
        arranged, series = plots.arrange(FIGURE, rows)
        self.assertEqual(arranged, {"a": {"this tree": [(1, 2.0, None, None)]}})
        self.assertEqual(series, ["this tree"])

    def test_series_come_in_the_order_of_labels_and_unknown_ones_last(self):
        rows = [row(system="new"), row(system="other"), row(system="tree")]
        self.assertEqual(plots.arrange(FIGURE, rows)[1], ["this tree", "the other", "new"])

    def test_where_panels_and_factor_apply(self):
        figure = FIGURE | {"where": {"kind": ["x"]}, "panels": {"b": "B", "a": "A"}, "y_factor": 10, "low": "least"}
        arranged, _ = plots.arrange(figure, [row(kind="y"), row(kind="x", least=1.0), row(kind="x", workload="b")])
        self.assertEqual(list(arranged.items()), [("b", {"this tree": [(1, 20.0, None, None)]}), ("a", {"this tree": [(1, 20.0, 10.0, None)]})])

    def test_melt_makes_a_point_of_each_field_that_is_there(self):
        figure = FIGURE | {"melt": ["p50", "p99"], "melted": {"p50": "50"}, "x": "melted", "y": "value"}
        self.assertEqual(plots.arrange(figure, [row(p50=1.0, p99=3.0), row(p50=5.0)])[0]["a"]["this tree"],
                         [("50", 1.0, None, None), ("p99", 3.0, None, None), ("50", 5.0, None, None)])

    def test_a_figure_without_rows_is_none(self):
        self.assertIsNone(plots.draw(FIGURE, []))
        self.assertIsNone(plots.draw(FIGURE, [row(rate=None)]))


class Ratios(unittest.TestCase):
    def test_each_round_begins_with_another_system(self):
        self.assertEqual([ratios.turn(["a", "b", "c"], i)[0] for i in range(4)], ["a", "b", "c", "a"])

    def test_interval_is_of_the_ratios_of_one_round(self):
        rounds = {"first": [[{"operation": "READ", "throughput": 10.0}], [{"operation": "READ", "throughput": 20.0}]],
                  "second": [[{"operation": "READ", "throughput": 20.0}], [{"operation": "READ", "throughput": 40.0}]]}
        first, second = ratios.rows_of(rounds, "system")
        self.assertNotIn("throughput_ratio", first)
        self.assertAlmostEqual(second["throughput_ratio"], 2.0)
        self.assertAlmostEqual(second["throughput_ratio_low"], 2.0)
        self.assertEqual((second["throughput"], second["throughput_low"], second["throughput_high"]), (30.0, 20.0, 40.0))

    def test_interval_of_known_ratios(self):
        mean, low, high = ratios.interval_of([1.0, 4.0])
        self.assertAlmostEqual(mean, 2.0)
        self.assertLess(low, 0.01)
        self.assertGreater(high, 400)
        self.assertEqual(ratios.interval_of([3.0])[1:], (None, None))

    def test_a_round_that_lacks_a_kind_of_operation_is_no_ratio(self):
        rounds = {"first": [[]], "second": [[{"operation": "READ", "throughput": 1.0}]]}
        self.assertNotIn("throughput_ratio", ratios.rows_of(rounds, "system")[0])


class Processes(unittest.TestCase):
    def test_processes_at_a_time_add_up(self):
        def phase(rate, count, p99):
            latency = {name: p99 for name in ycsb.PERCENTILES}
            return {"overall": {"ops_per_second": rate, "cpu_ns_per_op": 1000.0 * count, "count": count},
                    "operations": {"READ": {"count": count, "latency_us": latency, "round_trips_per_op": float(count)}}}
        one, = ycsb.rows_of([phase(10.0, 1, 5.0), phase(20.0, 3, 2.0)])
        self.assertEqual((one["throughput"], one["p99"], one["count"]), (30.0, 5.0, 4))
        self.assertAlmostEqual(one["round_trips"], (1 + 9) / 4)
        self.assertAlmostEqual(one["cpu_us"], (1 + 9) / 4)


class Rows(unittest.TestCase):
    def test_a_simulated_operation_is_the_sum_of_its_parts(self):
        def result(mean_us, cpu_ns):
            model = {"cpu.operation_ns": 400, "cpu.post_ns": 100, "cpu.complete_ns": 80, "cpu.verb_ns": 20, "cpu.read_byte_ns": 0.5, "cpu.write_byte_ns": 1}
            kind = {"count": 3, "round_trips_per_op": 2, "verbs_per_op": 5, "atomics_per_op": 1, "bytes_read_per_op": 100, "bytes_written_per_op": 40,
                    "latency_us": {"mean": mean_us}}
            return {"operations": {"UPDATE": kind}, "overall": {"cpu_ns_per_op": cpu_ns}, "phases": {"run": {"simulation": {"model": model}}}}
        row = runner_simulated.breakdown_of(result(9.0, 1000), result(4.0, 1000))
        self.assertAlmostEqual(row["checksum_us"], 0.09)
        self.assertAlmostEqual(row["search_us"], 1.0 - 0.09 - 0.46)
        self.assertAlmostEqual(row["fabric_us"], 3.0 + 0.46)
        self.assertAlmostEqual(row["waiting_us"], 5.0)
        self.assertAlmostEqual(sum(row[name] for name in ("checksum_us", "search_us", "fabric_us", "waiting_us")), row["mean_us"])

    def test_device_bytes_of_a_store_hold_what_follows_the_phase(self):
        latency = {name: 1.0 for name in ycsb.PERCENTILES}
        phase = {"overall": {"ops_per_second": 5.0, "cpu_ns_per_op": 2000.0, "longest_stall_us": 3000.0, "max_rss_bytes": 2**20},
                 "operations": {"READ": {"latency_us": latency}, "UPDATE": {"latency_us": latency | {"p999": 7.0}}},
                 "store": {"UserBytesRead": 10, "UserBytesWritten": 30, "DeviceBytesRead": 20, "DeviceBytesWritten": 40, "SpaceAmplification": 2.0},
                 "settle": {"DeviceBytesRead": 4, "DeviceBytesWritten": 16, "SpaceAmplification": 1.5}}
        row = runner_stores.row_of(phase)
        self.assertEqual((row["read_per_byte"], row["written_per_byte"], row["io_per_byte"]), (24 / 40, 56 / 40, 80 / 40))
        self.assertEqual((row["p999"], row["space"], row["stall_ms"], row["cpu_us"]), (7.0, 1.5, 3.0, 2.0))

    def test_a_replicated_phase_is_told_with_what_followed_it(self):
        latency = {name: 1.0 for name in ycsb.PERCENTILES}
        figures = {"PrimaryBytesRead": 10, "PrimaryBytesWritten": 30, "BackupBytesRead": 0, "BackupBytesWritten": 20, "WritePathBytes": 2**21,
                   "NetworkBytes": 60, "PredictedNetworkBytes": 55, "LogReplicationBytes": 40, "TableShippingBytes": 15, "MessageBytes": 5}
        figures |= {name: 6000 for name in runner_replication.CPU_PARTS}
        later = figures | {"NetworkBytes": 80, "PredictedNetworkBytes": 75, "TableShippingBytes": 35, "CpuIndexReplication(us)": 9000}
        phase = {"overall": {"ops_per_second": 5.0, "cpu_ns_per_op": 2000.0, "longest_stall_us": 3000.0, "count": 1000},
                 "operations": {"INSERT": {"latency_us": latency}},
                 "store": {"UserBytesRead": 0, "UserBytesWritten": 40, "DeviceBytesRead": 20, "DeviceBytesWritten": 40, **figures},
                 "settle": {"DeviceBytesRead": 4, "DeviceBytesWritten": 16, "CpuTime(ms)": 3.0, **later}}
        row = runner_replication.row_of(phase)
        self.assertEqual((row["cpu_us"], row["cpu_index"], row["cpu_storage"]), (5.0, 9.0, 6.0))
        self.assertEqual((row["network_amplification"], row["tables_per_byte"], row["io_per_byte"]), (3.0, 35 / 40, 80 / 40))
        self.assertEqual(row["network_predicted"], 1 + 75 / 40)
        self.assertEqual((row["primary_io_per_byte"], row["backup_io_per_byte"], row["write_path_mib"]), (1.0, 0.5, 2.0))

    def test_rivals_are_compared_round_by_round(self):
        def server(name, cpu, rate, **more):
            return {"request": "GET", "depth": 1, "server": name, "cpu_us": cpu[0], "cpu_us_of_rounds": cpu, "requests_per_second_of_rounds": rate, **more}
        rival, own = runner_rivals.rows_of([server("redis", [2.0, 4.0, 8.0], [1.0, 1.0, 1.0]),
                                            server("farleaf-redis", [1.0, 2.0, 4.0], [3.0, 3.0, 3.0], rival="redis")])
        self.assertNotIn("cpu_us_ratio", rival)
        self.assertEqual((own["cpu_us_ratio"], own["requests_per_second_ratio"]), (0.5, 3.0))
        self.assertAlmostEqual(own["cpu_us_ratio_low"], 0.5)

    def test_a_sweep_varies_its_own_axis_only(self):
        parameters = {"fabrics": ["shm"], "memory_servers": [2, 9], "clients": [1], "threads": [1], "in_flight": [4], "workloads": ["load", "a"],
                      "distributions": ["zipfian", "uniform"], "sweeps": [{"threads": [1, 2]}, {"clients": [3]}]}
        context = runners.Context(hosts.this_machine("bin"), "bin", pathlib.Path("."))
        cases = list(runner_pool.Pool(parameters, context).cases())
        self.assertEqual({(case["sweep"], case["threads"], case["clients"], case["memory_servers"]) for case in cases},
                         {("threads", 1, 1, 2), ("threads", 2, 1, 2), ("clients", 1, 3, 2)})
        self.assertEqual(len(cases), 3 * 3)  # load has no distribution


class Series(unittest.TestCase):
    def test_kinds_of_one_interval_are_one_row_and_the_last_one_only_if_it_is_whole(self):
        def one(second, rate, p99):
            return {"second": second, "ops_per_s": rate, "p50_us": None, "p99_us": p99, "p999_us": p99, "max_us": p99}
        series = {"interval_s": 1.0, "last_interval_s": 1.0, "READ": [one(0, 10, 1.0), one(1, 5, None)], "UPDATE": [one(0, 2, 3.0), one(1, 0, None)]}
        rows = list(runner_series.rows_of({"series": series}))
        self.assertEqual([(row["second"], row["throughput"], row["p99"], row["p50"]) for row in rows], [(0, 12, 3.0, None), (1, 5, None, None)])
        self.assertEqual(len(list(runner_series.rows_of({"series": series | {"last_interval_s": 0.2}}))), 1)
        with self.assertRaises(Failed):
            list(runner_series.rows_of({}))


class FakeRunner(runners.Runner):
    ran = []

    def cases(self):
        return [{"n": n} for n in self.parameters["cases"]]

    def run(self, case):
        self.ran.append(case["n"])
        if case["n"] == 2:
            raise Failed("the second is broken")
        if case["n"] == 3:
            raise Skipped("no such thing here")
        return [row(clients=case["n"])]


class Running(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.figures = self.directory / "figures"
        (self.figures / "fake").mkdir(parents=True)
        self.write_parameters("cases = [1, 2, 3, 4]")
        (self.figures / "fake" / "style.toml").write_text(
            '[[figure]]\nname = "f"\ntitle = "F"\nx = "clients"\ny = "rate"\nseries = "system"\n[table]\ncolumns = {clients = "clients", rate = "r"}\n')
        self.enterContext(mock.patch.object(experiments.names, "__defaults__", (self.figures,)))
        self.enterContext(mock.patch.object(experiments.load, "__defaults__", (self.figures,)))
        self.enterContext(mock.patch.object(runners, "make", lambda name, parameters, context: FakeRunner(parameters, context)))
        self.enterContext(mock.patch.object(machine, "commit", lambda: "abc"))
        self.enterContext(mock.patch.object(cli, "say", lambda text: self.said.append(text)))
        self.said, FakeRunner.ran = [], []

    def write_parameters(self, more, quick="cases = [1]"):
        (self.figures / "fake" / "parameters.toml").write_text(
            f'title = "T"\nabout = "A <b>"\nbasis = "measured"\nrunner = "fake"\nseconds = 5\n[parameters]\nseed = 1\n{more}\n[quick]\n{quick}\n')

    def bench(self, *arguments):
        return cli.main([*arguments, "--out", str(self.directory / "out"), "--only", "fake"])

    def data(self):
        return json.loads((self.directory / "out" / "fake.json").read_text())

    def test_a_failed_case_is_named_and_the_others_run(self):
        self.assertEqual(self.bench("run"), 3)
        self.assertEqual(FakeRunner.ran, [1, 2, 3, 4])
        self.assertEqual([sorted(set(case) - {"case"}) for case in self.data()["cases"]], [["rows"], ["failed"], ["skipped"], ["rows"]])
        self.assertTrue(any("n=2" in text and "the second is broken" in text for text in self.said))

    def test_an_interrupted_run_goes_on_and_fresh_repeats(self):
        self.bench("run")
        FakeRunner.ran = []
        self.assertEqual(self.bench("run"), 3)
        self.assertEqual(FakeRunner.ran, [2, 3])
        FakeRunner.ran = []
        self.bench("run", "--fresh")
        self.assertEqual(FakeRunner.ran, [1, 2, 3, 4])

    def test_another_configuration_or_commit_begins_anew(self):
        self.write_parameters("cases = [1, 4]")
        self.assertEqual(self.bench("run"), 0)
        FakeRunner.ran = []
        self.assertEqual(self.bench("run"), 0)
        self.assertEqual(FakeRunner.ran, [])
        with mock.patch.object(machine, "commit", lambda: "def"):
            self.bench("run")
        self.assertEqual(FakeRunner.ran, [1, 4])
        self.write_parameters("cases = [1, 4]\nrecords = 7")
        self.bench("run")
        self.assertEqual(FakeRunner.ran, [1, 4, 1, 4])

    def test_report_names_failures_and_escapes_text(self):
        self.assertEqual(self.bench("report"), 3)
        page = (self.directory / "out" / "report.html").read_text()
        self.assertIn("the second is broken", page)
        self.assertIn("no such thing here", page)
        self.assertIn("A &lt;b&gt;", page)
        self.assertEqual(check_report.problems_of_page(page, ["fake.f"]), [])

    def test_a_report_of_some_shows_the_others_that_are_there(self):
        (self.figures / "other").mkdir()
        for name in ("parameters.toml", "style.toml"):
            (self.figures / "other" / name).write_text((self.figures / "fake" / name).read_text().replace('title = "T"', 'title = "Other"'))
        cli.main(["run", "--out", str(self.directory / "out"), "--only", "other"])
        self.bench("report")
        page = (self.directory / "out" / "report.html").read_text()
        self.assertIn('id="other"', page)
        self.assertIn('id="fake"', page)

    def test_plots_are_of_json_only_and_the_same_each_time(self):
        self.bench("run")
        self.bench("plot")
        path = self.directory / "out" / "fake.f.svg"
        before = path.read_bytes()
        path.unlink()
        FakeRunner.ran = []
        self.bench("plot")
        self.assertEqual((path.read_bytes(), FakeRunner.ran), (before, []))

    def test_quick_overrides_what_is_there_and_nothing_else(self):
        self.assertEqual(experiments.load("fake", "quick").parameters["cases"], [1])
        self.write_parameters("cases = [1]", "cases_of = [1]")
        self.assertEqual(self.bench("run", "--quick"), 2)
        self.assertIn("cases_of", self.said[-1])


class Experiments(unittest.TestCase):
    def test_every_experiment_loads_in_every_mode_and_lists_the_same_cases_twice(self):
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in experiments.names():
            for mode in experiments.MODES:
                with self.subTest(experiment=name, mode=mode):
                    experiment = experiments.load(name, mode)
                    context = runners.Context(hosts.this_machine("bin"), "bin", directory)
                    cases = list(runners.make(experiment.runner, experiment.parameters, context).cases())
                    self.assertEqual(cases, list(runners.make(experiment.runner, experiment.parameters, context).cases()))
                    self.assertTrue(cases)
                    self.assertTrue(experiment.figures)
                    self.assertEqual(len(cases), len({json.dumps(case) for case in cases}))
                    self.assertGreater(experiment.seconds, 0)
                    for figure in experiment.figures:
                        self.assertTrue({"name", "title", "caption", "x", "y", "series"} <= set(figure), figure.get("name"))

    def test_quick_stays_within_its_budget(self):
        self.assertLess(sum(experiments.load(name, "quick").seconds for name in experiments.names()), 15 * 60)


class Readme(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.readme, summary = self.directory / "README.md", self.directory / "results.json"
        self.readme.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
        for name, value in (("README", self.readme), ("SUMMARY", summary), ("REPOSITORY", self.directory)):
            self.enterContext(mock.patch.object(readme, name, value))
        run = {"commit": "abc", "date": "2026-01-01", "command": "scripts/bench.py",
               "machine": {"cpu": "P", "cores": 2, "memory_gib": 4, "system": "S"}}
        row = {"request": "GET", "depth": 16, "server": "farleaf-redis", "rival": "redis", "cpu_us": 1.25, "cpu_us_ratio": 0.5, "cpu_us_ratio_low": 0.4,
               "cpu_us_ratio_high": 0.6, "requests_per_second_ratio": 2.0, "cpu_us_of_nothing": 3}
        data = {"mode": "full", "configuration": {"rounds": 3, "depths": [1]}, "cases": [{"case": {"depths": "16"}, "rows": [row]}], "run": run}
        (self.directory / "rivals.json").write_text(json.dumps(data))

    def test_section_is_rewritten_between_the_markers_and_checked(self):
        self.assertEqual(readme.main(self.directory, False), 0)
        text = self.readme.read_text()
        self.assertTrue(text.startswith(f"before\n{readme.BEGIN}\n") and text.endswith(f"{readme.END}\nafter\n"))
        self.assertIn("| GET, 16 in flight | Farleaf, Redis protocol | redis | 1.25 | 0.50 (0.40 to 0.60) | 2.00 |", text)
        self.assertNotIn("old", text)
        self.assertEqual(readme.main(None, True), 0)
        self.readme.write_text(text.replace("0.50", "0.49"))
        with mock.patch("sys.stderr"):
            self.assertEqual(readme.main(None, True), 1)
        self.assertIn("0.49", self.readme.read_text())
        self.assertEqual(readme.main(None, False), 0)
        self.assertEqual(self.readme.read_text(), text)

    def test_a_readme_without_markers_and_a_directory_without_results_are_refused(self):
        with mock.patch("sys.stderr"):
            self.assertEqual(readme.main(self.directory / "nothing", False), 2)
            self.readme.write_text(f"{readme.BEGIN}")
            self.assertEqual(readme.main(self.directory, False), 2)


class Racks(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def rack(self, text):
        path = self.directory / "rack.toml"
        path.write_text(text)
        return hosts.read_rack(path, "bin")

    def test_what_is_wrong_with_a_file_is_named(self):
        for text, named in (("clients = 3", "clients"), ("[[memory_server]]\nssh = 'a'", r"\[\[compute_server\]\]"),
                            ("[[memory_server]]\nhost = 'a'\n[[compute_server]]\n[[client]]\nssh='x'", "host"), ("=", "rack.toml")):
            with self.subTest(text), self.assertRaisesRegex(hosts.BadHosts, named):
                self.rack(text)

    def test_programs_of_a_host_start_run_and_stop_over_ssh(self):
        log = self.directory / "ssh.log"
        fake = self.directory / "ssh"
        fake.write_text(f'#!/bin/sh\necho "$1" >>{log}\nshift\nexec sh -c "$*"\n')
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        role = "ssh = 'node1'\naddress = '10.0.0.1'\n"
        rack = self.rack(f"programs = '/bin'\nscratch = '{self.directory}'\n[[memory_server]]\n{role}[[compute_server]]\n{role}[[client]]\n{role}")
        host = rack.clients[0]
        self.assertEqual((host.program("ycsb"), host.address, rack.fabrics), ("/bin/ycsb", "10.0.0.1", ("tcp",)))
        with mock.patch.dict(os.environ, {"PATH": f"{self.directory}:{os.environ['PATH']}"}):
            self.assertEqual(host.output(["printf", "%s|", "two words", "it's", "$HOME"]), "two words|it's|$HOME|")
            directory = host.make_directory()
            process = host.start("sleeper", ["sh", "-c", f"echo up >{directory}/ready; exec sleep 300"], directory)
            process.wait_for(f"{directory}/ready")
            self.assertTrue(host.exists(process.pid_file))
            process.stop()
            self.assertIsNotNone(process.process.poll())
            with self.assertRaisesRegex(Failed, "node1.*exit code"):
                host.read(f"{directory}/not-there")
            host.remove(directory)
        self.assertEqual(set(log.read_text().split()), {"node1"})


class Pages(unittest.TestCase):
    def test_what_a_page_must_not_have_is_found(self):
        figure = '<figure data-figure="a.b"><svg><path/><path/><path/></svg></figure>'
        self.assertEqual(check_report.problems_of_page(figure, ["a.b"]), [])
        for page, problem in (('<img src="http://x/y.png">', "refers to"), ("<style>a { background: url(//x/y) }</style>", "refers to"),
                              ("<script>1</script>", "script"), ('<a href="#gone">x</a>', "gone"),
                              ('<figure data-figure="c.d"><svg></svg></figure>', "c.d is empty"), ("", "c.d is not there")):
            with self.subTest(page):
                found = check_report.problems_of_page(figure + page, ["a.b", "c.d"] if "c.d" in problem else ["a.b"])
                self.assertTrue(found and problem in found[0], found)

    def test_svgs_of_two_figures_share_no_identifier(self):
        svg = ('<?xml version="1.0"?><svg xmlns="http://w3" viewBox="0 0 10 10"><metadata>http://m</metadata><path id="p"/>'
               '<use xlink:href="#p" clip-path="url(#p)"/></svg>')
        embedded = plots.embeddable(svg, "x.y")
        self.assertNotIn("http", embedded)
        self.assertEqual(embedded.count("#x.y.p"), 2)
        self.assertIn('id="x.y.p"', embedded)

    def test_values_are_shown_as_numbers_are_read(self):
        self.assertEqual([report.shown(value) for value in (None, 12345.6, 0.123456, 12345, "x")], ["", "12,346", "0.123", "12,345", "x"])


if __name__ == "__main__":
    try:
        plots.pyplot()
    except plots.NoMatplotlib:
        debian = "/usr/bin/python3"
        if sys.executable != debian and os.path.exists(debian) and "FARLEAF_BENCH_TEST" not in os.environ:
            os.environ["FARLEAF_BENCH_TEST"] = "1"
            os.execv(debian, [debian, *sys.argv])
        print("matplotlib is not there")
        sys.exit(77)
    unittest.main()
