"""README.md's results: what stands between its markers comes from benchmark/results.json, and that from the JSON of a report's experiments.

    bench.py readme DIR       takes what is shown from DIR's JSON to benchmark/results.json, and rewrites README.md
    bench.py readme           rewrites README.md from benchmark/results.json
    bench.py readme --check   changes nothing; exit code 1 if README.md says anything else
"""

import json
import sys

from bench import REPOSITORY, results

README, SUMMARY = REPOSITORY / "README.md", REPOSITORY / "benchmark" / "results.json"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
DIGITS = 5  # significant ones are kept in the summary

# Of each experiment: rows that count, and the fields kept of them.
KEPT = {
    "fabrics": ({}, ("fabric", "workload", "distribution", "system", "operation", "share", "throughput", "p50", "p99", "p999", "round_trips", "bytes_read",
                     "bytes_written", "throughput_ratio", "throughput_ratio_low", "throughput_ratio_high")),
    "operations": ({}, ("leaves", "operation", "cpu_ns", "copies", "bound", "round_trips", "bytes")),
    "rivals": ({}, ("request", "depth", "server", "rival", "cpu_us", "cpu_us_ratio", "cpu_us_ratio_low", "cpu_us_ratio_high", "requests_per_second_ratio",
                    "requests_per_second_ratio_low", "requests_per_second_ratio_high")),
    "stores": ({}, ("mix", "growth", "workload", "store", "throughput", "throughput_ratio", "throughput_ratio_low", "throughput_ratio_high", "cpu_us_ratio",
                    "p999", "io_per_byte")),
    "rack": ({"first": True}, ("workload", "distribution", "system", "clients", "throughput_mops")),
    "front_ends": ({"loop": "open"}, ("front_end", "load", "offered", "operation", "p50", "p99", "p999")),
}
LABELS = {"tree": "this tree", "sherman": "Sherman", "deft": "Deft", "chime": "CHIME", "smart": "SMART", "rolex": "ROLEX", "dex": "DEX (owns leaves)",
          "fg": "uncached (FG)", "shm": "shared memory", "tcp": "TCP", "lsm": "Farleaf", "rocksdb": "RocksDB", "blobdb": "BlobDB", "native": "native, TCP",
          "unix": "native, Unix socket", "ring": "native, ring", "memcached": "memcached protocol", "redis": "Redis protocol",
          "rival_memcached": "memcached itself", "rival_redis": "redis-server itself", "farleaf-redis": "Farleaf, Redis protocol",
          "farleaf-memcached": "Farleaf, memcached protocol", "farleaf-native": "Farleaf, native protocol"}


def summary_of(directory):
    """What is kept of DIR's experiments; None if it has none of them."""
    kept = {}
    for name, (where, fields) in KEPT.items():
        data = results.read(directory / f"{name}.json")
        if data:
            rows = [row for row in results.rows_of(data) if all(row.get(key) == value for key, value in where.items())]
            if rows:
                kept[name] = {"mode": data["mode"], "commit": data["run"]["commit"], "date": data["run"]["date"], "machine": data["run"]["machine"],
                              "command": data["run"]["command"], "configuration": {key: value for key, value in data["configuration"].items()
                                                                                   if isinstance(value, (int, float, str))},
                              "rows": [{field: rounded(row[field]) for field in fields if row.get(field) is not None} for row in rows]}
    return kept or None


def rounded(value):
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def number(value, digits=2):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or digits == 0 else f"{value:.{digits}f}"


def ratio(row, name, digits=2):
    """With its 95 % interval, if it has one."""
    if row.get(f"{name}_ratio") is None:
        return "-"
    low, high = row.get(f"{name}_ratio_low"), row.get(f"{name}_ratio_high")
    return number(row[f"{name}_ratio"], digits) + (f" ({number(low, digits)} to {number(high, digits)})" if low is not None else "")


