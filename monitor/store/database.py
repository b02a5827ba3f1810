"""One handle on Postgres: connections, transactions, and errors people can act on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.errors import DiskFull, ReadOnlySqlTransaction
from psycopg.pq import Conninfo
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from monitor.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from sqlalchemy import URL

OLDEST_SERVER = 150000
"""Postgres 15: the oldest server the SQL here is tested with (server_version_num)."""


def parse_url(url: str) -> URL:
    """A SQLAlchemy URL with the psycopg driver from any usual spelling. Raises StoreError for other databases."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise StoreError("DATABASE_URL is not a URL; write postgresql://user:password@host:5432/database") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(f"DATABASE_URL names {parsed.get_backend_name()}; Specwatch stores in Postgres 15 or newer")
    if isinstance(password := parsed.query.get("password"), str):  # moved to where it is never shown
        parsed = parsed.set(password=password).difference_update_query(["password"])
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    if unknown := sorted(set(parsed.query) - known):
        raise StoreError(f"DATABASE_URL has the option {unknown[0]!r}, which Postgres does not know")
    return parsed.set(drivername="postgresql+psycopg")


def _speak_utc(connection: psycopg.Connection[Any], _: object) -> None:
    """Times read back are the same text whatever zone the server lives in: documents and messages hold them."""
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


class Database:
    """Hands out transactions. Losing the server raises StoreError, never the driver's own error."""

    def __init__(self, url: str, pool_size: int = 5) -> None:
        self.url = parse_url(url)
        self.engine = create_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"connect_timeout": 5, "application_name": "specwatch"},
        )
        event.listen(self.engine, "connect", _speak_utc)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block and rolled back on any error."""
        with self.errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the loss of the server into StoreError; other database errors are bugs and pass through.

        A server that only reads counts as lost: a failover leaves the old primary like that for a while.
        """
        try:
            yield
        except PoolTimeoutError as error:
            raise StoreError(f"the database {self.shown()} is too slow: no connection came free") from error
        except DBAPIError as error:
            lost = isinstance(error, OperationalError) or isinstance(error.orig, ReadOnlySqlTransaction)
            if lost or error.connection_invalidated:
                raise StoreError(self._unreachable(error)) from error
            raise

    def check_server(self) -> None:
        """Raises StoreError when the server is out of reach or older than Postgres 15."""
        with self.transaction() as connection:
            number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
        if number < OLDEST_SERVER:
            raise StoreError(f"Postgres {number // 10000} is too old; Specwatch needs Postgres 15 or newer")

    def conninfo(self) -> str:
        """The same database as a libpq connection string, for drivers without SQLAlchemy."""
        return self.url.set(drivername="postgresql").render_as_string(hide_password=False)

    def close(self) -> None:
        self.engine.dispose()

    def _unreachable(self, error: DBAPIError) -> str:
        cause = str(error.orig or error).strip().splitlines()[0]
        if isinstance(error.orig, DiskFull):
            return f"the database {self.shown()} has no room on its disk: {cause}; nothing was stored, make room there"
        return f"the database {self.shown()} does not answer: {cause}"

    def shown(self) -> str:
        """Which database, without its password: for messages."""
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)
