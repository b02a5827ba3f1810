"""`specwatch advise ROUTE`: what to set, with the evidence beside it."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, document_format_option, emit, local_time
from monitor.core.format import figure
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.cli.context import Context
    from monitor.core.draft_length import Acceptance
    from monitor.core.records import Identity

WIDTH = 88


@click.command()
@click.argument("route")
@click.option("--sweep", "sweep_id", type=click.IntRange(min=1), metavar="ID", help="This one.  [default: the latest]")
@document_format_option
@click.pass_obj
def advise(context: Context, route: str, sweep_id: int | None, format_: str) -> None:
    """Say what to set for ROUTE: draft length, on or off by batch size, domains that should leave.

    From the latest valid run of every domain of what runs now, and a saved sweep of the same model, K and engine
    ('specwatch sweep ROUTE --save'); what else differs between them is warned about. Every line has its evidence and
    its uncertainty; without valid data nothing is advised.
    """
    from monitor.core.advice import advice
    from monitor.core.break_even import is_like
    from monitor.core.draft_length import acceptance, draft_length_table, loads

    runs, sweep, identity = _found(context, route, sweep_id)
    configured = context.configured().get(route)
    found = acceptance(runs, {} if configured is None else dict(configured.mix))
    if found is None:
        raise UsageError(f"the latest valid runs of {route} differ in source or K; nothing can be advised from them")
    if not is_like(sweep, runs[0], identity.as_dict()):
        swept = sweep["speculative_identity"]
        raise UsageError(
            f"sweep {sweep['id']} is of {swept['engine']} {swept['model']}, K = {swept['k']} and route {route} runs "
            f"{identity.engine} {identity.model}, K = {found.k} now; run 'specwatch sweep {route} --save' again"
        )
    price = None if configured is None else configured.gpu_price_per_hour
    gpus = (None if configured is None else configured.gpus) or sweep["gpus"] or 1
    document = {
        "route": route,
        "k": found.k,
        "source": found.source,
        "run_ids": list(found.run_ids),
        "sweep_id": sweep["id"],
        "domains_left_out": list(found.left_out),
        "warnings": _warnings(found, sweep, identity),
        "advice": [line.as_dict() for line in advice(found, sweep, price, gpus)],
        "draft_lengths": draft_length_table(found, loads(sweep)),
        "cost_per_million_tokens": _costs(sweep, price, gpus),
    }
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print(document, sweep)


def _warnings(found: Acceptance, sweep: Mapping[str, Any], identity: Identity) -> list[str]:
    """What the reader must know of how far runs and sweep belong together."""
    from monitor.core.records import Identity

    told = [
        f"{name} was {swept} in the sweep and is {now} now"
        for name, (swept, now) in identity.changes_from(Identity.from_dict(sweep["speculative_identity"])).items()
    ]
    if found.left_out:
        told.append(f"without a valid run of what runs now, and left out of the mix: {', '.join(found.left_out)}")
    return told


def _found(context: Context, route: str, sweep_id: int | None) -> tuple[list[dict[str, Any]], dict[str, Any], Identity]:
    """The latest valid run of each domain that is of what runs now, the sweep, and the identity of what runs now.

    Raises UsageError without any run or sweep.
    """
    from monitor.store.identities import last_identity
    from monitor.store.snapshot import snapshot
    from monitor.store.sweeps import get_sweep, list_sweeps

    with context.database() as database, database.transaction() as connection:
        newest = last_identity(connection, route, None)
        valid = [run for run in snapshot(connection).valid_runs if run["route"] == route]
        runs = [run for run in valid if newest is not None and run["identity_id"] == newest[0]]
        if sweep_id is not None:
            sweep = get_sweep(connection, sweep_id)
        else:
            sweep = next(iter(list_sweeps(connection, route, 1)), None)
    if not runs or newest is None:
        raise UsageError(f"route {route} has no valid run to advise from; see 'specwatch runs --route {route}'")
    if sweep is None:
        which = f"there is no sweep {sweep_id}" if sweep_id is not None else f"route {route} has no saved sweep"
        raise UsageError(f"{which}; run 'specwatch sweep {route} --save' first")
    return runs, sweep, newest[1]


def _costs(sweep: Mapping[str, Any], price: float | None, gpus: int) -> list[dict[str, Any]]:
    """By concurrency, plain and speculative; empty without a price."""
    from monitor.core.advice import cost_per_million_tokens
    from monitor.core.draft_length import loads

    if price is None:
        return []
    return [
        {
            "concurrency": load.concurrency,
            "plain": cost_per_million_tokens(load.plain_tokens_per_second, price, gpus),
            "speculative": cost_per_million_tokens(load.speculative_tokens_per_second, price, gpus),
        }
        for load in loads(sweep)
    ]


def _print(document: Mapping[str, Any], sweep: Mapping[str, Any]) -> None:
    click.echo(
        f"route {document['route']}, K = {document['k']}, source {document['source']}, "
        f"sweep {document['sweep_id']} of {local_time(sweep['finished_at'])}\n"
    )
    for warning in document["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    for line in document["advice"]:
        _wrapped(f"{line['topic']}: {line['text']}", "")
        _wrapped(f"evidence ({line['basis']}): {line['evidence']}", "  ")
        _wrapped(f"uncertainty: {line['uncertainty']}", "  ")
        click.echo()
    rows = document["draft_lengths"]
    lengths = list(rows[0]["speedup_by_draft_length"]) if rows else []
    columns = [Column("conc.", lambda row: str(row["concurrency"]), right=True)]
    for length in lengths:
        heading = f"K={length} {rows[0]['basis_by_draft_length'][length]}"
        columns.append(Column(heading, lambda row, n=length: _speedup(row, n), right=True))  # type: ignore[misc]
    columns.append(Column("sure to", lambda row: f"±{row['doubt_ratio']:.0%}", right=True))
    emit(rows, columns, "table", "")
    for cost in document["cost_per_million_tokens"]:
        click.echo(
            f"a million tokens at concurrency {cost['concurrency']}: {cost['speculative']:.2f} with speculation, "
            f"{cost['plain']:.2f} without"
        )


def _speedup(row: Mapping[str, Any], length: str) -> str:
    return figure("speedup", row["speedup_by_draft_length"][length]) + "x"


def _wrapped(text: str, indent: str) -> None:
    click.echo(textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  "))
