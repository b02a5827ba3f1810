"""`specwatch routes`, `history`, `runs`, `run show`: what was measured, from a shell."""

from __future__ import annotations

import json
import math
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
    time_column,
    wrapped,
)
from monitor.core.figures import GROUPINGS, HISTORY_METRICS
from monitor.core.format import NOTHING, change, figure, survival_text
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.cli.context import Context

SHOWN_BY_DEFAULT = ("acceptance_length",)
BELOW = """\
AL is pooled over tokens. What judging saw: geometric means over the prompts
that both sides have, now and of the baseline (its id), and the change."""


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

    Figures are pooled over tokens, never over different sources or K. The baseline and the change from it are what
    judging saw: geometric means over shared prompts. By run, the note says what happened: a bump noticed, an incident
    opened or resolved, a baseline approved. With --group-by identity each row is what was running.

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

    zone = zone or local_zone()
    with context.database() as database, database.transaction() as connection:
        require_route(connection, route)
        rows = read_history(connection, route, domain=domain, since=since, until=until, group_by=group_by, zone=zone)
        if domain is not None and not rows:
            require_domain(connection, route, domain)
    columns = history_columns(group_by, metrics or SHOWN_BY_DEFAULT, zone)
    below = [BELOW, *(_legend(rows) if group_by == "identity" else ())]
    emit(rows, columns, format_, f"no runs of route {route} in this window", "\n".join(below))


def history_columns(group_by: str, metrics: Sequence[str], zone: str) -> list[Column]:
    return [
        *_bucket_columns(group_by, zone),
        Column("domain", lambda row: row["domain"], once=True),
        *(metric_column(metric) for metric in metrics),
        Column("judged", lambda row: figure(row["metric"] or "", row["value"]), right=True),
        Column("baseline", _baseline, right=True),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True, once=True),
        Column("source", lambda row: row["source"] or "none", once=True),
        _last_column(group_by),
    ]


def _bucket_columns(group_by: str, zone: str) -> list[Column]:
    from zoneinfo import ZoneInfo

    if group_by == "run":
        return [Column("run", lambda row: str(row["bucket"]), right=True), time_column("at", "first_at")]
    if group_by == "identity":
        return [Column("identity", lambda row: str(row["bucket"]), right=True), time_column("since", "first_at")]
    return [time_column(group_by, "bucket", date=group_by != "hour", zone=ZoneInfo(zone))]


def _baseline(row: Mapping[str, Any]) -> str:
    if row["change"] is None:
        return "several" if row["runs_judged"] else NOTHING
    return f"{figure(row['metric'], row['baseline_value'])} ({row['baseline_id']})"


def _last_column(group_by: str) -> Column:
    if group_by == "run":
        return Column("note", _note)
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


