"""`specwatch silence`: no messages about something for a while, and who wanted that, why and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import require_route
from monitor.cli.output import (
    RECORD_ID,
    Column,
    emit,
    format_option,
    local_time,
    short_time,
    time_column,
    with_zone,
)
from monitor.cli.parameters import by_option, words
from monitor.core.format import NOTHING, silenced

if TYPE_CHECKING:
    from monitor.cli.context import Context

LONGEST = timedelta(days=30)
"""What should be silent for longer belongs into `routing` of alerting.yaml, where everybody reads it."""


@click.group()
def silence() -> None:
    """Hold back messages for a while, list what is held back, end it early."""


def _duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    from monitor.config.units import parse_duration

    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if duration > LONGEST:
        raise click.BadParameter(
            f"{value} is more than 30 days; leave who is never told out of routing in alerting.yaml"
        )
    return duration


def _labels(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise click.BadParameter(f"{name}{equals}{value} is not a label; write for example team=chat")
    return {name: value for name, _, value in pairs}


@silence.command()
@by_option
@click.option("--reason", required=True, callback=words, help="Why; shown wherever the silence is.")
@click.option(
    "--for", "duration", metavar="DURATION", required=True, callback=_duration, help="How long: 2h; 30d at most."
)
@click.option("--route", help="Only incidents of this route.")
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_labels,
    help="Only routes with this label; repeatable, all must fit.",
)
@click.option("--severity", type=click.Choice(["page", "warning"]), help="Only incidents of this severity.")
@click.pass_obj
def add(
    context: Context,
    by: str,
    reason: str,
    duration: timedelta,
    route: str | None,
    labels: dict[str, str],
    severity: str | None,
) -> None:
    """Silence what fits every option given, from now on; without any, everything.

    Messages are held and shown as silenced. What still fires when the silence ends is told then; whoever was told of an
    incident before is told when it resolves.
    """
    from monitor.store.silences import add_silence

    now = datetime.now(UTC)
    with context.database() as database, database.transaction() as connection:
        if route is not None:
            require_route(connection, route)
        made = add_silence(connection, by, reason, now + duration, now, route=route, labels=labels, severity=severity)
    click.echo(f"silence {made['id']} of {silenced(made)} until {local_time(made['ends_at'])} by {by}: {reason}")


@silence.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended.")
@format_option
@click.pass_obj
def list_(context: Context, everything: bool, format_: str) -> None:
    """List the silences that hold now, newest first, and before them when maintenance windows open next.

    'still firing' are the open incidents that its end will tell of; 'end told ahead' is when silence_notice of
    alerting.yaml does so before.
    """
    from monitor.alerting.windows import windows_to_come
    from monitor.core.silence import notice_at
    from monitor.errors import ConfigError
    from monitor.service.silence_ends import firing_under
    from monitor.store.silences import list_silences

    now = datetime.now(UTC)
    try:
        alerting = context.load_config().alerting
        windows, notice = alerting.maintenance, alerting.silence_notice
    except ConfigError as error:
        windows, notice = (), None
        click.echo(f"maintenance windows are not shown: {error}", err=True)
    with context.database() as database, database.transaction() as connection:
        held = list_silences(connection, now, active_only=not everything)
        fires = firing_under(connection, [silence for silence in held if silence["state"] == "active"])
    rows = [
        {
            **silence,
            "notice_at": at.isoformat() if silence["state"] != "ended" and (at := notice_at(silence, notice)) else None,
            "incidents": [incident["id"] for incident in fires.get(silence["id"], [])],
        }
        for silence in (*windows_to_come(windows, now), *held)
    ]
    emit(rows, _columns(), format_, "no silences" if everything else "nothing is silenced")


@silence.command()
@click.argument("silence_id", metavar="ID", type=RECORD_ID)
@click.option("--by", metavar="NAME", callback=words, help="Who is doing this; kept with the silence.")
@click.pass_obj
def end(context: Context, silence_id: int, by: str | None) -> None:
    """End a silence now: what it held and still fires is told within seconds."""
    from monitor.store.silences import end_silence

    with context.database() as database, database.transaction() as connection:
        ended = end_silence(connection, silence_id, by, datetime.now(UTC))
    click.echo(f"silence {silence_id} of {silenced(ended)} has ended")


def _columns() -> list[Column]:
    def ended(row: Any) -> str:
        by = f" by {row['ended_by']}" if row["ended_by"] else ""
        return f"ended early{by}" if row["ended_at"] else row["state"]

    def told(row: Any) -> str:
        if row["end_told_at"]:
            return f"told {short_time(row['end_told_at'])}"
        if row["notice_at"] and datetime.fromisoformat(row["notice_at"]) <= datetime.now(UTC):
            return "now" if row["incidents"] else "not yet: nothing fires"
        return short_time(row["notice_at"]) if row["notice_at"] else NOTHING

    return [
        Column("id", lambda row: NOTHING if row["id"] is None else str(row["id"]), right=True),
        Column("silences", silenced),
        Column("by", lambda row: row["by"]),
        Column("reason", lambda row: row["reason"] or NOTHING, under=True, if_any=True),
        Column("state", ended),
        time_column("from", "created_at"),
        time_column("until", "ends_at"),
        Column("still firing", lambda row: ", ".join(map(str, row["incidents"])) or NOTHING, if_any=True),
        Column(with_zone("end told ahead"), told, if_any=True),
    ]
