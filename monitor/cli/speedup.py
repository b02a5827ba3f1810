"""`specwatch speedup`: how much faster every route and domain is than the same target without speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option, time_column
from monitor.core.format import agreement_text, figure, ratio_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.cli.context import Context

BELOW = """\
Ratios are plain over speculative with 95 % intervals; above 1 speculation wins. 'break-even' is the tokens per step
below which it loses. 'same output': of the replica and its twin; 'twin' of the twin and itself, which is all that can
be asked. 'modelled' is tokens per step over the break-even of a stored sweep, not a measurement."""


@click.command()
@click.argument("route", required=False)
@click.option("--last", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many of each domain.")
@format_option
@click.pass_obj
def speedup(context: Context, route: str | None, *, last: int, format_: str) -> None:
    """Show the newest speedup of every domain, of every route or of ROUTE.

    'serve' measures a route with a plain_twin every speedup_every. A domain never measured so has a speedup modelled
    from its latest run and the newest saved sweep of its model, K and engine, where there is one.
    """
    from monitor.store.speedups import newest_speedups

    with context.database() as database, database.transaction() as connection:
        rows = newest_speedups(connection, route, last)
    columns = [
        Column("route", lambda row: row["route"]),
        Column("domain", lambda row: row["domain"]),
        Column("speedup", lambda row: ratio_text(row["speedup"]), right=True),
        Column("TTFT", lambda row: ratio_text(row["ttft_speedup"]), right=True),
        Column("total", lambda row: ratio_text(row["total_speedup"]), right=True),
        Column("break-even", lambda row: figure("", row["break_even_acceptance_length"]), right=True),
        Column("same output", lambda row: _same(row, "replica_and_twin"), right=True),
        Column("twin", lambda row: _same(row, "twin_and_itself"), right=True),
        time_column("measured", "finished_at"),
        Column("basis", lambda row: row["invalid_reason"] or row["basis"]),
    ]
    emit(rows, columns, format_, "no speedup is known; 'specwatch serve' measures routes with a plain_twin", BELOW)
    if format_ == "table":
        for row in rows:
            _explain(row)


def _same(row: Mapping[str, Any], pair: str) -> str:
    return agreement_text(row["outputs"] and row["outputs"][pair])


def _explain(row: Mapping[str, Any]) -> None:
    where = f"{row['route']} · {row['domain']}"
    if row["invalid_reason"] is not None:
        click.echo(f"{where}: {row['invalid_reason']}: {row['invalid_detail']}", err=True)
    for warning in row["warnings"]:
        click.echo(f"warning: {where}: {warning}", err=True)
