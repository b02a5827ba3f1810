"""`specwatch routes`: how every route and domain stands now."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option, time_column
from monitor.core.figures import mixed
from monitor.core.format import NOTHING, change, figure, replica_difference_text
from monitor.core.standing import standing, worst_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.cli.context import Context
    from monitor.core.replicas import ReplicaDifference
    from monitor.store.snapshot import Snapshot

FIGURES = (
    "replica",
    "finished_at",
    "source",
    "k",
    "acceptance_length",
    "acceptance_length_prompt_mean",
    "acceptance_rate",
    "survival",
    "tokens_per_step",
    "coverage",
    "acceptance_by_source",
    "warm",
)


@click.command()
@format_option
@click.pass_obj
def routes(context: Context, format_: str) -> None:
    """Show every measured route and domain with its latest valid figures and open incidents.

    The state is 'ok' only where a rule judged the newest run; 'not judged' says there is no baseline to judge it by,
    'STALE' that it is not measured any more: its figures are those of before.
    Below the table: where one replica of a route differs from its others, which and how much. Where routes.yaml is
    found, a line 'mix' gives the route's own figure, weighted by the mix it declares.
    """
    from monitor.store.replicas import replica_difference
    from monitor.store.snapshot import snapshot

    with context.database() as database, database.transaction() as connection:
        found = snapshot(connection)
        differences = {pair: replica_difference(connection, *pair) for pair in found.pairs}
    rows = _with_mixes([_row(found, *pair, differences[pair]) for pair in found.pairs], context.mixes())
    columns = [
        Column("route", lambda row: row["route"]),
        Column("domain", lambda row: row["domain"]),
        Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
        Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
        Column("vs baseline", lambda row: change(row["change"]), right=True),
        time_column("measured", "finished_at"),
        Column("source", lambda row: row["source"] or "none", once=True),
        Column("state", lambda row: row["state"]),
    ]
    below = "\n".join(_difference_lines(row) for row in rows if row["replica_difference"] is not None)
    emit(rows, columns, format_, "no route has been measured yet; 'specwatch serve' does", below)


def _row(found: Snapshot, route: str, domain: str, difference: ReplicaDifference | None) -> dict[str, Any]:
    """The document of one route and domain: figures of its latest valid run, and how it stands."""
    latest = found.valid(route, domain)
    verdicts = [] if latest is None else found.verdicts.get(latest["id"], [])
    state = standing(
        incidents=found.broken_in(route, domain),
        valid_run=latest,
        invalid_run=found.invalid(route, domain),
        verdicts=verdicts,
    )
    figures = {name: None if latest is None else latest[name] for name in FIGURES}
    return {
        "route": route,
        "domain": domain,
        "state": state,
        "change": worst_change(verdicts),
        **figures,
        "replica_difference": None if difference is None else difference.as_dict(),
    }


def _difference_lines(row: Mapping[str, Any]) -> str:
    text = f"{row['route']} · {row['domain']}: {replica_difference_text(row['replica_difference'])}"
    return textwrap.fill(text, 80, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _with_mixes(rows: list[dict[str, Any]], mixes: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """The rows with one more per route that declares a mix: figures of one source only, or none."""
    found = list(rows)
    for route, mix in mixes.items():
        own = {row["domain"]: row for row in rows if row["route"] == route}
        sources = {own[domain]["source"] for domain in mix if domain in own}
        if not own or len(mix) < 2:
            continue
        names = ("acceptance_length", "acceptance_length_prompt_mean", "tokens_per_step")
        values = {name: mixed({domain: row[name] for domain, row in own.items()}, mix) for name in names}
        blank = dict.fromkeys(next(iter(own.values())), None)
        whole = len(sources) == 1 and values["acceptance_length_prompt_mean"] is not None
        source = sources.pop() if whole else None
        times = [own[domain]["finished_at"] for domain in mix if domain in own and own[domain]["finished_at"]]
        figures = values if whole else {}
        finished_at = min(times) if whole else None
        found.append(
            {
                **blank,
                "route": route,
                "domain": "mix",
                "state": NOTHING,
                "source": source,
                "finished_at": finished_at,
                **figures,
            }
        )
    return sorted(found, key=lambda row: row["route"])
