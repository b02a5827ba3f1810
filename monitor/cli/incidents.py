"""`specwatch incidents`: what is broken, since when, and who was told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from monitor.cli.output import RECORD_ID, Column, emit, format_option, local_time
from monitor.core.format import timeline
from monitor.errors import UsageError

if TYPE_CHECKING:
    from monitor.cli.context import Context


@click.command()
@click.argument("incident_id", metavar="[ID]", type=RECORD_ID, required=False)
@click.option("--route", help="Only this route.")
@click.option("--open", "open_only", is_flag=True, help="Only those not resolved.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@format_option
@click.pass_obj
def incidents(
    context: Context, incident_id: int | None, route: str | None, open_only: bool, limit: int, format_: str
) -> None:
    """List incidents, newest first; with ID show one: its messages as they were sent, and to whom."""
    from monitor.store.incidents import get_incident, list_incidents

    with context.database() as database, database.transaction() as connection:
        if incident_id is None:
            rows = list_incidents(connection, route, open_only, limit)
        else:
            found = get_incident(connection, incident_id)
            if found is None:
                raise UsageError(f"there is no incident {incident_id}; see 'specwatch incidents'")
            rows = [found]
    if incident_id is not None and format_ == "json":
        click.echo(json.dumps(rows[0], ensure_ascii=False, indent=2))
        return
    emit(rows, COLUMNS, format_, "no incidents")
    if incident_id is not None and format_ == "table":
        click.echo(timeline(rows[0], local_time))


COLUMNS = [
    Column("id", lambda row: str(row["id"]), right=True),
    Column("route", lambda row: row["route"]),
    Column("severity", lambda row: row["severity"]),
    Column("state", lambda row: row["state"]),
    Column("domains", lambda row: ", ".join(row["domains"]) or "–"),
    Column("opened", lambda row: local_time(row["opened_at"]), whole=True),
    Column("resolved", lambda row: local_time(row["resolved_at"]), whole=True),
]
