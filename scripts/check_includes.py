#!/usr/bin/env python3
"""Checks who includes whom, by the rule of README.md ("What is where").

    check_includes.py [FOLDER]

Dependencies point one way: dsm/base <- dsm <- index <- server; client includes dsm/base only, server
may include client; test and benchmark may include all, and nothing includes test. Exit code 1, with a
line for each include that breaks the rule.
"""

import pathlib
import re
import sys

# Folder -> prefixes that its files may include.
MAY_INCLUDE = {
    "dsm/base": ("dsm/base/",),
    "dsm": ("dsm/",),
    "index": ("dsm/", "index/"),
    "client": ("dsm/base/", "client/"),
    "server": ("dsm/", "index/", "client/", "server/"),
    "benchmark": ("dsm/", "index/", "client/", "server/", "benchmark/"),
}
OURS = re.compile(r'^\s*#include\s+"([^"]+)"')


def folder_of(path):
    parts = path.parts
    return "dsm/base" if parts[:2] == ("dsm", "base") else parts[0]


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else ".").resolve()
    broken, seen = [], 0
    for folder in ("dsm", "index", "client", "server", "benchmark"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            relative = path.relative_to(root)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = OURS.match(line)
                if not match:
                    continue
                seen += 1
                if not match[1].startswith(MAY_INCLUDE[folder_of(relative)]):
                    broken.append(f"{relative}:{number}: {folder_of(relative)} may not include {match[1]}")
    print("\n".join(broken) or f"{seen} includes follow the rule")
    return 1 if broken or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
