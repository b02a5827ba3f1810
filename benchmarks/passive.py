"""What passive reading of 1,000 replicas a minute costs, and whether a dead or a slow one delays the others.

    python benchmarks/passive.py [--replicas 1000] [--minutes 2]

The replicas are addresses of loopback (127.1.a.b), all served by one simulator in a process of its own. One of them is
dead and one accepts connections and never answers. CPU is this process's alone, as a share of a core, from the second
minute on. The simulator's page is shorter than a real server's, so what its parsing costs is scaled to a real page's
length and added.
"""

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

from stage import machine

from monitor.config.routes import Route
from monitor.core.figures import percentile
from monitor.core.organic import Organic
from monitor.engines.vllm import VllmEngine
from monitor.probing.client import Client
from monitor.probing.target import Target
from monitor.service import passive

BOUND_CORES = 0.1
REAL_PAGE_BYTES = 56_000
"""A vLLM 0.32 server with speculation after some traffic."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--replicas", type=int, default=1000)
    options.add_argument("--minutes", type=int, default=2)
    given = options.parse_args()
    print(f"{machine.described()}, load {machine.load()}")
    port = _free_port()
    command = [sys.executable, "-m", "monitor.sim", "--host", "0.0.0.0", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as simulator, _silent() as silent:
        try:
            assert simulator.stdout is not None
            simulator.stdout.readline()
            asyncio.run(_measure(given.replicas, given.minutes, port, silent))
        finally:
            simulator.kill()


async def _measure(replicas: int, minutes: int, port: int, silent: str) -> None:
    urls = [f"http://127.1.{number // 250}.{number % 250 + 1}:{port}" for number in range(replicas - 2)]
    urls += [f"http://127.2.0.1:{_free_port()}", silent]
    routes = [
        Route.model_validate({"name": f"route-{start}", "replicas": urls[start : start + 10], "domains": ["math"]})
        for start in range(0, len(urls), 10)
    ]
    reading = passive.PassiveReading(_Nowhere(), routes, lambda: datetime.now(UTC), lambda: True)
    looks: dict[str, list[float]] = {}
    _note_looks(looks)
    task = asyncio.create_task(reading.run())
    await asyncio.sleep(passive.READ_EVERY_SECONDS)
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(passive.READ_EVERY_SECONDS * (minutes - 1))
    cores = (time.process_time() - cpu) / (time.monotonic() - began)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    _report(looks, cores, replicas, *await _parsing(urls[0]))


def _note_looks(looks: dict[str, list[float]]) -> None:
    read = passive.ReplicaReader.read

    async def noted(reader: passive.ReplicaReader) -> None:
        looks.setdefault(reader.replica, []).append(time.monotonic())
        await read(reader)

    passive.ReplicaReader.read = noted  # type: ignore[method-assign]


async def _parsing(url: str) -> tuple[float, int]:
    """CPU seconds of one look without its HTTP, and the page's length."""
    async with Client(Target(url), 1) as client:
        page = await client.get_text("/metrics")

    class Kept:
        url = "http://kept"
        data_parallel_rank = None

        async def get_text(self, _: str) -> str:
            return page

        async def get_json(self, _: str) -> object:
            return None

    began = time.process_time()
    for _ in range(200):
        await VllmEngine().glance(Kept(), None)
    return (time.process_time() - began) / 200, len(page)


def _report(looks: dict[str, list[float]], cores: float, replicas: int, parse_seconds: float, page: int) -> None:
    late = [
        after - before - passive.READ_EVERY_SECONDS for times in looks.values() for before, after in pairwise(times)
    ]
    per_second = replicas / passive.READ_EVERY_SECONDS
    real = cores + per_second * parse_seconds * max(0.0, REAL_PAGE_BYTES / page - 1)
    print(f"{replicas} replicas a minute, one dead, one silent: {cores:.3f} of a core with pages of {page} bytes")
    print(f"with pages of {REAL_PAGE_BYTES} bytes at most {real:.3f} of a core; bound {BOUND_CORES}")
    print(f"looks late: p50 {percentile(late, 0.5):.3f} s, p99 {percentile(late, 0.99):.3f} s, worst {max(late):.3f} s")


class _Nowhere:
    """Stands for a database: rows are dropped, their cost is measured in store.py; nothing was ever recorded."""

    @contextlib.contextmanager
    def transaction(self) -> object:
        yield self

    def execute(self, _: object, rows: list[Organic] | None = None) -> "_Nowhere":
        del rows
        return self

    def all(self) -> list[object]:
        return []


@contextlib.contextmanager
def _silent() -> object:
    """A server that accepts connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.3.0.1", 0))
        listener.listen(128)
        yield f"http://127.3.0.1:{listener.getsockname()[1]}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
