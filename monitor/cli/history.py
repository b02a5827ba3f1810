"""`specwatch routes`, `history`, `runs`, `run show`: what was measured, from a shell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.organic import show_organic
from monitor.cli.output import (
    RECORD_ID,
    Column,
    document_format_option,
    emit,
    format_option,
    local_time,
    parse_time,
    print_table,
)
from monitor.core.figures import GROUPINGS, HISTORY_METRICS
from monitor.core.format import figure, survival_text
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.cli.context import Context

SHOWN_BY_DEFAULT = ("acceptance_length", "acceptance_length_prompt_mean", "acceptance_rate", "tokens_per_step")


def metric_column(metric: str) -> Column:
    headings = {
        "acceptance_length": "AL",
        "acceptance_length_prompt_mean": "AL/prompt",
        "acceptance_rate": "AR",
        "tokens_per_step": "tok/step",
        "coverage": "coverage",
        "ttft_seconds_p50": "TTFT p50",
        "tokens_per_second_p50": "tok/s p50",
    }
    return Column(headings[metric], lambda row: figure(metric, row[metric]), right=True)


def _zone(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return None if value is None else ZoneInfo(value).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"{value!r} is not a time zone; write for example Europe/Berlin") from None


@click.command()
@click.argument("route")
@click.option("--domain", help="Only this domain.")
@click.option(
    "--metric", "metrics", multiple=True, type=click.Choice(HISTORY_METRICS), help="Figures to show; repeatable."
)
@click.option(
    "--since", callback=parse_time, metavar="TIME", help="From this time or age on: 24h, 7d, 2026-11-30T08:00."
)
@click.option("--until", callback=parse_time, metavar="TIME", help="Up to this time or age.")
@click.option("--group-by", type=click.Choice(GROUPINGS), default="run", show_default=True, help="Pool runs by this.")
@click.option(
    "--zone", callback=_zone, help="IANA time zone that hours, days and weeks begin in.  [default: TZ, else UTC]"
)
@click.option("--organic", is_flag=True, help="What the servers did for everybody instead, by their counters.")
@format_option
@click.pass_obj
def history(
    context: Context,
    route: str,
    domain: str | None,
    metrics: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    group_by: str,
    zone: str | None,
    organic: bool,
    format_: str,
) -> None:
    """Show figures of ROUTE over time, oldest first.

    Acceptance is pooled over tokens (AL) and as the mean over prompts (AL/prompt); figures of different sources or K
    are never pooled. With --group-by identity each row is what was running.

    --organic shows what 'specwatch serve' reads of the servers' own counters each minute: acceptance over everybody's
    traffic, and load. It moves with what users ask, so it is never compared with probes.
    """
    from monitor.store.history import history as read_history

    if since is not None and until is not None and until <= since:
        raise click.UsageError("--until is not after --since; no run can be between them")
    if organic:
        if domain is not None or metrics:
            raise click.UsageError("--organic is of all traffic; it has no domains and its own figures")
        show_organic(
            context, route, since=since, until=until, group_by=group_by, zone=zone or local_zone(), format_=format_
        )
        return

    with context.database() as database, database.transaction() as connection:
        require_route(connection, route)
        rows = read_history(
            connection, route, domain=domain, since=since, until=until, group_by=group_by, zone=zone or local_zone()
        )
    bucket = {"run": "run", "identity": "identity"}.get(group_by)
    columns = [
        Column(bucket or group_by, lambda row: str(row["bucket"]) if bucket else local_time(row["bucket"])),
        *([Column("time", lambda row: local_time(row["first_at"]))] if bucket else []),
        Column("domain", lambda row: row["domain"]),
        *(metric_column(metric) for metric in metrics or SHOWN_BY_DEFAULT),
        Column("K", lambda row: "–" if row["k"] is None else str(row["k"]), right=True),
        Column("valid", lambda row: f"{row['runs_valid']}/{row['runs_total']}", right=True),
        Column("source", lambda row: row["source"] or "none"),
    ]
    emit(rows, columns, format_, f"no runs of route {route} in this window")


def require_route(connection: Connection, route: str) -> None:
    """Raises UsageError for a route nothing was ever recorded of: an empty answer would look like good news."""
    from monitor.store.runs import measured_routes

    known = measured_routes(connection)
    if route not in known:
        listed = f"recorded are: {', '.join(known)}" if known else "nothing has been recorded yet"
        raise UsageError(f"there is no route {route} in this store; {listed}")


def local_zone() -> str:
    """The machine's IANA zone where it can be told, else UTC."""
    import os
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    name = os.environ.get("TZ") or "UTC"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return "UTC"
    return name


