"""What the store costs: recording a run, reading 90 days of history among a million runs, judging.

    python benchmarks/store.py [DATABASE_URL]

Makes a database of its own on that server (TEST_DATABASE_URL, or a Postgres of its own, when none is given), fills it
with 28 routes × 11 domains × a run every 40 minutes for 90 days, prints what each costs beside its bound, and drops it.
On a busy machine the best of the repeats says more than the median.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import text
from sqlalchemy.engine import make_url

from monitor.core.judge import Line, judge_run
from monitor.core.records import Reason, Run
from monitor.postgres import EmbeddedPostgres
from monitor.service.jobs import ProbeJob
from monitor.service.recording import Recorder
from monitor.store import approvals, baselines, migrate, retention, runs
from monitor.store.database import Database
from monitor.store.history import history
from monitor.store.snapshot import snapshot
from tests.factories import make_candidate, make_config, make_reference, make_route, make_run
from tests.many_runs import store_many_runs, store_old_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

ROUTES, DOMAINS, RUNS_EACH = 28, 11, 3240
NOW = datetime(2026, 6, 1, tzinfo=UTC)
NINETY_DAYS = timedelta(days=90)
REPEATS = 21
OLD_RUNS = 3000
"""Of the oldest runs, those that have samples."""
NAME = "specwatch_benchmark"
LINE = Line("acceptance_length", 0.15)
ROUTE, DOMAIN, REPLICA = "route-1", "domain-3", "http://vllm-1"
"""Those of the runs that are recorded: with a past like any other's."""


def main() -> None:
    url = next(iter(sys.argv[1:]), os.environ.get("TEST_DATABASE_URL"))
    if url is not None:
        return measure(url)
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres(Path(directory) / "data") as own:
        return measure(own)


def measure(server: str) -> None:
    with _filled(server) as database:
        _tell_machine(database)
        recorder, judged = _recorder_with_baseline(database)
        number = iter(range(1_000_000))
        every_run = judged.samples * 1

        def store() -> None:
            with database.transaction() as connection:
                runs.store_run(connection, f"stored {next(number)}", replace(judged, samples=every_run))

        def record() -> None:
            with database.transaction() as connection:
                recorder.record(connection, _job(judged, f"recorded {next(number)}"), judged, NOW)

        def record_of_new_replica() -> None:
            replica = f"http://new-{next(number)}:8000"
            with database.transaction() as connection:
                recorder.record(connection, _job(judged, replica), replace(judged, replica=replica), NOW)

        def judge() -> None:
            with database.transaction() as connection:
                _judge_again(connection)

        candidate, reference = make_candidate(2.0, prompts=32), make_reference(2.4, prompts=32)
        _report("store a run of 32 samples", store, 50)
        _report("record it: store, judge, baseline, incident", record, None)
        _report("record the first run of a new replica", record_of_new_replica, None)
        _report("history by day over 90 days, one route", lambda: _history(database, "day"), 100)
        _report("history by day over 90 days, one domain", lambda: _history(database, "day", DOMAIN), 100)
        _report("history by week over 90 days in Berlin", lambda: _history(database, "week"), 100)
        _report("what /metrics shows", lambda: _snapshot(database), None)
        after = 0

        def remove() -> None:
            nonlocal after
            with database.transaction() as connection:
                removed, following = retention.remove_samples(connection, NOW - timedelta(days=30), after, 100)
            assert removed.runs == 100
            after = following or after

        _report("remove the samples of 100 old runs", remove, 250)
        _report("what 'prune --dry-run' counts", lambda: _removable(database), None, repeats=3)
        _report("judge a run of 32 prompts", lambda: judge_run(candidate, reference, LINE), 5)
        _report("read it and its baseline, and judge it", judge, 5)


@contextmanager
def _filled(server: str) -> Iterator[Database]:
    conninfo = make_url(server).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {NAME}")
    database = Database(make_url(server).set(database=NAME).render_as_string(hide_password=False))
    try:
        migrate.upgrade(database)
        with database.transaction() as connection:
            store_many_runs(connection, routes=ROUTES, domains=DOMAINS, runs_each=RUNS_EACH, until=NOW)
            store_old_samples(connection, runs=OLD_RUNS, prompts=32)
        with psycopg.connect(database.conninfo(), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        yield database
    finally:
        database.close()
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def _recorder_with_baseline(database: Database) -> tuple[Recorder, Run]:
    """A recorder and a well run of 32 prompts, half a hundred chunks each, that has a baseline to be judged by."""
    chunks = (tuple([3] * 54),), (tuple(n / 100 for n in range(54)),)
    run = make_run(2.4, prompts=32, started_at=NOW, route=ROUTE, domain=DOMAIN, replica=REPLICA)
    samples = tuple(replace(s, chunk_tokens=chunks[0], chunk_seconds=chunks[1]) for s in run.samples)
    run = replace(run, samples=samples)
    with database.transaction() as connection:
        stored = runs.store_run(connection, "first", run)
        assert stored is not None
        baseline_id = baselines.create_baseline(connection, [stored], "benchmark", NOW)
        approvals.approve_baseline(connection, baseline_id, "benchmark", "to judge by", NOW)
    return Recorder(make_config(make_route(ROUTE, domains=[DOMAIN]))), run


def _job(run: Run, key: str) -> ProbeJob:
    return ProbeJob(key, run.route, run.domain, run.replica, Reason.SCHEDULED)


def _judge_again(connection: Connection) -> None:
    """Judges the newest recorded run from its samples, as its confirmation or `explain` would."""
    run_id = connection.execute(text("SELECT max(run_id) FROM samples")).scalar_one()
    candidate = runs.candidate(connection, run_id, LINE.metric)
    reference = baselines.reference(connection, ROUTE, DOMAIN, LINE.metric, candidate.comparability)
    assert judge_run(candidate, reference, LINE).estimate is not None


def _history(database: Database, group_by: str, domain: str | None = None) -> None:
    zone = "Europe/Berlin" if group_by == "week" else "UTC"
    with database.transaction() as connection:
        found = history(
            connection, ROUTE, domain=domain, since=NOW - NINETY_DAYS, until=NOW, group_by=group_by, zone=zone
        )
    assert sum(row["runs_total"] for row in found) > RUNS_EACH * (1 if domain else DOMAINS) * 0.99


def _snapshot(database: Database) -> None:
    with database.transaction() as connection:
        assert len(snapshot(connection).valid_runs) >= ROUTES * DOMAINS


def _tell_machine(database: Database) -> None:
    with database.transaction() as connection:
        version = connection.execute(text("SHOW server_version")).scalar_one()
        stored = connection.execute(text("SELECT count(*) FROM runs")).scalar_one()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, Postgres {version}")
    print(f"{stored:,} runs of {ROUTES} routes × {DOMAINS} domains; median and best of {REPEATS}")
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}\n")


def _removable(database: Database) -> None:
    before = NOW - timedelta(days=30)
    with database.transaction() as connection:
        assert retention.removable_samples(connection, before).runs > 0
        retention.kept_samples(connection, before)


def _report(what: str, do: Callable[[], object], bound_ms: float | None, repeats: int = REPEATS) -> None:
    do()
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        do()
        took.append((time.perf_counter() - began) * 1000)
    bound = "" if bound_ms is None else f"  bound {bound_ms:g} ms"
    print(f"{what:<46} {statistics.median(took):>8.2f} ms  best {min(took):>7.2f} ms{bound}", flush=True)


if __name__ == "__main__":
    main()
