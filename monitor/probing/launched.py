"""A `vllm serve` that Specwatch starts itself for a sweep, and always stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from monitor.engines.failures import failure
from monitor.errors import TargetError, UsageError
from monitor.probing.client import Client
from monitor.probing.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

HEALTH_EVERY_SECONDS = 0.5
STOP_SECONDS = 20.0
"""What a server gets between SIGTERM and SIGKILL: it frees its GPU in that time."""
LOG_TAIL_LINES = 15

GUARD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.stdin.read()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""
"""Waits until its standard input is closed, which happens however we end, and then kills what is left of the group."""


@asynccontextmanager
async def launched(command: Sequence[str], log: Path, start_seconds: float) -> AsyncIterator[str]:
    """Runs `command --host … --port …` until the block ends, and gives the server's base URL once it is healthy.

    Everything it prints goes to `log`. The whole process group is stopped at the end, also when this process is killed.
    Raises UsageError when the command cannot be run or the log not written, TargetError `not_started` with the end of
    the log when the server ends or is not healthy within `start_seconds`.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    process = _start([*command, "--host", "127.0.0.1", "--port", str(port)], log)
    guard = _guard(process.pid)
    try:
        await _until_healthy(process, url, log, start_seconds)
        yield url
    finally:
        await asyncio.shield(asyncio.to_thread(_stop, process, guard))


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 what the user asks us to start
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
    except OSError as error:
        where = error.filename or log
        advice = "a sweep that starts its servers needs vLLM: pip install 'specwatch[vllm]', or give --vllm-command"
        raise UsageError(f"{where}: {error.strerror}; {advice}") from None


def _guard(group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 our own program
        [sys.executable, "-c", GUARD, str(group)], stdin=subprocess.PIPE, start_new_session=True
    )


async def _until_healthy(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float) -> None:
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        if process.poll() is not None:
            raise _not_started(url, f"the server ended with exit code {process.returncode} while starting", log)
        with suppress(TargetError):
            async with Client(Target(url), connections=1) as client:
                await client.get_text("/health")
                return
        await asyncio.sleep(HEALTH_EVERY_SECONDS)
    raise _not_started(url, f"not healthy after {seconds:.0f} s", log)


def _not_started(url: str, what: str, log: Path) -> TargetError:
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    found = failure("not_started", url, what)
    return TargetError(found.reason, "\n".join([f"{found} ({log})", *(f"  {line}" for line in lines)]))


def _stop(process: subprocess.Popen[bytes], guard: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the group, then SIGKILL to what is left; the guard ends with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
