"""`specwatch incidents`: what is broken, since when, who was told, and who does something about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import require_route
from monitor.cli.output import RECORD_ID, Column, emit, format_option, local_time, time_column
from monitor.cli.parameters import by_option, words
from monitor.core.format import NOTHING, change, timeline
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from monitor.cli.context import Context
    from monitor.store.acts import Kind


class _Incidents(click.Group):
    """An ID in place of a command shows that incident."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].isdecimal():
            return "show", show, args
        return super().resolve_command(ctx, args)


@click.group(cls=_Incidents, invoke_without_command=True, subcommand_metavar="[ID | COMMAND]")
@click.option("--route", help="Only this route.")
@click.option("--open", "open_only", is_flag=True, help="Only those not resolved.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@format_option
@click.pass_context
def incidents(ctx: click.Context, route: str | None, open_only: bool, limit: int, format_: str) -> None:
    """List incidents, newest first; with ID show one, as 'incidents show' does."""
    if ctx.invoked_subcommand is not None:
        ctx.default_map = {"show": {"format_": format_}}  # wherever the option stands, it is about what is shown
        return
    from monitor.store.incidents import list_incidents

    context: Context = ctx.obj
    with context.database() as database, database.transaction() as connection:
        rows = list_incidents(connection, route, open_only, limit)
        if route is not None and not rows:
            require_route(connection, route)
    emit(rows, _columns(), format_, "no incidents")


@incidents.command()
@click.argument("incident_id", metavar="ID", type=RECORD_ID)
@format_option
@click.pass_obj
def show(context: Context, incident_id: int, format_: str) -> None:
    """Show one incident: its messages as they were sent, to whom, and what people did about it."""
    from monitor.store.incidents import get_incident

    with context.database() as database, database.transaction() as connection:
        found = get_incident(connection, incident_id)
    if found is None:
        raise UsageError(f"there is no incident {incident_id}; see 'specwatch incidents'")
    if format_ == "json":
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    emit([found], _columns(), format_, "no incidents")
    if format_ == "table":
        click.echo(timeline(found, local_time))


@incidents.command()
@click.argument("incident_id", metavar="ID", type=RECORD_ID)
@by_option
@click.option("--note", callback=words, help="What you are doing about it.")
@click.pass_obj
def ack(context: Context, incident_id: int, by: str, note: str | None) -> None:
    """Say that you look after an open incident: recorded and shown; PagerDuty acknowledges its alert."""
    _record(context, incident_id, "acknowledged", by, note)
    click.echo(f"incident {incident_id} acknowledged by {by}")


@incidents.command()
@click.argument("incident_id", metavar="ID", type=RECORD_ID)
@click.argument("text", callback=words)
@by_option
@click.pass_obj
def note(context: Context, incident_id: int, text: str, by: str) -> None:
    """Add TEXT to an incident, open or resolved: recorded and shown, nobody is told."""
    _record(context, incident_id, "note", by, text)
    click.echo(f"noted by {by}; 'specwatch incidents {incident_id}' shows it")


def _record(context: Context, incident_id: int, kind: Kind, by: str, text: str | None) -> None:
    from monitor.store.acts import record_act

    with context.database() as database, database.transaction() as connection:
        record_act(connection, incident_id, kind, by, text, datetime.now(UTC))


def _domains(row: Mapping[str, Any]) -> Iterator[str]:
    """Every domain that was ever in the incident, with its worst change; of an open one, whether it has left."""
    for name, domain in sorted(row["domains"].items()):
        worst = f" {change(domain['worst']['change'])}" if domain.get("worst") else ""
        yield f"{name}{worst}" + (" (left)" if row["state"] == "open" and domain.get("left_at") else "")


def _sources(row: Mapping[str, Any]) -> str:
    """Of the worst changes."""
    worst = [domain["worst"] for domain in row["domains"].values() if domain.get("worst")]
    return ", ".join(sorted({one["source"] for one in worst if one.get("source")})) or NOTHING


def _columns() -> list[Column]:
    """Seconds are in JSON."""
    return [
        Column("id", lambda row: str(row["id"]), right=True),
        Column("route", lambda row: row["route"]),
        Column("severity", lambda row: row["severity"]),
        Column("state", lambda row: row["state"]),
        Column("acked by", lambda row: row["acknowledged_by"] or NOTHING, if_any=True),
        Column("domains, at worst", lambda row: ", ".join(_domains(row)) or NOTHING, under=True),
        Column("source", _sources, once=True, if_any=True),
        time_column("opened", "opened_at"),
        time_column("reopened", "reopened_at", if_any=True),
        time_column("resolved", "resolved_at", if_any=True),
    ]
