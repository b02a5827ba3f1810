"""How long the embedded Postgres takes to start, stop and recover.

    python benchmarks/embedded_postgres.py [rounds]

Prints the median over the rounds (default 5) in seconds, and as a ratio to the cold start of the same machine, which
is what can be compared between machines. Recovery is from kill −9 of the server, after 100,000 committed rows, to the
return of `ensure_running()`; every row is counted afterwards.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psycopg

from monitor.postgres import EmbeddedPostgres

ROWS = 100_000


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def one_round(directory: Path, taken: dict[str, list[float]]) -> None:
    postgres = EmbeddedPostgres(directory)
    taken["cold start"].append(seconds(postgres.start))
    taken["stop"].append(seconds(postgres.stop))
    taken["warm start"].append(seconds(postgres.start))
    taken["health check"].append(seconds(postgres.ensure_running))
    conninfo = postgres.ensure_running().replace("+psycopg", "")
    with psycopg.connect(conninfo) as connection:
        connection.execute("CREATE TABLE sample AS SELECT g, repeat('x', 100) FROM generate_series(1, %s) g", [ROWS])
    os.kill(int((directory / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    taken["recovery after kill -9"].append(seconds(postgres.ensure_running))
    with psycopg.connect(conninfo) as connection:
        kept = connection.execute("SELECT count(*) FROM sample").fetchone()
    postgres.stop()
    if kept != (ROWS,):
        raise SystemExit(f"rows lost: {kept} of {ROWS} are left")


def main() -> None:
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        with tempfile.TemporaryDirectory() as directory:
            one_round(Path(directory) / "data", taken)
    cold_seconds = statistics.median(taken["cold start"])
    for name, values in taken.items():
        median_seconds = statistics.median(values)
        print(f"{name:24}{median_seconds:8.3f} s{median_seconds / cold_seconds:8.2f} x cold start")


if __name__ == "__main__":
    main()
