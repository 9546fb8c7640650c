#!/usr/bin/env python3
"""Runs the experiments of scripts/figures, plots them, and makes a report of one HTML page: --help."""

import os
import subprocess
import sys


def with_matplotlib():
    """Goes on as a Python that has matplotlib, if there is one: Debian's."""
    debian = "/usr/bin/python3"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if os.path.realpath(sys.executable) != os.path.realpath(debian) and \
                subprocess.run([debian, "-c", "import matplotlib, tomllib"], capture_output=True, check=False).returncode == 0:
            os.execv(debian, [debian, *sys.argv])


if __name__ == "__main__":
    with_matplotlib()
    from bench import cli
    sys.exit(cli.main(sys.argv[1:]))
