"""Real processes: each test has a directory, a database and simulated servers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.sim import SimulatedServer
from tests.acceptance.hooks import Hook
from tests.acceptance.processes import Home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.store.database import Database


@pytest.fixture
def home(tmp_path: Path, database: Database) -> Iterator[Home]:
    """Where `specwatch` runs with this test's `database`."""
    found = Home(tmp_path, database.url.render_as_string(hide_password=False))
    yield found
    found.close()


@pytest.fixture
def simulator(home: Home) -> Iterator[SimulatedServer]:
    """A simulated server behind the one route of `home`, which probes one domain once when it starts."""
    server = SimulatedServer(home.simulator_settings())
    with server.run_in_thread() as url:
        home.routes(url)
        yield server


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A web hook; whether it is told anything is up to the test's alerting.yaml."""
    with Hook().running() as found:
        yield found
