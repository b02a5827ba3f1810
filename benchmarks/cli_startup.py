"""CPU seconds that `specwatch --help` costs: bounded, because every shell command and completion pays them.

    python benchmarks/cli_startup.py

Prints the median of five runs with the machine's name, and exits 1 above the bound.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys

BOUND_CPU_SECONDS = 0.3
RUNS = 5
HEAVY = ("numpy", "scipy", "sqlalchemy", "pydantic", "httpx", "rich")
"""Modules that only commands which need them may import; tests/unit/test_cli_startup.py holds that."""


def main() -> int:
    """Measure, report, and say by the exit code whether the bound holds."""
    subprocess.run([sys.executable, "-m", "monitor", "--help"], check=True, stdout=subprocess.DEVNULL)  # compiles
    seconds = sorted(cpu_seconds() for _ in range(RUNS))
    median = statistics.median(seconds)
    report = {
        "benchmark": "specwatch --help",
        "cpu_seconds_median": round(median, 3),
        "cpu_seconds_min": round(seconds[0], 3),
        "cpu_seconds_max": round(seconds[-1], 3),
        "bound_cpu_seconds": BOUND_CPU_SECONDS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(report))
    return int(median > BOUND_CPU_SECONDS)


def cpu_seconds() -> float:
    """User and system time of one process that prints the help."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "monitor", "--help"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
