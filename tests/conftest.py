"""A real Postgres for the whole session, and a migrated database of its own for every test that asks for one."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import settings
from psycopg.sql import SQL, Identifier
from sqlalchemy.engine import make_url

from monitor.postgres import EmbeddedPostgres
from monitor.store import migrate
from monitor.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("specwatch", deadline=None)
settings.load_profile("specwatch")

_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever runs real servers and processes has a second try: a busy machine may stop one of them for seconds.

    The closing line counts the tests that needed it; what fails twice has failed. `-p no:rerunfailures` gives none.
    """
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if item.path.parent.name != "unit":
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server where databases may be made: TEST_DATABASE_URL when set, else one of our own for this session."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield given
        return
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as url:
        yield make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def template(postgres_url: str) -> Iterator[str]:
    """Name of a database migrated once; a copy of it takes a fraction of the time that migrating takes."""
    name = _new_name("template")
    with _created(postgres_url, name):
        migrated = Database(_url_of(postgres_url, name))
        migrate.upgrade(migrated)
        migrated.close()
        yield name


@pytest.fixture
def database(postgres_url: str, template: str) -> Iterator[Database]:
    """A migrated, empty store of this test alone."""
    name = _new_name("test")
    with _created(postgres_url, name, template):
        found = Database(_url_of(postgres_url, name))
        yield found
        found.close()


@pytest.fixture
def new_database(postgres_url: str) -> Iterator[Callable[[], Database]]:
    """Makes databases without any table, as a new user's server has them."""
    with ExitStack() as made:

        def make() -> Database:
            url = _url_of(postgres_url, made.enter_context(_created(postgres_url, _new_name("empty"))))
            return made.enter_context(closing(Database(url)))

        yield make


def _new_name(kind: str) -> str:
    return f"specwatch_{kind}_{os.getpid()}_{next(_numbers)}"


def _url_of(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def _admin(server: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(Database(server).conninfo(), autocommit=True)


@contextmanager
def _created(server: str, name: str, template: str = "template1") -> Iterator[str]:
    """A database for the time of the block; whoever is still connected at the end is thrown out."""
    with _admin(server) as admin:
        admin.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(template)))
    try:
        yield name
    finally:
        with _admin(server) as admin:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
