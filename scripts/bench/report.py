"""The report: one page of HTML with everything in it, from the JSON files, SVGs and styles. It asks for nothing else, runs no script, and
prints on paper.

[table] of a style.toml: columns = {field = "heading"}, where = {...}, formats = {field = "{:,.0f}"}."""

import html
import json

from bench import experiments, plots, results

STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #555; --rule: #d5d5d5; --blue: #0072B2; --orange: #a04000; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 70rem; color: var(--ink); background: #fff;
  font: 15px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; } h2 { font-size: 1.3rem; margin: 3rem 0 .4rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; } p { max-width: 48rem; margin: .5rem 0; }
.soft, figcaption { color: var(--soft); } figcaption { max-width: 48rem; font-size: .92rem; margin-top: .3rem; }
.badge { display: inline-block; font-size: .75rem; font-weight: 600; border-radius: 3px; padding: .05rem .5rem; vertical-align: middle;
  border: 1.5px solid; background: #fff; }
.badge.measured { color: var(--blue); border-color: var(--blue); } .badge.modelled { color: var(--orange); border-color: var(--orange); border-style: dashed; }
figure { margin: 1rem 0 1.8rem; } figure svg { max-width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, "DejaVu Sans", sans-serif !important; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .18rem .65rem; border-bottom: 1px solid var(--rule); } th { border-bottom: 1.5px solid #777; font-weight: 600; }
.word { text-align: left; } .scroll { overflow-x: auto; }
pre { background: #f5f5f3; padding: .5rem .8rem; font-size: .82rem; overflow-x: auto; white-space: pre-wrap; } code { font-size: .88em; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--blue); }
.note { border-left: 3px solid #E69F00; padding: .1rem .8rem; margin: .6rem 0; }
.failed { border-left: 3px solid #D55E00; padding: .1rem .8rem; margin: .6rem 0; }
nav ol { columns: 2; column-gap: 2.5rem; padding-left: 1.2rem; } nav li { break-inside: avoid; margin: .15rem 0; } a { color: var(--blue); }
@media (max-width: 45rem) { nav ol { columns: 1; } }
@media print {
  @page { margin: 16mm 14mm; } body { font-size: 10pt; max-width: none; padding: 0; } a { color: inherit; text-decoration: none; }
  h2 { break-before: page; border-top: 0; } figure, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; } details > summary { list-style: none; }
  .configuration::details-content { content-visibility: visible; block-size: auto; } .configuration pre { font-size: 7pt; columns: 2; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } th, td { padding: .1rem .35rem; } figure svg { max-height: 220mm; }
}
"""


def text(value):
    return html.escape(str(value))


def shown(value, form=None):
    if value is None:
        return ""
    if isinstance(value, float):
        return form.format(value) if form else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return form.format(value) if form else f"{value:,}"
    return str(value)


def table_of(columns, rows, formats=None):
    """HTML; columns: field -> heading. Columns that no row has are left out."""
    fields = [field for field in columns if any(row.get(field) is not None for row in rows)]
    words = {field for field in fields if any(isinstance(row.get(field), str) for row in rows)}
    cells = ["<th" + (' class="word"' if field in words else "") + f">{text(columns[field])}</th>" for field in fields]
    lines = [f'<div class="scroll"><table><thead><tr>{"".join(cells)}</tr></thead><tbody>']
    for row in rows:
        lines.append("<tr>" + "".join(f'<td{" class=word" if field in words else ""}>{text(shown(row.get(field), (formats or {}).get(field)))}</td>'
                                      for field in fields) + "</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def data_table(experiment, data):
    style = experiment.style.get("table")
    if not style:
        return ""
    rows = [row for row in results.rows_of(data) if all(row.get(key) in values for key, values in style.get("where", {}).items())]
    if not rows:
        return ""
    open_ = " open" if len(rows) <= 12 else ""
    return f"<details{open_}><summary>Table ({len(rows)} rows)</summary>{table_of(style['columns'], rows, style.get('formats'))}</details>"


def badge_of(experiment):
    return f'<span class="badge {experiment.basis}">{experiment.basis}</span>'


def figure_html(experiment, figure, svg):
    name = f"{experiment.name}.{figure['name']}"
    picture = plots.embeddable(svg, name) if svg else '<p class="note">No row of the results fits this figure.</p>'
    return f'<figure id="{text(name)}" data-figure="{text(name)}"><h3>{text(figure["title"])} {badge_of(experiment)}</h3>{picture}' \
           f'<figcaption>{text(figure.get("caption", ""))}</figcaption></figure>'


def is_shown(figure, svgs):
    """Optional figures are of what only larger runs do."""
    return svgs.get(figure["name"]) or not figure.get("optional")


def notes_of(data):
    parts = []
    for kind, title in (("failed", "Failed"), ("skipped", "Not run here")):
        reasons = {}
        for case, why in results.problems_of(data, kind):
            reasons.setdefault(why, []).append(case)
        for why, cases in reasons.items():
            parts.append(f'<div class="{"failed" if kind == "failed" else "note"}"><b>{title}:</b> {text("; ".join(cases[:6]))}'
                         f'{" and " + str(len(cases) - 6) + " more" if len(cases) > 6 else ""}: {text(why)}</div>')
    return "".join(parts)


def section_of(experiment, data, svgs):
    run = data["run"]
    parts = [f'<section><h2 id="{experiment.name}">{text(experiment.title)} {badge_of(experiment)}</h2><p>{text(experiment.about)}</p>', notes_of(data)]
    parts += [figure_html(experiment, figure, svgs.get(figure["name"])) for figure in experiment.figures if is_shown(figure, svgs)]
    if experiment.missing:
        parts.append(f"<p><b>Not shown:</b> {text(experiment.missing)}</p>")
    parts.append(data_table(experiment, data))
    rerun = f"{run['command']} --fresh --only {experiment.name} report"
    parts.append(f"<p>To run it again:</p><pre>{text(rerun)}</pre>")
    configuration = json.dumps(data["configuration"], indent=1)
    parts.append(f"<details class='configuration'><summary>Configuration</summary><pre>{text(configuration)}</pre></details>")
    machine = run["machine"]
    parts.append(f'<p class="soft">Seed {data["seed"]}, {len(data["cases"])} cases, {run["seconds"]:.0f} s, commit <code>{text(run["commit"])}</code>, '
                 f'{text(run["date"])}, {text(machine["cpu"])}, {machine["cores"]} cores{", " + text(run["hosts"]) if run["hosts"] else ""}.</p></section>')
    return "\n".join(parts)


def summary_rows(shown_experiments):
    for experiment, data, svgs in shown_experiments:
        counts = {kind: sum(kind in case for case in data["cases"]) for kind in ("rows", "failed", "skipped")}
        named = (("ran", counts["rows"]), ("failed", counts["failed"]), ("not run here", counts["skipped"]))
        state = ", ".join(f"{count} {name}" for name, count in named if count)
        drawn = sum(svgs.get(figure["name"]) is not None for figure in experiment.figures)
        yield {"experiment": experiment.title, "basis": experiment.basis, "figures": drawn, "cases": state,
               "seconds": data["run"]["seconds"], "commit": data["run"]["commit"]}


def page_of(shown_experiments, mode):
    """shown_experiments: (experiment, data, {figure name: svg or None})."""
    newest = max((data["run"] for _, data, _ in shown_experiments), key=lambda run: run["date"])
    machine = newest["machine"]
    facts = {"Processor": f"{machine['cpu']}, {machine['cores']} cores", "Memory": f"{machine['memory_gib']} GiB",
             "System": f"{machine['system']}, {machine['kernel']}", "Compiler": machine["compiler"], "Commit": newest["commit"],
             "Date": newest["date"], "Load when it began": f"{machine.get('load', '?')} processes", "Mode": mode, "Hosts": newest["hosts"] or "this machine alone"}
    contents = "".join(f'<li><a href="#{experiment.name}">{text(experiment.title)}</a> {badge_of(experiment)}</li>'
                       for experiment, _, _ in shown_experiments)
    columns = {"experiment": "experiment", "basis": "", "figures": "figures", "cases": "cases", "seconds": "seconds", "commit": "commit"}
    quick = "" if mode == "full" else (f"<p class=note>A {mode} run: small data, short runs. It shows that everything works and what differs by much; "
                                       "figures of a full run are steadier.</p>")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Farleaf: benchmark report</title>
<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>
<h1>Farleaf: benchmark report</h1>
<p class="soft">Commit {text(newest['commit'])}, {text(newest['date'])}</p>{quick}
<p><span class="badge measured">measured</span> programs ran on the machine below, client and servers on the same cores, so that figures of one
run compare with one another and with nothing else; ratios are of runs in turns, with their 95 % interval. <span class="badge modelled">modelled</span> the tree's own code, or another
design's verbs, ran in virtual time on a modelled machine (benchmark/models/README.md): the same for the same seed.</p>
<h3>Machine</h3>{table_of({"what": "", "value": ""}, [{"what": key, "value": value} for key, value in facts.items()])}
<h3>Contents</h3><nav><ol>{contents}</ol></nav>
<h3>What ran</h3>{table_of(columns, list(summary_rows(shown_experiments)))}
{"".join(section_of(*one) for one in shown_experiments)}
</body></html>
"""


def write(directory, shown_experiments, mode):
    path = directory / "report.html"
    path.write_text(page_of(shown_experiments, mode), encoding="utf-8")
    return path


def read_experiments(directory, names):
    """(experiment, data, svgs) of those that have JSON."""
    for name in names:
        data = results.read(directory / f"{name}.json")
        if data:
            experiment = experiments.load(name, data["mode"])
            svgs = {}
            for figure in experiment.figures:
                path = directory / f"{name}.{figure['name']}.svg"
                svgs[figure["name"]] = path.read_text(encoding="utf-8") if path.is_file() else None
            yield experiment, data, svgs
