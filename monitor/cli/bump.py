"""`specwatch bump` announces a change of what is running; `specwatch bumps` shows what became of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option, local_time, time_column
from monitor.cli.parameters import as_link, by_option, words
from monitor.core.bumps import WINDOW, Announced
from monitor.core.format import NOTHING, change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from monitor.cli.context import Context
    from monitor.service.jobs import ProbeJob


@click.command()
@click.argument("route")
@click.option("--model", callback=words, help="The target that it runs from now on, as the server names it.")
@click.option("--drafter", callback=words, help="The drafter that it runs from now on.")
@click.option("--engine-version", callback=words, help="The version of the engine, as the server says it.")
@click.option("--note", "--why", callback=words, help="What is changed, and why; told with the verdict.")
@by_option
@click.option("--link", metavar="URL", callback=as_link, help="The pipeline or change request.")
@click.option("--key", callback=words, help="A repeat with the same key announces nothing new.  [default: --link]")
@click.pass_obj
def bump(
    context: Context,
    route: str,
    model: str | None,
    drafter: str | None,
    engine_version: str | None,
    note: str | None,
    by: str,
    link: str | None,
    key: str | None,
) -> None:
    """Announce that what ROUTE of routes.yaml runs is changed, now or within two hours.

    Every domain is probed at once on every replica. When all are measured, one message tells each domain's change from
    its pinned baseline. A change that is noticed within two hours and fits is the announced one; without any of
    --model, --drafter and --engine-version every change fits.
    """
    from monitor.service.asking import is_served
    from monitor.service.bumps import announce
    from monitor.service.discovery import replicas_now

    found = context.route(route)
    replicas, now = replicas_now(found), datetime.now(UTC)
    what = Announced(model, drafter, engine_version)
    with context.database() as database, database.transaction() as connection:
        document, jobs = announce(connection, found, replicas, what, by, now, note=note, link=link, key=key)
        served = is_served(connection)
    _show(document, jobs)
    if jobs and not served:
        click.echo("no running 'specwatch serve' works on this store: start one, and it makes them", err=True)


def _show(document: Mapping[str, Any], jobs: Sequence[ProbeJob] | None) -> None:
    """Only what is committed is claimed."""
    route = document["route"]
    if jobs is None:
        at = local_time(document["announced_at"])
        click.echo(f"announced already, by {document['by']} at {at}: nothing is queued again")
    else:
        click.echo(f"announced: {route} changes, {_what(document)}, by {document['by']}")
        click.echo("\n".join(f"queued {job.route} · {job.domain} on {job.replica}" for job in jobs))
        latest = local_time((datetime.fromisoformat(document["announced_at"]) + WINDOW).isoformat())
        click.echo(f"its verdict is told when all are measured, at {latest} at the latest")
    click.echo(f"'specwatch bumps --route {route}' shows it, 'specwatch runs --route {route}' the runs")


@click.command()
@click.option("--route", help="Only this route.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@format_option
@click.pass_obj
def bumps(context: Context, route: str | None, limit: int, format_: str) -> None:
    """List bumps, newest first: what changed, who announced it, and each domain's change from its pinned baseline.

    'unannounced' is a change that nobody announced; --format json has the intervals, runs and who was told.
    """
    from monitor.store.bumps import list_bumps

    with context.database() as database, database.transaction() as connection:
        rows = list_bumps(connection, route, limit)
    emit(rows, _columns(), format_, "no bumps")


def _columns() -> list[Column]:
    return [
        Column("id", lambda row: str(row["id"]), right=True),
        Column("route", lambda row: row["route"]),
        time_column("at", "opened_at"),
        Column("state", lambda row: row["state"]),
        Column("announced", _announced, under=True),
        Column("changed", lambda row: "; ".join(_changes(row)) or NOTHING, under=True, if_any=True),
        Column("AL from baseline", lambda row: ", ".join(_after(row)) or NOTHING, under=True, if_any=True),
        Column("unchanged within", _within, under=True, if_any=True),
        Column("against", _against, under=True, if_any=True),
        Column("source", _source, once=True, if_any=True),
    ]


def _announced(row: Mapping[str, Any]) -> str:
    said = row["announcement"]
    if said is None:
        return "unannounced"
    return f"{_what(said)}, by {said['by']}" + (f", {said['link']}" if said["link"] else "")


def _what(announcement: Mapping[str, Any]) -> str:
    named = {name: announcement[name] for name in ("model", "drafter", "engine_version")}
    parts = [f"{name.replace('_', ' ')} {value}" for name, value in named.items() if value is not None]
    return ", ".join(parts) or announcement["note"] or "anything"


def _changes(row: Mapping[str, Any]) -> list[str]:
    changes = [f"{name} {a} → {b}" for bump in row["noticed"] for name, (a, b) in bump["changes"].items()]
    return list(dict.fromkeys(changes))


def _after(row: Mapping[str, Any]) -> Iterator[str]:
    for domain in (row["verdict"] or {"domains": []})["domains"]:
        note = {True: "", False: " (unchanged)", None: f" ({domain['reason']})"}[domain["changed"]]
        told = domain["reason"] if domain["change"] is None else f"{change(domain['change'])}{note}"
        yield f"{domain['domain']} {told}"


def _within(row: Mapping[str, Any]) -> str:
    within = (row["verdict"] or {}).get("unchanged_within")  # earlier versions kept neither this nor the baselines
    if within is None:
        return NOTHING
    low, high = map(change, within["change_interval"])
    return f"{low} to {high}: the widest 95 % interval, of {within['domain']}"


def _against(row: Mapping[str, Any]) -> str:
    from monitor.alerting.compared import compared_text

    baselines = (row["verdict"] or {}).get("baselines")
    return compared_text(baselines) if baselines else NOTHING


def _source(row: Mapping[str, Any]) -> str:
    domains = (row["verdict"] or {"domains": []})["domains"]
    return ", ".join(sorted({domain["source"] for domain in domains if domain["source"]})) or NOTHING
