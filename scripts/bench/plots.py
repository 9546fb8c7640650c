"""Figures from JSON: SVG and PDF. What style.toml says of one:

    [[figure]]
    name = "throughput"            # of its files: EXPERIMENT.throughput.svg
    title, caption                 # caption: what is to be seen, beside what the experiment's text says
    kind = "lines"                 # lines, bars (series side by side), stacked (series on one another)
    where = {workload = ["a"]}     # rows that count: field = values
    panel = "workload"             # a field: a panel for each value; panels = {a = "Workload A"}: their order and titles
    x = "clients"                  # a field, or "percentile" or "part" with melt
    melt = ["p50", "p99"]          # each becomes a row with `value`; x or series is then "melted"; melted = {p50 = "50 %"}: labels
    y = "throughput"               # a field; y_factor = 0.001; x_factor
    low, high                      # fields of an interval around y
    series = "system"              # a field, or several joined by ", "; labels = {tree = "this tree"}: their order and names
    x_label, y_label, x_scale, y_scale (linear, log, log2, category), line (a level drawn across), y_max (the most
    that the axis shows), optional = true (left out where no row fits), columns, panel_size = [w, h]

Rows that lack a field are left out; a figure without any row says so in its place. Colours are Okabe's and Ito's, which the colour-blind
tell apart, each with a marker and a kind of line, and bars with a hatch."""

import io
import math
import re

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 2, 2)))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")
SETTINGS = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": True, "axes.axisbelow": True, "grid.color": "#dddddd", "grid.linewidth": 0.6, "hatch.linewidth": 0.5,
            "axes.titlesize": 9.5, "legend.frameon": False, "pdf.fonttype": 42}


class NoMatplotlib(Exception):
    pass


def pyplot():
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as problem:
        raise NoMatplotlib("python3-matplotlib is not there: scripts/install_packages.sh figures") from problem
    return plt


def points_of(figure, rows):
    """(panel, series, x, y, low, high) of each row that has all that the figure asks for; labels are applied."""
    for row in rows:
        if any(row.get(key) not in values for key, values in figure.get("where", {}).items()):
            continue
        for key in figure.get("melt", [None]):
            if key is not None:
                row = row | {"melted": figure.get("melted", {}).get(key, key), "value": row.get(key)}
            fields = figure["series"] if isinstance(figure["series"], list) else [figure["series"]]
            y = row.get("value") if key is not None else row.get(figure["y"])
            panel, x = row.get(figure["panel"]) if "panel" in figure else "", row.get(figure["x"])
            if None in (y, x, panel) or any(row.get(field) is None for field in fields) or not math.isfinite(y):
                continue
            factor = figure.get("y_factor", 1)
            ends = [row.get(figure[end]) * factor if end in figure and row.get(figure[end]) is not None else None for end in ("low", "high")]
            x = x * figure["x_factor"] if "x_factor" in figure else x
            yield str(panel), [row[field] for field in fields], x, y * factor, *ends


def label_of(figure, values):
    labels = figure.get("labels", {})
    return ", ".join(str(labels.get(str(value), value)) for value in values)


def arrange(figure, rows):
    """panel -> series label -> [(x, y, low, high)], both in the order of the style, then of the rows; labels not asked for come last."""
    arranged = {}
    points = list(points_of(figure, rows))
    order = {str(key): i for i, key in enumerate(figure.get("labels", {}))}
    rank = {}
    for _, values, *_ in points:
        rank.setdefault(label_of(figure, values), tuple(order.get(str(value), len(order)) for value in values))
    series = sorted(rank, key=rank.get)
    found = list(dict.fromkeys(panel for panel, *_ in points))
    panels = [key for key in figure.get("panels", {}) if key in found] + [key for key in found if key not in figure.get("panels", {})]
    for panel in panels:
        of_panel = {label: [] for label in series}
        for where, values, *point in points:
            if where == panel:
                of_panel[label_of(figure, values)].append(tuple(point))
        arranged[panel] = {label: values for label, values in of_panel.items() if values}
    return arranged, series


def draw(figure, rows):
    """(svg, pdf) as text and bytes, or None if no row fits."""
    arranged, series = arrange(figure, rows)
    if not arranged:
        return None
    plt = pyplot()
    columns = min(figure.get("columns", 3), len(arranged))
    lines = math.ceil(len(arranged) / columns)
    width, height = figure.get("panel_size", [3.1, 2.3])
    with plt.rc_context(SETTINGS | {"svg.hashsalt": figure["name"]}):
        longest = max(len(label) for label in series)
        legend_columns = max(1, min(4, int((width * columns + 0.4) / (0.55 + 0.066 * longest))))
        legend_lines = math.ceil(len(series) / legend_columns)
        picture, grid = plt.subplots(lines, columns, figsize=(width * columns + 0.4, height * lines + 0.2 * legend_lines + 0.35), squeeze=False)
        flat = [axis for line in grid for axis in line]
        for axis, (panel, of_panel) in zip(flat, arranged.items()):
            {"lines": draw_lines, "bars": draw_bars, "stacked": draw_stacked}[figure.get("kind", "lines")](axis, figure, of_panel, series)
            finish(axis, figure, panel)
        for axis in flat[len(arranged):]:
            axis.set_visible(False)
        for axis in [line[0] for line in grid]:
            axis.set_ylabel(figure.get("y_label", figure.get("y", "")))
        for i, axis in enumerate(flat[:len(arranged)]):
            if i + columns >= len(arranged):
                axis.set_xlabel(figure.get("x_label", figure["x"]))
        handles = {label: handle for axis in flat for handle, label in zip(*axis.get_legend_handles_labels())}
        shown = [label for label in series if label in handles]
        if len(shown) > 1 or figure.get("legend"):
            picture.legend([handles[label] for label in shown], shown, loc="upper center", ncols=min(legend_columns, len(shown)), fontsize=8.5)
        picture.tight_layout(rect=(0, 0, 1, 1 - (0.2 * legend_lines + 0.1) / picture.get_figheight() if len(shown) > 1 else 1))
        svg, pdf = io.StringIO(), io.BytesIO()
        picture.savefig(svg, format="svg", metadata={"Date": None})
        picture.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        plt.close(picture)
    return svg.getvalue(), pdf.getvalue()


