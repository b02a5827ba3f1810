"""What `serve` holds in memory while it waits for the next slot, against the bound of 200 MB.

    python benchmarks/serve_memory.py

Two routes of eleven domains on simulated replicas, with the program's own Postgres (not counted: only Python processes
are). `idle`: nothing is due for a day. `after runs`: idle again, after every domain of both routes was measured and
judged, which loads what only a verdict needs and stretches the heap. Then what each library adds, imported in a fresh
process in the order in which `serve` comes to it: that is where the memory is.
"""

import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from stage import fleet, machine, processes

from monitor.postgres import EmbeddedPostgres
from monitor.store.database import Database

BOUND_MEGABYTES = 200
IDLE_SECONDS = 20.0
RUNS_SECONDS = 60.0
LIBRARIES = (
    ("click, asyncio", "click, asyncio, ssl"),
    ("pydantic and configuration", "monitor.config.load"),
    ("SQLAlchemy", "sqlalchemy, sqlalchemy.dialects.postgresql"),
    ("psycopg", "psycopg, psycopg_pool"),
    ("Alembic", "alembic.command"),
    ("Procrastinate", "procrastinate"),
    ("APScheduler", "apscheduler.schedulers.asyncio"),
    ("Starlette, uvicorn", "starlette.applications, starlette.routing, uvicorn"),
    ("prometheus-client", "prometheus_client"),
    ("httpx, aiohttp", "httpx, aiohttp, httpx_aiohttp"),
    ("the rest of monitor", "monitor.service.serve"),
    ("scipy.special (first verdict)", "scipy.special"),
)
_IMPORT = """
import importlib, sys
def megabytes():
    status = open("/proc/self/status").read()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6
print(megabytes())
for names in sys.argv[1:]:
    for name in names.split(", "):
        importlib.import_module(name)
    print(megabytes())
"""


def python_megabytes(pid: int) -> float:
    return sum(processes.resident_megabytes(member) for member in processes.family(pid) if processes.is_python(member))


def idle(folder: Path, replicas: tuple[str, ...], every: timedelta, rest_seconds: float) -> tuple[float, float]:
    """Megabytes of a `serve` that rests, and its share of a core meanwhile."""
    fleet.configuration(folder, replicas, every)
    listen = f"127.0.0.1:{fleet.free_port()}"
    serve = ("-m", "monitor", "--config", str(folder), "serve", "--listen", listen)
    environment = {"SPECWATCH_DATA": str(folder / "data"), "DATABASE_URL": ""}
    with processes.python(*serve, log=folder / "serve.log", environment=environment) as pid:
        processes.wait_for(f"http://{listen}/metrics")
        time.sleep(rest_seconds)
        before = processes.cpu_seconds(pid)
        time.sleep(IDLE_SECONDS)
        return python_megabytes(pid), (processes.cpu_seconds(pid) - before) / IDLE_SECONDS


def imports() -> None:
    arguments = [names for _, names in LIBRARIES]
    output = subprocess.run([sys.executable, "-c", _IMPORT, *arguments], capture_output=True, text=True, check=True)
    steps = [float(line) for line in output.stdout.split()]
    print(f"  {steps[0]:6.1f} MB  Python itself")
    for (name, _), before, after in zip(LIBRARIES, steps, steps[1:], strict=False):
        print(f"  {after - before:6.1f} MB  {name}")


def main() -> None:
    print(f"{machine.described()}; bound {BOUND_MEGABYTES} MB")
    with tempfile.TemporaryDirectory() as name, fleet.simulators(Path(name), 2, 0.0, in_processes=1) as replicas:
        folder, day = Path(name), timedelta(days=1)
        with EmbeddedPostgres(folder / "data") as url:
            database = Database(url)
            fleet.measured_before(database, fleet.configuration(folder, replicas.replicas, day))
            database.close()
        found = {
            "idle": idle(folder, replicas.replicas, day, rest_seconds=2.0),
            # Another period has other slots, so everything is due once.
            "after runs": idle(folder, replicas.replicas, day * 2, rest_seconds=RUNS_SECONDS),
        }
    for state, (megabytes, cores) in found.items():
        ratio = f"{megabytes / BOUND_MEGABYTES:.2f} of the bound"
        print(f"serve, {state:11} {megabytes:5.0f} MB, {ratio}; {cores:.3f} of a core; load {machine.load()}")
    imports()
    if max(megabytes for megabytes, _ in found.values()) > BOUND_MEGABYTES:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
