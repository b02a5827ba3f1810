"""Processes started for a benchmark, and what they cost by /proc."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_SECONDS = 60.0
STOP_SECONDS = 60.0


@contextmanager
def python(*arguments: str, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """The pid of `python arguments…`, ended by SIGTERM; both streams go to `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=output, stderr=output, env={**os.environ, **(environment or {})}
        )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(url: str) -> None:
    """Returns once `url` answers 200; exits when it does not for START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(_stat(int(folder.name))[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def is_python(pid: int) -> bool:
    return "python" in Path(f"/proc/{pid}/exe").resolve().name


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, and of its children that have ended."""
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND


def resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, so that index 0 is the state and 1 the parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
