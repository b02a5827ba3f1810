"""A configuration of many equal routes on simulated replicas, and a store in which they have been measured before."""

import asyncio
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text

from monitor.config.load import Config, load_config
from monitor.config.units import format_duration
from monitor.core.records import Reason
from monitor.core.schedule import current_slot
from monitor.prompts.sets import PromptSet, bundled_directory, load_prompt_sets
from monitor.service.jobs import ProbeJob
from monitor.service.probes import run_probe
from monitor.store import migrate, slots
from monitor.store.approvals import approve_baseline
from monitor.store.baselines import create_baseline
from monitor.store.database import Database
from monitor.store.runs import store_run
from stage import processes

_ALERTING = """
rules:
  - {name: acceptance-drop, metric: acceptance_length, drop: 15%, severity: page}
  - {name: acceptance-slip, metric: acceptance_length, drop: 10%, severity: warning}
receivers:
  - {name: log, log: {}}
"""
_OF_BASELINE = (
    "domain, prompt_set_hash, source, k, concurrency, sampling, identity_id, run_ids, metrics, created_at, created_by"
)
_COPY_BASELINES = f"""
INSERT INTO baselines (route, {_OF_BASELINE}) SELECT :route, {_OF_BASELINE} FROM baselines WHERE route = 'route-000'
"""
_APPROVE_COPIES = """
INSERT INTO baseline_approvals (baseline_id, approved_by, why, approved_at)
SELECT id, created_by, '', created_at FROM baselines WHERE route <> 'route-000'
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def configuration(
    folder: Path,
    replicas: Sequence[str],
    every: timedelta,
    *,
    alerting: str = _ALERTING,
    of_route: str = "baseline: {approve_after: 10}",
) -> Config:
    """Writes routes.yaml with one route per replica, of every domain unless `of_route` says which; reads it back."""
    lines = [f"defaults: {{every: {format_duration(every)}}}", "routes:"]
    for n, url in enumerate(replicas):
        lines.append(f"  - {{name: route-{n:03}, replicas: ['{url}'], {of_route}}}")
    (folder / "routes.yaml").write_text("\n".join(lines) + "\n")
    (folder / "alerting.yaml").write_text(alerting)
    return load_config(folder, sorted(path.stem for path in bundled_directory().glob("*.jsonl")))


@dataclass(frozen=True)
class Simulators:
    """Processes that serve simulated replicas."""

    pids: tuple[int, ...]
    replicas: tuple[str, ...]


@contextmanager
def simulators(folder: Path, count: int, step_seconds: float, in_processes: int = 2) -> Iterator[Simulators]:
    """`count` replicas spread over a few processes; every engine step takes `step_seconds`."""
    program, step_milliseconds = Path(__file__).with_name("replicas.py"), f"{step_seconds * 1000:g}"
    pids, replicas = [], []
    with ExitStack() as stack:
        for n in range(in_processes):
            share, port = len(range(n, count, in_processes)), free_port()
            arguments = (str(program), str(share), str(port), step_milliseconds, str(bundled_directory()))
            pids.append(stack.enter_context(processes.python(*arguments, log=folder / f"replicas-{n}.log")))
            replicas += [f"http://127.0.0.1:{port}/r{number}" for number in range(share)]
        for url in {url.rpartition("/")[0]: url for url in replicas}.values():
            processes.wait_for(f"{url}/health")
        yield Simulators(tuple(pids), tuple(replicas))


def measured_before(database: Database, config: Config) -> None:
    """Gives every route and domain an approved baseline and marks its current slot as taken: the steady state."""
    migrate.upgrade(database)
    asyncio.run(_baselines(database, config, load_prompt_sets(bundled_directory())))
    now = datetime.now(UTC)
    with database.transaction() as connection:
        for route in config.routes:
            for domain in route.domains:
                slots.take_slot(connection, route.name, domain, current_slot(route.name, domain, route.every, now))


async def _baselines(database: Database, config: Config, prompt_sets: dict[str, PromptSet]) -> None:
    """Measured for the first route, on the replicas of all, and copied to the others."""
    route, now = config.routes[0], datetime.now(UTC)
    replicas = [other.replicas[0] for other in config.routes]
    jobs = [
        ProbeJob(f"benchmark {domain}", route.name, domain, replicas[n % len(replicas)], Reason.MANUAL)
        for n, domain in enumerate(route.domains)
    ]
    found = await asyncio.gather(*(run_probe(route, job, prompt_sets[job.domain]) for job in jobs))
    with database.transaction() as connection:
        for job, run in zip(jobs, found, strict=True):
            run_id = store_run(connection, job.key, run) if not isinstance(run, Exception) else None
            if run_id is None:
                sys.exit(f"the simulated replica cannot be measured: {run}")
            approve_baseline(connection, create_baseline(connection, [run_id], "benchmark", now), "benchmark", "", now)
        others = [{"route": other.name} for other in config.routes[1:]]
        if others:
            connection.execute(text(_COPY_BASELINES), others)
            connection.execute(text(_APPROVE_COPIES))
