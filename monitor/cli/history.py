"""`specwatch history`: what was measured over time, from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monitor.cli.organic import show_organic
from monitor.cli.output import (
    Column,
    emit,
    format_option,
    parse_time,
    time_column,
)
from monitor.core.conditions import conditions_text, telling_conditions
from monitor.core.contexts import HISTORY_METRICS as CONTEXT_METRICS
from monitor.core.figures import GROUPINGS, HISTORY_METRICS
from monitor.core.format import NOTHING, change, context_text, count, figure
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.cli.context import Context

SHOWN_BY_DEFAULT = ("acceptance_length",)
BELOW = """\
AL is pooled over tokens. What judging saw: geometric means over the prompts
that both sides have, now and of the baseline (its id), and the change."""

POOLED = """\
Rows with several identities pool figures of before and after a bump;
--group-by identity has each identity alone."""

BELOW_CONTEXTS = """\
Pooled over the tokens of the valid prompts of each length; a prompt of several turns
has the mean over them. Prompts whose tokens the server does not tell are left out."""


HEADINGS = {
    "acceptance_length": "AL",
    "acceptance_length_prompt_mean": "AL/prompt",
    "acceptance_rate": "AR",
    "tokens_per_step": "tok/step",
    "ttft_seconds_p50": "TTFT p50",
    "tokens_per_second_p50": "tok/s p50",
}


def metric_column(metric: str) -> Column:
    return Column(_heading(metric), lambda row: figure(metric, row[metric]), right=True)


def _heading(metric: str) -> str:
    return HEADINGS.get(metric, metric.replace("_", " "))


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
@click.option("--by-context", is_flag=True, help="Also by length of context, in buckets of prompt tokens.")
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
    by_context: bool,
    organic: bool,
    format_: str,
) -> None:
    """Show figures of ROUTE over time, oldest first.

    Figures are pooled over tokens, never over what is not comparable: rows of other sources, K, prompt sets,
    concurrencies, sampling, cache passes, methods or drafters stand apart, and a column says what differs.

    The baseline and the change from it are what judging saw: geometric means over shared prompts. By run, the note says
    what happened: a bump noticed, an incident opened or resolved, a baseline approved. With --group-by identity each
    row is what was running.

    --by-context pools samples by their prompt tokens: where only long contexts fall, traffic that grows longer looks
    like a drafter that rots.

    --organic shows what 'specwatch serve' reads of the servers' own counters each minute: acceptance over everybody's
    traffic, and load. It moves with what users ask, so it is never compared with probes.
    """
    from monitor.store.history import history as read_history

    if since is not None and until is not None and until <= since:
        raise click.UsageError("--until is not after --since; no run can be between them")
    if by_context and (organic or set(metrics) - set(CONTEXT_METRICS)):
        raise click.UsageError(f"--by-context is of probes, and has the metrics {', '.join(CONTEXT_METRICS)}")
    if organic:
        if domain is not None or metrics:
            raise click.UsageError("--organic is of all traffic; it has no domains and its own figures")
        show_organic(
            context, route, since=since, until=until, group_by=group_by, zone=zone or local_zone(), format_=format_
        )
        return

    zone = zone or local_zone()
    if by_context:
        asked = {"domain": domain, "since": since, "until": until}
        rows, gone = _rows_by_context(context, route, group_by=group_by, zone=zone, **asked)
        columns = context_columns(group_by, metrics or SHOWN_BY_DEFAULT, zone) + _telling_columns(rows)
        told = "\n".join([BELOW_CONTEXTS, *_pooled(rows)])
        emit(rows, columns, format_, f"no valid runs of route {route} in this window", told)
        if gone:
            click.echo(
                f"left out: {count(gone, 'valid run')} of this window whose samples are no longer kept", err=True
            )
        return
    with context.database() as database, database.transaction() as connection:
        require_route(connection, route)
        rows = read_history(connection, route, domain=domain, since=since, until=until, group_by=group_by, zone=zone)
        if domain is not None and not rows:
            require_domain(connection, route, domain)
    columns = history_columns(rows, group_by, metrics or SHOWN_BY_DEFAULT, zone) + _telling_columns(rows)
    below = [BELOW, *_pooled(rows), *(_legend(rows) if group_by == "identity" else ())]
    emit(rows, columns, format_, f"no runs of route {route} in this window", "\n".join(below))


def _rows_by_context(context: Context, route: str, **asked: Any) -> tuple[list[dict[str, Any]], int]:
    """And how many valid runs cannot be among them."""
    from monitor.store.contexts import history_by_context, runs_without_samples

    with context.database() as database, database.transaction() as connection:
        require_route(connection, route)
        rows = history_by_context(connection, route, **asked)
        gone = runs_without_samples(connection, route, asked["domain"], asked["since"], asked["until"])
        if asked["domain"] is not None and not rows:
            require_domain(connection, route, asked["domain"])
    return rows, gone


def context_columns(group_by: str, metrics: Sequence[str], zone: str) -> list[Column]:
    return [
        *_bucket_columns(group_by, zone),
        Column("domain", lambda row: row["domain"], once=True),
        Column("prompt tokens", context_text, right=True),
        *(metric_column(metric) for metric in metrics),
        Column("prompts", lambda row: str(row["prompts"]), right=True),
        Column("runs", lambda row: str(row["runs"]), right=True),
        Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True, once=True),
        Column("source", lambda row: row["source"] or "none", once=True),
    ]


def history_columns(
    rows: Sequence[Mapping[str, Any]], group_by: str, metrics: Sequence[str], zone: str
) -> list[Column]:
    """What was judged need not be what is shown, so that it is named: in the heading, or in each row if it varies."""
    judged = {row["metric"] for row in rows if row["metric"]}
    named = f" {_heading(judged.pop())}" if len(judged) == 1 else ""

    return [
        *_bucket_columns(group_by, zone),
        Column("domain", lambda row: row["domain"], once=True),
        *(metric_column(metric) for metric in metrics),
        Column(f"judged{named}", lambda row: _judged(row, named=bool(named)), right=True),
        Column("baseline", _baseline, right=True),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True, once=True),
        Column("source", lambda row: row["source"] or "none", once=True),
        _last_column(group_by),
    ]


def _telling_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """How many identities a row pools, and what tells rows of one domain apart; neither where nothing differs."""
    telling = telling_conditions(rows)
    identities = Column("identities", lambda row: str(len(row["identity_ids"])), right=True)
    conditions = Column("conditions", lambda row: conditions_text(row, telling.get(row["domain"], ())))
    return [*([identities] if _pooled(rows) else []), *([conditions] if telling else [])]


def _pooled(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """That rows pool several identities, and how to see each alone, where any does."""
    return [POOLED] if any(len(row["identity_ids"]) > 1 for row in rows) else []


def _bucket_columns(group_by: str, zone: str) -> list[Column]:
    from zoneinfo import ZoneInfo

    if group_by == "run":
        return [Column("run", lambda row: str(row["bucket"]), right=True), time_column("at", "first_at")]
    if group_by == "identity":
        return [Column("identity", lambda row: str(row["bucket"]), right=True), time_column("since", "first_at")]
    return [time_column(group_by, "bucket", date=group_by != "hour", zone=ZoneInfo(zone))]


def _judged(row: Mapping[str, Any], *, named: bool) -> str:
    value = figure(row["metric"] or "", row["value"])
    return value if named or row["value"] is None else f"{_heading(row['metric'])} {value}"


def _baseline(row: Mapping[str, Any]) -> str:
    if row["change"] is None:
        return "several" if row["runs_judged"] else NOTHING
    return f"{figure(row['metric'], row['baseline_value'])} ({row['baseline_id']})"


def _last_column(group_by: str) -> Column:
    if group_by == "run":
        return Column("note", _note, under=True)
    return Column("valid", lambda row: f"{row['runs_valid']}/{row['runs_total']}", right=True)


def _note(row: Mapping[str, Any]) -> str:
    """What happened at a run; a run that does not count says so."""
    return "; ".join([*([] if row["runs_valid"] else ["invalid"]), *(event["text"] for event in row["events"])])


def _legend(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per identity: version, K, and what else tells it from the others; else the fingerprint."""
    identities = {row["bucket"]: row["identity"] for row in rows}
    names = [name for name in next(iter(identities.values()), {}) if name not in ("version", "k", "declared")]
    telling = [name for name in names if len({str(one[name]) for one in identities.values()}) > 1] or ["fingerprint"]
    return [
        f"identity {number}: " + ", ".join(f"{name} {one[name] or NOTHING}" for name in ("version", "k", *telling))
        for number, one in identities.items()
    ]


def require_route(connection: Connection, route: str) -> None:
    """Raises UsageError for a route nothing was ever recorded of: an empty answer would look like good news."""
    from monitor.store.runs import measured_routes

    known = measured_routes(connection)
    if route not in known:
        raise UsageError(f"there is no route {route} in this store; {_recorded(known)}")


def require_domain(connection: Connection, route: str | None, domain: str) -> None:
    """Raises UsageError for a domain nothing was ever recorded of, on this route or on any."""
    from monitor.store.runs import measured_domains

    known = measured_domains(connection, route)
    if domain not in known:
        of = "" if route is None else f" of route {route}"
        raise UsageError(f"there is no domain {domain}{of} in this store; {_recorded(known)}")


def _recorded(known: Sequence[str]) -> str:
    return f"recorded are: {', '.join(known)}" if known else "nothing has been recorded yet"


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
