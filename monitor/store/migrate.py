"""The schema, only by Alembic: upgrade, status, and the refusal of a schema newer than this program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from monitor.errors import StoreError
from monitor.resources import resource_directory

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.store.database import Database

UPGRADE_LOCK = 0x5BEC_0001
"""Advisory lock number: two processes that start at once upgrade one after the other."""


@dataclass(frozen=True)
class SchemaStatus:
    """Revision in the database (None: empty) against the newest this program knows."""

    current: str | None
    head: str
    known: bool

    @property
    def up_to_date(self) -> bool:
        return self.current == self.head


def status(database: Database) -> SchemaStatus:
    with database.transaction() as connection:
        return _status(connection)


def upgrade(database: Database) -> SchemaStatus:
    """Brings an empty or older schema to this program's. Raises StoreError when the schema is the newer one."""
    with database.transaction() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": UPGRADE_LOCK})
        before = _status(connection)
        _refuse_newer(before)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return _status(connection)


def require_current(database: Database) -> None:
    """Raises StoreError unless the schema is exactly this program's: for commands that only read."""
    found = status(database)
    _refuse_newer(found)
    if found.current is None:
        raise StoreError("nothing is recorded here yet: start 'specwatch serve', which begins to measure")
    if not found.up_to_date:
        raise StoreError(
            f"the schema is at {found.current}, this Specwatch needs {found.head}: run 'specwatch db upgrade'"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resource_directory("migrations")))
    return config


def _status(connection: Connection) -> SchemaStatus:
    scripts = ScriptDirectory.from_config(_config())
    current = MigrationContext.configure(connection).get_current_revision()
    known = current is None or current in {script.revision for script in scripts.walk_revisions()}
    return SchemaStatus(current, scripts.get_current_head() or "", known)


def _refuse_newer(found: SchemaStatus) -> None:
    if not found.known:
        raise StoreError(
            f"the schema is at revision {found.current}, which this Specwatch does not know: a newer one made it; "
            "upgrade Specwatch, or point DATABASE_URL at another database"
        )
