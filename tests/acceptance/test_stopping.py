"""SIGTERM: running probes finish or go back to the queue, and an idle process is gone at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.acceptance.processes import eventually, requests_running

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)


def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    with database.transaction() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def runs(database: Database) -> list[tuple[object, ...]]:
    return rows(database, "SELECT key, valid FROM runs ORDER BY id")


def jobs(database: Database) -> list[object]:
    return [row[0] for row in rows(database, "SELECT status FROM procrastinate_jobs ORDER BY id")]


def test_an_idle_process_ends_within_two_seconds(home: Home, simulator: SimulatedServer, database: Database) -> None:
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the first run is stored")
    seconds = serve.stop()
    print(seconds)
    assert seconds < 2
