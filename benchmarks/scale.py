"""Whether one `serve` keeps up with 100 routes × 11 domains every 40 minutes, and how its cost grows with routes.

    python benchmarks/scale.py [--routes 10,30,100] [--pace 0.46] [--seconds 60] [--step-milliseconds 15]

Every fleet is probed at the same pace in runs per second, which fixes the compression of the 40 minutes: at the
default pace 100 routes live in real time and 10 routes ten times as fast. So the cost of a run shows what routes
themselves cost, and the share of a core at the real pace follows from it. The replicas are simulated in processes of
their own, at the speed of a real server (one step every 15 ms); sets of 34 to 36 prompts, 128 tokens each; two rules
judge every run against a baseline.

CPU is what /proc charges the processes. It falls on a busy machine, where several chunks are read at one wake-up, and
it does so on both sides; so growth is that of the ratio to what the simulators spend.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Row, text
from stage import fleet, machine, processes

from monitor.config.load import Config
from monitor.core.figures import percentile
from monitor.core.schedule import current_slot
from monitor.postgres import EmbeddedPostgres
from monitor.store.database import Database

EVERY = timedelta(minutes=40)
DOMAINS = 11
DRAIN_SECONDS = 90.0
"""Waited at most after the window, until the last slots due in it have run."""
WORKERS = 32
"""Probes at once: a run takes as long as its replica does, here about 8 s."""
LATE_BOUND_SECONDS = 60.0
GROWTH_BOUND = 1.25


@dataclass(frozen=True)
class Measured:
    """One fleet. `late_seconds`: from slot to start, of the slots due in the window that ran; `cpu`: seconds per run.

    `busy`: probes under way at once, on average.
    """

    routes: int
    compression: float
    due: int
    late_seconds: list[float]
    invalid: int
    busy: float
    cpu: Mapping[str, float]
    serve_megabytes: float
    load: str

    @property
    def late_p95_seconds(self) -> float:
        return percentile(self.late_seconds, 0.95) or 0.0

    @property
    def cpu_seconds(self) -> float:
        return self.cpu["serve"] + self.cpu["postgres"]

    @property
    def to_simulators(self) -> float:
        """CPU of a run as a ratio to what its simulated replica spends on it, which no number of routes changes."""
        return self.cpu_seconds / self.cpu["replicas"]

    @property
    def cores_at_real_pace(self) -> float:
        """What serve and Postgres take of the machine with these routes probed every 40 minutes."""
        return self.cpu_seconds * self.routes * DOMAINS / EVERY.total_seconds()


def measure(routes: int, pace: float, seconds: float, step_seconds: float) -> Measured:
    compression = pace * EVERY.total_seconds() / (DOMAINS * routes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedPostgres(folder / "data") as url, fleet.simulators(folder, routes, step_seconds) as replicas:
            config = fleet.configuration(folder, replicas.replicas, EVERY / compression)
            database = Database(url)
            fleet.measured_before(database, config)
            listen = f"127.0.0.1:{fleet.free_port()}"
            serve = ("-m", "monitor", "--config", name, "serve", "--listen", listen, "--workers", str(WORKERS))
            environment = {"DATABASE_URL": database.conninfo()}
            with processes.python(*serve, log=folder / "serve.log", environment=environment) as pid:
                processes.wait_for(f"http://{listen}/readyz")
                postmaster = int((folder / "data" / "postgres" / "postmaster.pid").read_text().split()[0])
                watched = {"serve": [pid], "postgres": [postmaster], "replicas": list(replicas.pids)}
                return watch(database, config, compression, seconds, watched)


def watch(
    database: Database, config: Config, compression: float, seconds: float, watched: Mapping[str, list[int]]
) -> Measured:
    time.sleep(2.0)
    began, before = datetime.now(UTC), cpu(watched)
    time.sleep(seconds)
    ended, after, load = datetime.now(UTC), cpu(watched), machine.load()
    megabytes = processes.resident_megabytes(watched["serve"][0])
    due = slots_due(config, began, ended)
    runs = recorded(database, set(due))
    database.close()
    started = {run.key: run.started_at for run in runs}
    made = sum(share(run, began, ended) for run in runs)
    return Measured(
        routes=len(config.routes),
        compression=compression,
        due=len(due),
        late_seconds=[(started[key] - slot).total_seconds() for key, slot in due.items() if key in started],
        invalid=sum(not run.valid for run in runs),
        busy=sum(share(run, began, ended) * duration_seconds(run) for run in runs) / (ended - began).total_seconds(),
        cpu={name: (after[name] - before[name]) / made for name in watched},
        serve_megabytes=megabytes,
        load=load,
    )


def duration_seconds(run: Row[Any]) -> float:
    return (run.finished_at - run.started_at).total_seconds()


def share(run: Row[Any], began: datetime, ended: datetime) -> float:
    """The part of a run that lies in the window: runs cut by its ends count by what was done in it."""
    inside = (min(run.finished_at, ended) - max(run.started_at, began)).total_seconds()
    return max(0.0, inside) / duration_seconds(run)


def recorded(database: Database, wanted: set[str]) -> Sequence[Row[Any]]:
    """Every run of the service, as soon as the wanted ones are among them or DRAIN_SECONDS have passed."""
    deadline = time.monotonic() + DRAIN_SECONDS
    statement = text("SELECT key, started_at, finished_at, valid FROM runs WHERE reason <> 'manual'")
    while True:
        with database.transaction() as connection:
            runs = connection.execute(statement).all()
        if wanted <= {run.key for run in runs} or time.monotonic() > deadline:
            return runs
        time.sleep(1.0)


def cpu(watched: Mapping[str, list[int]]) -> dict[str, float]:
    """CPU seconds so far, by what is watched; children included."""
    return {
        name: sum(processes.cpu_seconds(member) for pid in pids for member in processes.family(pid))
        for name, pids in watched.items()
    }


def slots_due(config: Config, began: datetime, ended: datetime) -> dict[str, datetime]:
    """Key of the run → its slot, for every slot in the window."""
    due = {}
    for route in config.routes:
        for domain in route.domains:
            slot = current_slot(route.name, domain, route.every, ended)
            while slot >= began:
                due[f"slot {route.name} {domain} {slot.isoformat()}"] = slot
                slot -= route.every
    return due


COLUMNS: Mapping[str, Callable[[Measured], str]] = {
    "routes": lambda m: f"{m.routes}",
    "compressed": lambda m: f"{m.compression:.1f} x",
    "due": lambda m: f"{m.due}",
    "ran": lambda m: f"{len(m.late_seconds)}",
    "invalid": lambda m: f"{m.invalid}",
    "late p50": lambda m: f"{percentile(m.late_seconds, 0.5) or 0:.2f} s",
    "late p95": lambda m: f"{m.late_p95_seconds:.2f} s",
    "probes at once": lambda m: f"{m.busy:.1f}",
    "serve CPU/run": lambda m: f"{m.cpu['serve']:.3f} s",
    "Postgres CPU/run": lambda m: f"{m.cpu['postgres']:.3f} s",
    "simulators CPU/run": lambda m: f"{m.cpu['replicas']:.3f} s",
    "to simulators": lambda m: f"{m.to_simulators:.2f}",
    "serve RSS": lambda m: f"{m.serve_megabytes:.0f} MB",
    "cores at real pace": lambda m: f"{m.cores_at_real_pace:.3f}",
    "load": lambda m: m.load,
}


def report(found: Sequence[Measured]) -> bool:
    """Prints the table; True when every fleet kept up and the cost of a run did not grow."""
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for measured in found:
        print(f"| {' | '.join(shown(measured) for shown in COLUMNS.values())} |")
    growth = found[-1].to_simulators / found[0].to_simulators
    print(f"a run costs {growth:.2f} x as much with {found[-1].routes} routes as with {found[0].routes}")
    kept_up = all(m.late_p95_seconds <= LATE_BOUND_SECONDS and len(m.late_seconds) == m.due for m in found)
    return kept_up and growth <= GROWTH_BOUND


def main() -> None:
    parser = argparse.ArgumentParser(description="Scale of one serve process.")
    parser.add_argument("--routes", default="10,30,100")
    parser.add_argument("--pace", type=float, default=DOMAINS * 100 / EVERY.total_seconds(), help="runs per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each window")
    parser.add_argument("--step-milliseconds", type=float, default=15.0, help="engine step of the simulated replicas")
    options = parser.parse_args()
    print(f"{machine.described()}; one step every {options.step_milliseconds:g} ms; windows of {options.seconds:g} s")
    counts = [int(count) for count in options.routes.split(",")]
    found = [measure(n, options.pace, options.seconds, options.step_milliseconds / 1000) for n in counts]
    if not report(found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
