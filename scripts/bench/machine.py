"""What a report tells of where its figures come from."""

import os
import platform
import re
import subprocess

from bench import REPOSITORY


def first_match(path, pattern):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
            return found.group(1).strip() if found else ""
    except OSError:
        return ""


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY).stdout.strip()
    except OSError:
        return ""


def compiler_of(programs):
    """Of the build that the programs are of, as CMake noted it."""
    cache = os.path.join(programs, "..", "CMakeCache.txt")
    compiler = first_match(cache, r"^CMAKE_CXX_COMPILER:\w+=(.*)$") or "c++"
    build_type = first_match(cache, r"^CMAKE_BUILD_TYPE:\w+=(.*)$")
    return " ".join(part for part in ((output_of(compiler, "--version").splitlines() or [""])[0], build_type) if part)


def describe(programs):
    memory_kb = int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)") or 0)
    return {"cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.machine(), "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "memory_gib": round(memory_kb / 2**20, 1), "kernel": f"{platform.system()} {platform.release()}",
            "system": first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'), "compiler": compiler_of(programs)}


def commit():
    """Of the working tree; -dirty where files under version control were changed, those that tell of results aside."""
    text = output_of("git", "rev-parse", "--short=12", "HEAD")
    if not text:
        return "unknown"
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!README.md", ":!benchmark/results.json")
    return text + ("-dirty" if changed else "")


def commit_date():
    return output_of("git", "log", "-1", "--format=%cs")
