"""`specwatch incidents`: what is broken, since when, and who was told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import require_route
from monitor.cli.output import RECORD_ID, Column, emit, format_option, local_time
from monitor.core.format import NOTHING, change, timeline
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
            if route is not None and not rows:
                require_route(connection, route)
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


def _domains(row: Mapping[str, Any]) -> Iterator[str]:
    """Every domain that was ever in the incident, with its worst change; of an open one, whether it has left."""
    for name, domain in sorted(row["domains"].items()):
        worst = f" {change(domain['worst']['change'])}" if domain.get("worst") else ""
        yield f"{name}{worst}" + (" (left)" if row["state"] == "open" and domain.get("left_at") else "")


def _sources(row: Mapping[str, Any]) -> str:
    """Of the worst changes."""
    worst = [domain["worst"] for domain in row["domains"].values() if domain.get("worst")]
    return ", ".join(sorted({one["source"] for one in worst if one.get("source")})) or NOTHING


COLUMNS = [
    Column("id", lambda row: str(row["id"]), right=True),
    Column("route", lambda row: row["route"]),
    Column("severity", lambda row: row["severity"]),
    Column("state", lambda row: row["state"]),
    Column("domains, at worst", lambda row: ", ".join(_domains(row)) or NOTHING),
    Column("source", _sources, once=True),
    Column("opened", lambda row: local_time(row["opened_at"]), whole=True),
    Column("resolved", lambda row: local_time(row["resolved_at"]), whole=True),
]