def is_category(figure, points):
    return figure.get("x_scale") == "category" or any(isinstance(point[0], str) for point in points)


def places_of(of_panel):
    return list(dict.fromkeys(point[0] for points in of_panel.values() for point in points))


def ticks(axis, figure, places):
    labels = [str(figure.get("x_labels", {}).get(str(place), place)) for place in places]
    crowded = sum(map(len, labels)) > 26
    axis.set_xticks(range(len(places)), labels, rotation=35 if crowded else 0, ha="right" if crowded else "center")
    axis.grid(axis="x", visible=False)


def ordered(figure, places):
    order = list(figure.get("x_labels", {}))
    return sorted(places, key=lambda place: order.index(str(place)) if str(place) in order else len(order)) if order else places


def draw_lines(axis, figure, of_panel, series):
    everything = [point for points in of_panel.values() for point in points]
    category = is_category(figure, everything)
    places = ordered(figure, places_of(of_panel))
    for label, points in of_panel.items():
        number = series.index(label)
        points = [(places.index(point[0]) if category else point[0], *point[1:]) for point in points]
        points.sort(key=lambda point: point[0])
        xs, ys = [point[0] for point in points], [point[1] for point in points]
        errors = None
        if any(point[2] is not None for point in points):
            errors = [[max(0, y - point[2]) if point[2] is not None else 0 for y, point in zip(ys, points)],
                      [max(0, point[3] - y) if point[3] is not None else 0 for y, point in zip(ys, points)]]
        axis.errorbar(xs, ys, yerr=errors, label=label, color=COLOURS[number % 8], marker=MARKERS[number % 8], linestyle=LINES[number % 8],
                      markersize=4, linewidth=1.3, capsize=2, elinewidth=0.8)
    if category:
        ticks(axis, figure, places)


def draw_bars(axis, figure, of_panel, series):
    places = ordered(figure, places_of(of_panel))
    width = 0.84 / max(1, len(series))
    for number, label in enumerate(series):
        for point in of_panel.get(label, []):
            x = places.index(point[0]) + (number - (len(series) - 1) / 2) * width
            axis.bar(x, point[1], width * 0.94, label=label, color=COLOURS[number % 8], hatch=HATCHES[number % 8], edgecolor="white", linewidth=0.4)
            if point[2] is not None:
                axis.errorbar(x, point[1], yerr=[[max(0, point[1] - point[2])], [max(0, point[3] - point[1])]], color="#222222", capsize=2,
                              linewidth=0.9)
    ticks(axis, figure, places)


def draw_stacked(axis, figure, of_panel, series):
    """A bar for each x, of the series on one another."""
    places = ordered(figure, places_of(of_panel))
    below = [0.0] * len(places)
    for number, label in enumerate(series):
        for point in of_panel.get(label, []):
            i = places.index(point[0])
            axis.bar(i, point[1], 0.74, bottom=below[i], label=label, color=COLOURS[number % 8], hatch=HATCHES[number % 8], edgecolor="white",
                     linewidth=0.4)
            below[i] += point[1]
    ticks(axis, figure, places)


def finish(axis, figure, panel):
    if panel:
        axis.set_title(figure.get("panels", {}).get(panel, panel))
    for scale, setter in (("x_scale", axis.set_xscale), ("y_scale", axis.set_yscale)):
        if figure.get(scale) == "log":
            setter("log")
            plain(axis.xaxis if scale == "x_scale" else axis.yaxis)
        elif figure.get(scale) == "log2":
            setter("log", base=2)
            values = sorted({x for line in axis.get_lines() for x in line.get_xdata()})
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.tick_params(axis="x", which="minor", bottom=False)
    if figure.get("y_scale", "linear") == "linear":
        axis.set_ylim(bottom=0)
        if "y_max" in figure:
            axis.set_ylim(top=min(figure["y_max"], axis.get_ylim()[1]))
    if "line" in figure:
        axis.axhline(figure["line"], color="#444444", linewidth=0.9)


def plain(axis):
    """Powers of ten as numbers, and within two of them what lies between, too."""
    from matplotlib import ticker
    low, high = axis.get_view_interval()
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}" if value < 1e4 else f"{value:,.0f}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def embeddable(svg, name):
    """An SVG for a page of HTML: without prolog and metadata, its identifiers and what refers to them of its own."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}.\1"', svg)
    svg = re.sub(r'\b(?:xlink:)?href="#([^"]*)"', rf'href="#{name}.\1"', svg)
    svg = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}.\1)", svg)
    size = re.search(r'viewBox="0 0 ([0-9.]+)', svg)
    width = f' style="width:{float(size.group(1)):.0f}pt"' if size else ""
    return re.sub(r'<svg[^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img"{width}>', svg, count=1)
