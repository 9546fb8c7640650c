#!/usr/bin/env python3
"""Looks at a report in a headless browser: check_report.py DIR [EXPERIMENTS].

Fails (exit code 1, naming what) unless the page renders without an error on the console, asks for nothing but itself, holds every
figure of every experiment of DIR as an SVG with paths, and prints. 77: there is no chromium."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench import experiments  # noqa: E402

TIMEOUT_S = 240


class Page(html.parser.HTMLParser):
    """Figures and the number of their paths; whatever refers to something outside."""

    def __init__(self):
        super().__init__()
        self.figures, self.outside, self.scripts, self.open_figure, self.ids, self.links = {}, [], 0, None, set(), []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("id"):
            self.ids.add(attributes["id"])
        if tag == "figure":
            self.open_figure = attributes.get("data-figure")
            self.figures[self.open_figure] = {"svg": 0, "path": 0}
        elif self.open_figure and tag in ("svg", "path"):
            self.figures[self.open_figure][tag] += 1
        self.scripts += tag == "script"
        for name in ("src", "href", "xlink:href", "data", "srcset", "poster", "action"):
            value = attributes.get(name) or ""
            if value.startswith("#"):
                self.links.append(value[1:])
            elif value and not value.startswith("data:"):
                self.outside.append(f"<{tag} {name}={value}>")
        self.look_at_css(attributes.get("style") or "")

    def handle_endtag(self, tag):
        if tag == "figure":
            self.open_figure = None

    def handle_data(self, data):
        self.look_at_css(data)

    def look_at_css(self, text):
        self.outside += [one for one in re.findall(r"url\(\s*[\"']?([^)\"']+)|@import[^;]*", text) if not one.startswith(("#", "data:"))]


def problems_of_page(source, expected):
    """What is wrong with it, as texts. expected: names of figures."""
    page = Page()
    page.feed(source)
    problems = [f"it refers to {one}" for one in page.outside]
    problems += ["it has a script"] if page.scripts else []
    problems += [f"there is no {link}, which a link goes to" for link in page.links if link not in page.ids]
    for name in expected:
        figure = page.figures.get(name)
        if figure is None:
            problems.append(f"figure {name} is not there")
        elif not figure["svg"] or figure["path"] < 3:
            problems.append(f"figure {name} is empty")
    return problems


def expected_figures(directory):
    for name in experiments.names():
        path = directory / f"{name}.json"
        if path.is_file():
            data = json.loads(path.read_text(encoding="utf-8"))
            if any("rows" in case for case in data["cases"]):
                yield from (f"{name}.{figure['name']}" for figure in experiments.load(name, data["mode"]).figures if not figure.get("optional"))


def browse(browser, page, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                               "--no-first-run", "--disable-component-update", "--disable-background-networking", "--enable-logging=stderr",
                               "--host-resolver-rules=MAP * ~NOTFOUND", *arguments, page.resolve().as_uri()],
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    problems = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "ERROR" in line.upper()]
    return done.stdout, problems + ([f"{browser}: exit code {done.returncode}"] if done.returncode else [])


def main(arguments):
    directory = pathlib.Path(arguments[0])
    page = directory / "report.html"
    expected = list(expected_figures(directory))
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    problems = problems_of_page(page.read_text(encoding="utf-8"), expected) + ([] if expected else ["no experiment of it has rows"])
    if browser:
        rendered, of_console = browse(browser, page, "--dump-dom")
        problems += of_console + [f"rendered: {problem}" for problem in problems_of_page(rendered, expected)]
        paper = directory / "report.pdf"
        paper.unlink(missing_ok=True)
        _, of_paper = browse(browser, page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
        problems += of_paper
        pages = len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())) if paper.is_file() else 0
        problems += [] if pages > 1 else ["it does not print"]
    for problem in problems:
        print(f"check_report.py: {page}: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"{page}: {len(expected)} figures" + (f", {pages} pages on paper" if browser else ""))
    return 0 if browser else 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
