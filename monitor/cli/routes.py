"""`specwatch routes`: how every route and domain stands now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option, time_column
from monitor.core.figures import mixed
from monitor.core.format import NOTHING, change, figure
from monitor.core.standing import standing, worst_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.cli.context import Context
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
)


@click.command()
@format_option
@click.pass_obj
def routes(context: Context, format_: str) -> None:
    """Show every measured route and domain with its latest valid figures and open incidents.

    The state is 'ok' only where a rule judged the newest run; 'not judged' says there is no baseline to judge it by.
    Where routes.yaml is found, a line 'mix' gives the route's own figure, weighted by the mix it declares.
    """
    from monitor.store.snapshot import snapshot

    with context.database() as database, database.transaction() as connection:
        found = snapshot(connection)
    rows = _with_mixes([_row(found, *pair) for pair in found.pairs], context.mixes())
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
    emit(rows, columns, format_, "no route has been measured yet; 'specwatch serve' does")


def _row(found: Snapshot, route: str, domain: str) -> dict[str, Any]:
    """The document of one route and domain: figures of its latest valid run, and how it stands."""
    latest = found.valid(route, domain)
    verdicts = [] if latest is None else found.verdicts.get(latest["id"], [])
    state = standing(
        incident=found.is_broken(route, domain),
        valid_run=latest,
        invalid_run=found.invalid(route, domain),
        verdicts=verdicts,
    )
    figures = {name: None if latest is None else latest[name] for name in FIGURES}
    return {"route": route, "domain": domain, "state": state, "change": worst_change(verdicts), **figures}


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
