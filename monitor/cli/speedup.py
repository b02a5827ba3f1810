"""`specwatch speedup`: how much faster every route and domain is than the same target without speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option, time_column
from monitor.core.format import agreement_text, both, figure, ratio_text
from monitor.core.speedup import SIDES, costs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from monitor.cli.context import Context
    from monitor.config.routes import Route

BELOW = """\
Ratios are plain over speculative, with the 95 % interval; above 1 speculation wins,
per token after the first, for the first token, in all. With fewer tokens per step
than 'break-even' it loses. 'same output': of the replica and its twin; 'twin's own':
of the twin asked again. 'modelled' is tokens per step over the break-even of a saved
sweep."""
BELOW_PARTS = "Times are plain→speculative. The ratio of whole answers is by token of the answer."
BELOW_VERDICTS = "What the rules on speedup said of these measurements; three that trip in a row open an incident."
BELOW_COSTS = """\
What a million tokens cost, plain→speculative: at the tokens per second measured of
either server at this concurrency, with gpus and gpu_price_per_hour of routes.yaml. At
another load it is another: see 'specwatch advise'."""
PARTS = (
    ("token after the first", "speedup", "decode_seconds_per_token"),
    ("first token", "ttft_speedup", "ttft_seconds"),
    ("whole answer", "total_speedup", "total_seconds"),
)


@click.command()
@click.argument("route", required=False)
@click.option("--last", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many of each domain.")
@format_option
@click.pass_obj
def speedup(context: Context, route: str | None, *, last: int, format_: str) -> None:
    """Show the newest speedup of every domain of every route, or of ROUTE with its times.

    'serve' measures a route with a plain_twin every speedup_every. A domain never measured so has a speedup modelled
    from its latest run and the newest saved sweep of its model, K and engine, where there is one. With ROUTE it also
    shows what the rules on speedup said of each measurement.
    """
    from monitor.store.speedups import newest_speedups
    from monitor.store.verdicts import verdicts_of_speedups

    with context.database() as database, database.transaction() as connection:
        rows = newest_speedups(connection, route, last)
        said = verdicts_of_speedups(connection, [row["id"] for row in rows if row["id"] is not None])
    routes = context.configured()
    rows = [{**_priced(row, routes), "verdicts": said.get(row["id"], [])} for row in rows]
    nothing = "no speedup is known; 'specwatch serve' measures routes with a plain_twin"
    if route is not None and format_ in ("table", "markdown"):
        emit([part for row in rows for part in _parts(row)], _part_columns(), format_, nothing, BELOW_PARTS)
        verdicts = [{**verdict, "of": row} for row in rows for verdict in row["verdicts"]]
        if verdicts:
            click.echo()
            emit(verdicts, _verdict_columns(), format_, nothing, BELOW_VERDICTS)
    else:
        emit(rows, _columns(), format_, nothing, BELOW)
    priced = [row for row in rows if row["cost_per_million_tokens"]]
    if priced and format_ in ("table", "markdown"):
        click.echo()
        emit(priced, _cost_columns(), format_, nothing, BELOW_COSTS)
    if format_ == "table":
        for row in rows:
            _explain(row)


def _priced(row: dict[str, Any], routes: Mapping[str, Route]) -> dict[str, Any]:
    """With what a million tokens cost, where routes.yaml has a price for the route."""
    found = routes.get(row["route"])
    price, gpus = (None, None) if found is None else (found.gpu_price_per_hour, found.gpus)
    return {**row, "cost_per_million_tokens": costs(row, price, gpus)}


def _columns() -> list[Column]:
    return [
        Column("route", lambda row: row["route"], once=True),
        Column("domain", lambda row: row["domain"]),
        Column("speedup", lambda row: ratio_text(row["speedup"]), right=True),
        Column("TTFT", lambda row: _ratio(row["ttft_speedup"]), right=True),
        Column("total", lambda row: _ratio(row["total_speedup"]), right=True),
        Column("break-even", lambda row: figure("", row["break_even_acceptance_length"]), right=True),
        Column("same output", lambda row: _same(row, "replica_and_twin"), right=True),
        Column("twin's own", lambda row: _same(row, "twin_and_itself"), right=True),
        time_column("measured", "finished_at"),
        Column("basis", lambda row: row["invalid_reason"] or row["basis"], once=True),
    ]


def _cost_columns() -> list[Column]:
    def rates(row: Mapping[str, Any]) -> str:
        return both("tokens_per_second", *(row[side]["tokens_per_second"] for side in SIDES))

    def costs_text(row: Mapping[str, Any]) -> str:
        return both("", *(row["cost_per_million_tokens"][side] for side in SIDES))

    return [
        Column("route", lambda row: row["route"]),
        Column("domain", lambda row: row["domain"]),
        Column("conc.", lambda row: str(row["concurrency"]), right=True),
        Column("tokens/s", rates, right=True),
        Column("per million", costs_text, right=True),
        Column("GPUs", lambda row: str(row["cost_per_million_tokens"]["gpus"]), right=True),
        Column("an hour", lambda row: f"{row['cost_per_million_tokens']['gpu_price_per_hour']:g}", right=True),
        Column("basis", lambda row: row["cost_per_million_tokens"]["basis"]),
    ]


def _parts(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each time that is compared; a modelled speedup and an invalid one have the first only."""
    times = PARTS if row["plain"] is not None else PARTS[:1]
    return [
        {
            **row,
            "time": time,
            "ratio": row[ratio],
            "spreads": [(row[side] or {}).get(spread) for side in SIDES],
            "of": spread,
        }
        for time, ratio, spread in times
    ]


def _part_columns() -> list[Column]:
    def change(quantile: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: both(row["of"], *(spread and spread[quantile] for spread in row["spreads"]))

    return [
        Column("domain", lambda row: row["domain"]),
        Column("time", lambda row: row["time"]),
        Column("speedup", lambda row: ratio_text(row["ratio"]), right=True),
        Column("p50", change("p50"), right=True),
        Column("p95", change("p95"), right=True),
        time_column("measured", "finished_at"),
        Column("basis", lambda row: row["invalid_reason"] or row["basis"], once=True),
    ]


def _verdict_columns() -> list[Column]:
    return [
        Column("domain", lambda verdict: verdict["of"]["domain"]),
        Column("measurement", lambda verdict: str(verdict["of"]["id"]), right=True),
        Column("rule", lambda verdict: verdict["rule"]),
        Column("outcome", lambda verdict: verdict["outcome"]),
        Column("reason", lambda verdict: verdict["reason"] or "within what the rule allows"),
        time_column("judged", "judged_at"),
    ]


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    return figure("", None if ratio is None else ratio["ratio"])


def _same(row: Mapping[str, Any], pair: str) -> str:
    return agreement_text(row["outputs"] and row["outputs"][pair])


def _explain(row: Mapping[str, Any]) -> None:
    where = f"{row['route']} · {row['domain']}"
    if row["invalid_reason"] is not None:
        click.echo(f"{where}: {row['invalid_reason']}: {row['invalid_detail']}", err=True)
    for warning in row["warnings"]:
        click.echo(f"warning: {where}: {warning}", err=True)
