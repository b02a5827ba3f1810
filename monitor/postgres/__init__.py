"""The Postgres that Specwatch starts itself when no DATABASE_URL is given."""

from monitor.postgres.server import EmbeddedPostgres, data_directory

__all__ = ["EmbeddedPostgres", "data_directory"]