RUN_COLUMNS = [
    Column("run", lambda row: str(row["id"]), right=True),
    Column("started", lambda row: local_time(row["started_at"]), whole=True),
    Column("route", lambda row: row["route"]),
    Column("domain", lambda row: row["domain"]),
    Column("why", lambda row: row["reason"]),
    Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
    Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
    Column("valid", lambda row: f"{row['prompts_valid']}/{row['prompts_total']}", right=True),
    Column("source", lambda row: row["source"] or "none"),
    Column("result", lambda row: "ok" if row["valid"] else row["invalid_reason"]),
]


@click.command()
@click.option("--route", help="Only this route.")
@click.option("--domain", help="Only this domain.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@format_option
@click.pass_obj
def runs(context: Context, route: str | None, domain: str | None, limit: int, format_: str) -> None:
    """List the latest runs, newest first, valid or not."""
    from monitor.store.runs import list_runs

    with context.database() as database, database.transaction() as connection:
        rows = list_runs(connection, route, domain, limit)
        if route is not None and not rows:
            require_route(connection, route)
    emit(rows, RUN_COLUMNS, format_, f"no runs of {domain}" if domain else "no runs yet; 'specwatch serve' makes them")


@click.group()
def run() -> None:
    """Look into one run, down to single prompts."""


@run.command()
@click.argument("run_id", metavar="ID", type=RECORD_ID)
@document_format_option
@click.pass_obj
def show(context: Context, run_id: int, format_: str) -> None:
    """Show one run: identity, figures, verdicts, and every prompt's raw counts."""
    from monitor.store.runs import get_run
    from monitor.store.verdicts import list_verdicts

    with context.database() as database, database.transaction() as connection:
        found = get_run(connection, run_id)
        verdicts = list_verdicts(connection, run_id)
    if found is None:
        raise UsageError(f"there is no run {run_id}; see 'specwatch runs'")
    if format_ == "json":
        click.echo(json.dumps({**found, "verdicts": verdicts}, ensure_ascii=False, indent=2))
        return
    _print_run(found, verdicts)


def _print_run(found: Mapping[str, Any], verdicts: list[dict[str, Any]]) -> None:
    state = "valid" if found["valid"] else f"INVALID: {found['invalid_reason']}: {found['invalid_detail']}"
    known = {name: value for name, value in found["identity"].items() if value not in (None, [])}
    click.echo(f"run {found['id']} of {found['route']} · {found['domain']} ({found['reason']}), {state}")
    click.echo(f"  replica   {found['replica']}, {local_time(found['started_at'])}")
    click.echo("  identity  " + ", ".join(f"{name} {value}" for name, value in known.items()))
    click.echo(
        f"  figures   AL {figure('acceptance_length', found['acceptance_length'])} (prompt mean "
        f"{figure('acceptance_length', found['acceptance_length_prompt_mean'])}), "
        f"survival {survival_text(found['survival'])}, AR {figure('acceptance_rate', found['acceptance_rate'])}, "
        f"coverage {figure('coverage', found['coverage'])}, source {found['source'] or 'none'}"
    )
    click.echo(
        f"  counts    steps {found['steps']}, drafted {found['drafted']}, accepted {found['accepted']}, "
        f"completion tokens {found['completion_tokens']}"
    )
    for warning in found["warnings"]:
        click.echo(f"  warning   {warning}")
    for verdict in verdicts:
        click.echo(f"  verdict   {verdict['rule']}: {verdict['outcome']}{_judged(verdict)} ({verdict['reason']})")
    click.echo()
    print_table(found["samples"], SAMPLE_COLUMNS)


def _judged(verdict: Mapping[str, Any]) -> str:
    """The figures that alerts show, with what they are: neither the pooled AL nor the mean over prompts."""
    if verdict["change"] is None:
        return ""
    now, before = (figure(verdict["metric"], verdict[name]) for name in ("value", "baseline_value"))
    return (
        f", {now} is {verdict['change']:+.1%} of {before} of baseline {verdict['baseline_id']}, "
        f"geometric means over {verdict['prompts']} prompts"
    )


def _sample_al(row: Mapping[str, Any]) -> str:
    return figure("acceptance_length", 1 + row["accepted"] / row["steps"] if row["steps"] else None)


SAMPLE_COLUMNS = [
    Column("prompt", lambda row: row["question_id"]),
    Column("AL", _sample_al, right=True),
    Column("steps", lambda row: str(row["steps"]), right=True),
    Column("drafted", lambda row: "–" if row["drafted"] is None else str(row["drafted"]), right=True),
    Column("accepted", lambda row: str(row["accepted"]), right=True),
    Column("tokens", lambda row: str(row["completion_tokens"]), right=True),
    Column("TTFT", lambda row: figure("ttft_seconds_p50", row["ttft_seconds"]), right=True),
    Column("finish", lambda row: row["finish_reason"] or "–"),
    Column("result", lambda row: row["invalid_reason"] or "ok"),
]
