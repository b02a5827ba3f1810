"""The machine a figure was measured on, and how busy it was: a figure without them means nothing elsewhere."""

import os
import platform
import sys
from pathlib import Path


def described() -> str:
    """Cores, processor and Python; exits with a message where there is no /proc to measure by."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        sys.exit("this benchmark reads /proc: run it on Linux")
    models = [line.partition(":")[2].strip() for line in information.read_text().splitlines() if "model name" in line]
    return f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}, Python {platform.python_version()}"


def load() -> str:
    """The load average of the last minute: above the number of cores, times are those of a busy machine."""
    return f"{os.getloadavg()[0]:.1f}"
