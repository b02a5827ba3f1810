"""`specwatch history ROUTE --organic`: what the replicas did for everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from monitor.cli.output import Column, emit, time_column
from monitor.core.format import NOTHING, figure
from monitor.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from monitor.cli.context import Context


def show_organic(
    context: Context,
    route: str,
    *,
    since: datetime | None,
    until: datetime | None,
    group_by: str,
    zone: str,
    format_: str,
) -> None:
    """Prints the route's organic history. Raises UsageError for a route that nobody has read."""
    from monitor.store.organic import organic_history, read_routes

    if group_by == "identity":
        raise click.UsageError("--organic knows no identities; group by run (each reading), hour, day or week")
    grouping = "reading" if group_by == "run" else group_by
    with context.database() as database, database.transaction() as connection:
        if route not in (known := read_routes(connection)):
            listed = f"there are readings of: {', '.join(known)}" if known else "'specwatch serve' reads each minute"
            raise UsageError(f"nothing was read of route {route}; {listed}")
        rows = organic_history(connection, route, since=since, until=until, group_by=grouping, zone=zone)
    columns = [
        time_column("from", "first_at"),
        Column("replica", lambda row: row["replicas"][0] if len(row["replicas"]) == 1 else f"{len(row['replicas'])}"),
        Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
        Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
        Column("tokens", lambda row: f"{row['generated_tokens']:,}", right=True),
        Column("running", lambda row: _number(row["running_mean"]), right=True),
        Column("waiting", lambda row: _number(row["waiting_max"]), right=True),
        Column("reads", lambda row: f"{row['reads']}/{row['reads'] + row['failures']}", right=True),
        Column("source", lambda row: row["source"], once=True),
    ]
    emit(rows, columns, format_, f"no readings of route {route} in this window")


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"
