"""A connection inside one transaction, for tests of single statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from monitor.store.database import Database


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.transaction() as found:
        yield found
