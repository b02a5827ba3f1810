"""The schema: from nothing to this program's, once, whoever starts first; and never over a newer one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from monitor.errors import StoreError
from monitor.resources import resource_directory
from monitor.store import migrate, runs
from monitor.store.database import Database, parse_url
from monitor.store.schema import metadata
from tests.factories import make_run

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = ScriptDirectory(str(resource_directory("migrations"))).get_current_head()


def tables(database: Database) -> set[str]:
    """Ours, not the queue's."""
    with database.transaction() as connection:
        names = inspect(connection).get_table_names()
    return {name for name in names if not name.startswith("procrastinate_")}


def set_revision(database: Database, revision: str) -> None:
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_an_empty_database_becomes_this_programs(new_database: Callable[[], Database]) -> None:
    database = new_database()
    before = migrate.status(database)
    assert (before.current, before.head, before.known, before.up_to_date) == (None, HEAD, True, False)
    after = migrate.upgrade(database)
    assert (after.current, after.up_to_date) == (HEAD, True)
    assert tables(database) == {*metadata.tables, "alembic_version"}


def test_the_migrations_make_exactly_the_tables_the_program_knows(database: Database) -> None:
    def ours(_object: object, name: str | None, kind: str, *_: object) -> bool:
        return not (kind == "table" and str(name).startswith("procrastinate_"))

    with database.transaction() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_the_queue_has_its_tables_too(database: Database) -> None:
    with database.transaction() as connection:
        assert connection.execute(text("SELECT count(*) FROM procrastinate_jobs")).scalar_one() == 0


def test_upgrading_twice_is_harmless_and_keeps_what_was_stored(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "k", make_run())
    assert migrate.upgrade(database).up_to_date
    with database.transaction() as connection:
        assert len(runs.list_runs(connection)) == 1


def test_two_processes_that_start_at_once_upgrade_one_after_the_other(new_database: Callable[[], Database]) -> None:
    first = new_database()
    second = Database(first.conninfo())
    together = Barrier(2)

    def start(database: Database) -> migrate.SchemaStatus:
        together.wait(timeout=30)
        return migrate.upgrade(database)

    with ThreadPoolExecutor(2) as processes:
        found = list(processes.map(start, (first, second)))
    second.close()
    assert [status.current for status in found] == [HEAD, HEAD]
    assert "runs" in tables(first)


def test_an_upgrade_that_fails_leaves_nothing_half_done(new_database: Callable[[], Database]) -> None:
    database = new_database()
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE verdicts (id int)"))  # in the way of the last table of the first schema
    with pytest.raises(Exception, match='relation "verdicts" already exists'):
        migrate.upgrade(database)
    assert tables(database) == {"verdicts"}
    assert migrate.status(database).current is None


def test_a_schema_made_by_a_newer_program_is_refused_and_left_alone(database: Database) -> None:
    set_revision(database, "9999")
    message = (
        "the schema is at revision 9999, which this Specwatch does not know: a newer one made it; "
        "upgrade Specwatch, or point DATABASE_URL at another database"
    )
    for refused in (migrate.upgrade, migrate.require_current):
        with pytest.raises(StoreError) as error:
            refused(database)
        assert str(error.value) == message
    assert migrate.status(database).current == "9999"


def test_a_command_that_only_reads_asks_for_the_upgrade_instead_of_making_it(database: Database) -> None:
    migrate.require_current(database)
    set_revision(database, "0001")
    with pytest.raises(StoreError) as error:
        migrate.require_current(database)
    assert str(error.value) == f"the schema is at 0001, this Specwatch needs {HEAD}: run 'specwatch db upgrade'"


def test_where_nothing_was_ever_recorded_a_command_that_reads_says_how_to_begin(
    new_database: Callable[[], Database],
) -> None:
    empty = new_database()
    with pytest.raises(StoreError) as error:
        migrate.require_current(empty)
    assert str(error.value) == "nothing is recorded here yet: start 'specwatch serve', which begins to measure"
    assert tables(empty) == set()


def test_every_migration_but_the_first_builds_on_the_one_before(database: Database) -> None:
    scripts = list(ScriptDirectory(str(resource_directory("migrations"))).walk_revisions())
    assert len(scripts) == len({script.down_revision for script in scripts})
    assert all(script.doc for script in scripts)


@pytest.mark.parametrize(
    "url", ["postgres://ann@db/specwatch", "postgresql://ann@db/specwatch", "postgresql+psycopg2://ann@db/specwatch"]
)
def test_any_usual_spelling_of_a_postgres_url_is_understood(url: str) -> None:
    assert parse_url(url).render_as_string() == "postgresql+psycopg://ann@db/specwatch"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///specwatch.db", "DATABASE_URL names sqlite; Specwatch stores in Postgres 15 or newer"),
        ("db:5432", "DATABASE_URL is not a URL; write postgresql://user:password@host:5432/database"),
    ],
)
def test_another_database_is_refused_with_what_to_write(url: str, message: str) -> None:
    with pytest.raises(StoreError) as error:
        Database(url)
    assert str(error.value) == message


def test_a_server_out_of_reach_is_named_without_its_password() -> None:
    database = Database("postgresql://ann:s3cret@127.0.0.1:1/specwatch")
    with pytest.raises(StoreError, match=r"ann:\*\*\*@127\.0\.0\.1:1/specwatch does not answer") as error:
        database.check_server()
    assert "s3cret" not in str(error.value)


def test_a_full_disk_of_the_database_is_said_as_such(database: Database) -> None:
    full = text("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$")
    with pytest.raises(StoreError, match="has no room on its disk: could not extend file; nothing was stored"):  # noqa: SIM117
        with database.transaction() as connection:
            connection.execute(full)


def test_a_server_that_is_new_enough_passes(database: Database) -> None:
    with database.transaction() as connection:
        number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    assert number >= 150000
    database.check_server()


def test_a_server_that_is_too_old_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.store.database.OLDEST_SERVER", 990000)
    with pytest.raises(StoreError, match=r"Postgres \d+ is too old; Specwatch needs Postgres 15 or newer"):
        database.check_server()