def run_columns() -> list[Column]:
    return [
        Column("run", lambda row: str(row["id"]), right=True),
        time_column("at", "started_at"),
        Column("route", lambda row: row["route"], once=True),
        Column("domain", lambda row: row["domain"], once=True),
        Column("why", lambda row: row["reason"]),
        Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
        Column("valid", lambda row: f"{row['prompts_valid']}/{row['prompts_total']}", right=True),
        Column("source", lambda row: row["source"] or "none", once=True),
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
        if domain is not None and not rows:
            require_domain(connection, route, domain)
    emit(rows, run_columns(), format_, "no runs yet; 'specwatch serve' makes them")


@click.group()
def run() -> None:
    """Look into one run, down to single prompts."""


@run.command()
@click.argument("run_id", metavar="ID", type=RECORD_ID)
@document_format_option
@click.pass_obj
def show(context: Context, run_id: int, format_: str) -> None:
    """Show one run: identity, figures, verdicts, and every prompt's raw counts."""
    from monitor.store.baselines import get_baseline
    from monitor.store.runs import get_run
    from monitor.store.verdicts import list_verdicts

    with context.database() as database, database.transaction() as connection:
        found = get_run(connection, run_id)
        verdicts = list_verdicts(connection, run_id)
        judged_by = next((verdict["baseline_id"] for verdict in verdicts if verdict["change"] is not None), None)
        baseline = None if judged_by is None else get_baseline(connection, judged_by)
    if found is None:
        raise UsageError(f"there is no run {run_id}; see 'specwatch runs'")
    values = {} if baseline is None else baseline["metrics"]["acceptance_length"]["values"]
    found["samples"] = [_against_baseline(sample, values) for sample in found["samples"]]
    if format_ == "json":
        click.echo(json.dumps({**found, "verdicts": verdicts}, ensure_ascii=False, indent=2))
        return
    _print_run(found, verdicts)


def _print_run(found: Mapping[str, Any], verdicts: list[dict[str, Any]]) -> None:
    state = "valid" if found["valid"] else f"INVALID: {found['invalid_reason']}: {found['invalid_detail']}"
    known = {name: value for name, value in found["identity"].items() if value not in (None, [])}
    click.echo(f"run {found['id']} of {found['route']} · {found['domain']} ({found['reason']}), {state}")
    click.echo(f"  replica   {found['replica']}, {local_time(found['started_at'])}")
    click.echo(wrapped("identity", *_listed(f"{name} {value}" for name, value in known.items())))
    click.echo(
        wrapped(
            "figures",
            f"AL {figure('acceptance_length', found['acceptance_length'])} (prompt mean "
            f"{figure('acceptance_length', found['acceptance_length_prompt_mean'])}),",
            f"survival {survival_text(found['survival'])},",
            f"AR {figure('acceptance_rate', found['acceptance_rate'])},",
            f"coverage {figure('coverage', found['coverage'])},",
            f"source {found['source'] or 'none'}",
        )
    )
    click.echo(
        f"  counts    steps {found['steps']}, drafted {NOTHING if found['drafted'] is None else found['drafted']}, "
        f"accepted {found['accepted']}, completion tokens {found['completion_tokens']}"
    )
    for warning in found["warnings"]:
        click.echo(wrapped("warning", *warning.split()))
    for verdict in verdicts:
        said = f"{verdict['rule']}: {verdict['outcome']}{_judged(verdict)} ({verdict['reason']})"
        click.echo(wrapped("verdict", *said.split()))
    click.echo()
    _print_samples(found["samples"])


def _listed(parts: Iterable[str]) -> list[str]:
    *most, last = parts
    return [*(f"{part}," for part in most), last]


def _print_samples(samples: list[dict[str, Any]]) -> None:
    """In the order of the prompts; where a baseline judged them, the biggest fall first."""
    judged = any(sample["change"] is not None for sample in samples)
    ordered = sorted(samples, key=lambda row: math.inf if row["change"] is None else row["change"])
    print_table(ordered, JUDGED_SAMPLE_COLUMNS if judged else SAMPLE_COLUMNS)


def _against_baseline(sample: Mapping[str, Any], values: Mapping[str, float]) -> dict[str, Any]:
    """The sample with the baseline's AL of its prompt and the change from it, where both sides have one."""
    now, before = _sample_al(sample), values.get(sample["question_id"])
    difference = None if now is None or before is None or sample["invalid_reason"] else now / before - 1
    return {**sample, "baseline_acceptance_length": before, "change": difference}


def _judged(verdict: Mapping[str, Any]) -> str:
    """The figures that alerts show, with what they are: neither the pooled AL nor the mean over prompts."""
    if verdict["change"] is None:
        return ""
    now, before = (figure(verdict["metric"], verdict[name]) for name in ("value", "baseline_value"))
    return (
        f", {now}, {change(verdict['change'])} from {before} of baseline {verdict['baseline_id']}, "
        f"geometric means over {verdict['prompts']} prompts"
    )


def _sample_al(row: Mapping[str, Any]) -> float | None:
    return 1 + row["accepted"] / row["steps"] if row["steps"] else None


SAMPLE_COLUMNS = [
    Column("prompt", lambda row: row["question_id"], whole=True),
    Column("AL", lambda row: figure("acceptance_length", _sample_al(row)), right=True),
    Column("steps", lambda row: str(row["steps"]), right=True),
    Column("drafted", lambda row: NOTHING if row["drafted"] is None else str(row["drafted"]), right=True),
    Column("accepted", lambda row: str(row["accepted"]), right=True),
    Column("tokens", lambda row: str(row["completion_tokens"]), right=True),
    Column("TTFT", lambda row: figure("ttft_seconds_p50", row["ttft_seconds"]), right=True),
    Column("finish", lambda row: row["finish_reason"] or NOTHING, once=True),
    Column("result", lambda row: row["invalid_reason"] or "ok", once=True),
]
JUDGED_SAMPLE_COLUMNS = [
    *SAMPLE_COLUMNS[:2],
    Column("baseline", lambda row: figure("acceptance_length", row["baseline_acceptance_length"]), right=True),
    Column("change", lambda row: change(row["change"]), right=True),
    *(column for column in SAMPLE_COLUMNS[2:] if column.heading not in ("drafted", "finish")),
]
"""What moved comes first; what gives way to it is in the JSON."""