def markdown(head, lines, words=1):
    rows = [head, *(list(map(str, line)) for line in lines)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return [table[0], "|" + "---|" * words + "---:|" * (len(head) - words), *table[1:]]


def label(name):
    return LABELS.get(name, name)


def workloads_of(one):
    configuration = one["configuration"]
    rows = [row for row in one["rows"] if row["fabric"] == "shm" and (row["system"] == "tree" or row["workload"] == "a")]
    lines, seen = [], None
    for row in rows:
        case = (row["workload"] + (", no cache" if row["system"] != "tree" else ""), number(row["throughput"], 0))
        lines.append([*(case if case != seen else ("", "")), row["operation"], f"{row['share'] * 100:.0f} %",
                      *(number(row[name]) for name in ("p50", "p99", "p999")), number(row["round_trips"], 3),
                      *(number(row[name], 0) for name in ("bytes_read", "bytes_written"))])
        seen = case
    text = (f"**The tree over shared memory**: {configuration['records']:,} records of 8-byte keys and values, "
            f"{configuration['operations']:,} operations a workload, zipfian (d: latest), closed loop, one thread with one operation "
            f"in flight, two memory servers, medians of {configuration['rounds']} rounds. "
            "Round trips and bytes are exact counts of such a run, splits and retries included.")
    head = ["workload", "ops/s", "operation", "share", "p50 us", "p99 us", "p99.9 us", "RT/op", "B read/op", "B written/op"]
    return [text, "", *markdown(head, lines)]


def operations_of(one):
    lines = [[row["operation"], number(row["cpu_ns"], 0), number(row["copies"]), number(row["bound"]), number(row["round_trips"], 3),
              number(row["bytes"], 0)] for row in one["rows"] if row.get("bound") is not None and row["leaves"] == "parted"]
    text = (f"**Operations beside what the machine can do** (`micro --operations`, {one['configuration']['keys']:,} keys, one thread, CPU time): "
            "*copies* is the time in copies of 1 KiB from a random place, measured in turns, *bound* what is asked for.")
    return [text, "", *markdown(["operation", "CPU ns", "copies", "bound", "RT/op", "bytes/op"], lines)]


def rivals_of(one):
    lines = [[f"{row['request']}, {row['depth']} in flight", label(row["server"]), row["rival"], number(row["cpu_us"]), ratio(row, "cpu_us"),
              ratio(row, "requests_per_second")] for row in one["rows"] if row.get("rival")]
    text = ("**Beside Redis and memcached**, one server thread each: the server's processor time for a request, and requests a second, each as "
            f"the median of the rounds' ratios to the rival's ({one['configuration']['rounds']} rounds in turns, 95 % interval).")
    return [text, "", *markdown(["", "server", "rival", "CPU us", "CPU × rival", "requests/s × rival"], lines, 3)]


def stores_of(one):
    configuration = one["configuration"]
    rows = [row for row in one["rows"] if row["store"] != "rocksdb" and row["growth"] == 8]
    mixes, workloads = (list(dict.fromkeys(row[key] for row in rows)) for key in ("mix", "workload"))
    lines = []
    for mix in mixes:
        for store in ("lsm", "blobdb"):
            at = {row["workload"]: row for row in rows if row["mix"] == mix and row["store"] == store}
            if at:
                lines.append([mix, label(store), *(ratio(at[name], "throughput") if name in at else "-" for name in workloads)])
    text = (f"**Stores on disk**: throughput as a ratio to RocksDB's, {configuration['data_mib']} MiB of pairs, "
            f"{configuration['operations']:,} operations, growth factor 8, equal budgets, geometric mean of "
            f"{configuration['rounds']} rounds in turns with its 95 % interval.")
    return [text, "", *markdown(["mix", "store", *workloads], lines, 2)]


def rack_of(one):
    rows = one["rows"]
    workloads, systems, keys = (list(dict.fromkeys(row[key] for row in rows)) for key in ("workload", "system", "distribution"))
    at = {(row["system"], row["workload"], row["distribution"]): row["throughput_mops"] for row in rows}
    keys = [key for key in keys if key != "any"] or ["any"]

    def cell(system, workload):
        return " / ".join(dict.fromkeys(number(at.get((system, workload, "any"), at.get((system, workload, key)))) for key in keys))

    lines = [[label(system), *(cell(system, workload) for workload in workloads)] for system in systems]
    text = (f"**On a modelled rack** of ten memory servers and ten compute servers: M operations/s of {rows[0]['clients']} clients, "
            f"{one['configuration']['records']:,} records, keys {' / '.join(keys)}; other designs as verb programs.")
    return [text, "", *markdown(["", *workloads], lines)]


def front_ends_of(one):
    loads = sorted({row["load"] for row in one["rows"]})
    shown = [loads[len(loads) // 2 - (len(loads) > 1)], loads[-1]] if len(loads) > 1 else loads
    rows = [row for row in one["rows"] if row["operation"] == "UPDATE" and row["load"] in shown]
    lines = [[label(row["front_end"]), f"{row['load'] * 100:.0f} %", number(row["offered"], 0),
              *(number(row.get(name), 0) for name in ("p50", "p99", "p999"))] for row in rows]
    text = ("**Updates at fixed rates, by front end** (open loop; rates as shares of the most in a closed loop with "
            f"{one['configuration']['in_flight']} in flight; client and servers on the same cores).")
    return [text, "", *markdown(["front end", "load", "operations/s", "p50 us", "p99 us", "p99.9 us"], lines)]


SECTIONS = {"fabrics": workloads_of, "operations": operations_of, "front_ends": front_ends_of, "rivals": rivals_of, "stores": stores_of, "rack": rack_of}


def section_of(summary):
    """Markdown between the markers."""
    newest = max(summary.values(), key=lambda one: one["date"])
    machine = newest["machine"]
    commits = ", ".join(dict.fromkeys(one["commit"] for one in summary.values()))
    command = newest["command"]
    lines = [f"From `{command} report` of commit {commits}, {newest['date']}, on {machine['cores']} cores ({machine['cpu']}, {machine['memory_gib']} GiB, "
             f"{machine['system']}), client and servers included: compare lines of one table, not runs. The report has all figures, and how to run each again; "
             "this part of the page is written by `scripts/bench.py readme`."]
    if "load" in machine:
        lines[0] += f" When it began, a load of {machine['load']} was on them."
    if newest["mode"] != "full":
        lines[0] += f" It was a {newest['mode']} run, of little data and short runs."
    for name, section in SECTIONS.items():
        if name in summary:
            lines += ["", *section(summary[name])]
    return "\n".join(lines)


def replaced(text, section):
    """README's text with another section; fails if the markers are not there once."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{README.name} must have {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main(directory, check):
    """Exit code."""
    try:
        if directory is not None:
            summary = summary_of(directory)
            if summary is None:
                print(f"bench.py: {directory} has no JSON of {', '.join(KEPT)}", file=sys.stderr)
                return 2
        else:
            summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
        text = README.read_text(encoding="utf-8")
        new = replaced(text, section_of(summary))
    except (OSError, ValueError) as problem:
        print(f"bench.py: {problem}", file=sys.stderr)
        return 2
    if check:
        if new != text:
            print(f"bench.py: {README.name}'s results are not those of {SUMMARY.relative_to(REPOSITORY)}: scripts/bench.py readme", file=sys.stderr)
            return 1
        return 0
    if directory is not None:
        SUMMARY.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    README.write_text(new, encoding="utf-8")
    return 0
