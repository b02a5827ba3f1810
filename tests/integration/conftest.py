"""What several files here share: a connection inside a transaction, a server, stories of runs, the gate's bed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.sim.server import SimulatedServer
from tests.factories import make_route
from tests.integration.gate_bed import Bed
from tests.integration.story import Story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Connection

    from monitor.store.database import Database


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.transaction() as found:
        yield found


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def url(server: SimulatedServer) -> Iterator[str]:
    with server.run_in_thread() as address:
        yield address


@pytest.fixture
def story(database: Database) -> Story:
    return Story(database)


@pytest.fixture
def well_story(story: Story) -> Story:
    """A route whose coding domain has its baseline."""
    story.baseline()
    return story


@pytest.fixture
def production() -> Iterator[str]:
    with SimulatedServer().run_in_thread() as url:
        yield url


@pytest.fixture
async def bed(database: Database, production: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bed]:
    monkeypatch.setenv("CI_TOKEN", "s3cret")
    monkeypatch.setenv("READ_TOKEN", "r3ad")
    monkeypatch.setenv("RELEASE_TOKEN", "pr0mote")
    found = Bed(database, make_route(replicas=[production], domains=["math"], model=None, max_tokens=48, concurrency=8))
    async with found.client:
        yield found
