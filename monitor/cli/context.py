"""What commands share: where the configuration is, and the store, opened when first needed."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.store.database import Database


class Context:
    """The options before the command's name."""

    def __init__(self, config_dir: str | None, database_url: str | None) -> None:
        self.config_dir = config_dir
        self.database_url = database_url

    def load_config(self, environment: Mapping[str, str] | None = None) -> Config:
        """With an `environment` every secret is read once, too. Raises ConfigError."""
        from monitor.config.load import config_directory, load_config
        from monitor.prompts.sets import bundled_directory

        directory = config_directory(self.config_dir, os.environ)
        bundled = sorted(path.stem for path in bundled_directory().glob("*.jsonl"))
        return load_config(directory, bundled, environment)

    def route(self, name: str) -> Route:
        """The configured route of this name. Raises ConfigError, UsageError."""
        from monitor.errors import UsageError

        config = self.load_config()
        routes = {route.name: route for route in config.routes}
        if name not in routes:
            where = config.directory / "routes.yaml"
            raise UsageError(f"there is no route {name} in {where}; there are: {', '.join(routes)}")
        return routes[name]

    def configured(self) -> dict[str, Route]:
        """The routes by name, when the configuration can be read; nothing when there is none here."""
        from monitor.errors import ConfigError

        try:
            return {route.name: route for route in self.load_config().routes}
        except ConfigError:
            return {}

    def mixes(self) -> dict[str, dict[str, float]]:
        """Route → its mix, when the configuration can be read."""
        return {name: dict(route.mix) for name, route in self.configured().items()}

    def prompt_sets(self, config: Config) -> dict[str, PromptSet]:
        """The sets the configuration's routes replay. Raises PromptError."""
        from monitor.prompts.sets import bundled_directory, load_prompt_sets

        directory: Path = config.prompts or bundled_directory()
        return load_prompt_sets(directory)

    @contextmanager
    def database(self, *, reading: bool = True) -> Iterator[Database]:
        """The store: `--database-url`, DATABASE_URL, or the program's own Postgres, started if need be.

        With `reading`, raises StoreError unless its schema is current. Raises StoreError when out of reach.
        """
        from monitor.store import migrate

        with self.database_and_keeper() as (database, _):
            if reading:
                migrate.require_current(database)
            yield database

    @contextmanager
    def database_and_keeper(
        self, patience_seconds: float = 0.0
    ) -> Iterator[tuple[Database, Callable[[], object] | None]]:
        """The store and, when it is the program's own Postgres, what holds it up.

        One that does not answer is waited for, saying so once, for `patience_seconds`; then raises StoreError.
        """
        from monitor.store.database import Database

        url = self.database_url or database_url(os.environ)
        if url is not None:
            database = Database(url)
            try:
                _await_server(database, patience_seconds)
                yield database, None
            finally:
                database.close()
            return
        from monitor.postgres import EmbeddedPostgres, data_directory

        server = EmbeddedPostgres(data_directory(os.environ))
        with server as own_url:
            database = Database(own_url)
            try:
                yield database, server.ensure_running
            finally:
                database.close()


def _await_server(database: Database, patience_seconds: float) -> None:
    from monitor.errors import StoreError

    deadline = time.monotonic() + patience_seconds
    told = False
    while True:
        try:
            return database.check_server()
        except StoreError as error:
            answered = error.__cause__ is None  # it is there, and not what we need
            if answered or time.monotonic() >= deadline:
                raise
            if not told:
                click.echo(f"specwatch: {error}; waiting for it up to {patience_seconds:.0f} s", err=True)
            told = True
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


def database_url(environment: os._Environ[str] | dict[str, str]) -> str | None:
    """DATABASE_URL, or the content of the file DATABASE_URL_FILE names. Raises ConfigError for an unreadable file."""
    if not environment.get("DATABASE_URL") and not environment.get("DATABASE_URL_FILE"):
        return None
    from monitor.config.secrets import Secret

    return Secret(env="DATABASE_URL").reveal(environment)
