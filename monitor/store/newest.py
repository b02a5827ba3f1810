"""The newest rows of every route and domain, however many rows a table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, select, true, tuple_

if TYPE_CHECKING:
    from sqlalchemy import CTE, ColumnElement, Select, Table


def newest(table: Table, such: ColumnElement[bool], limit: int = 1) -> Select[Any]:
    """The `limit` newest rows of each pair, newest first, of a table with an index on route, domain, (valid,) id.

    Guarantee: a few index entries per route and domain (its plan is tested).
    """
    pairs = _pairs(table)
    its_own = and_(table.c.route == pairs.c.route, table.c.domain == pairs.c.domain)
    latest = select(table).where(its_own, such).order_by(table.c.id.desc()).limit(limit).lateral("latest")
    statement = select(latest).select_from(pairs.join(latest, true()))
    return statement.order_by(latest.c.route, latest.c.domain, latest.c.id.desc())


def _pairs(table: Table) -> CTE:
    """Every route and domain with a row, each found by one step in the index from the one before it."""
    pair = (table.c.route, table.c.domain)
    first = select(*pair).order_by(*pair).limit(1).cte("pairs", recursive=True)
    beyond = tuple_(*pair) > tuple_(first.c.route, first.c.domain)
    following = select(*pair).where(beyond).order_by(*pair).limit(1).lateral("following")
    return first.union_all(select(following).select_from(first.join(following, true())))
