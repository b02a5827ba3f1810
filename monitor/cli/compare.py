"""`specwatch compare A B`: two runs beside each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import RECORD_ID, Column, document_format_option, local_time, print_table, wrapped
from monitor.core.figures import SAMPLE_METRICS
from monitor.core.format import by_source, change, figure, survival_text
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from monitor.cli.context import Context

SIDES = ("before", "now")
OF_A_RUN = (
    *("id", "route", "domain", "replica", "started_at", "source", "k", "acceptance_length", "tokens_per_step"),
    *("survival", "prompts_valid", "prompts_total", "identity"),
)


@click.command()
@click.argument("before", metavar="RUN_A", type=RECORD_ID)
@click.argument("now", metavar="RUN_B", type=RECORD_ID)
@click.option(
    "--metric",
    type=click.Choice(list(SAMPLE_METRICS)),
    default="acceptance_length",
    show_default=True,
    help="The figure that is compared.",
)
@click.option(
    "--movers",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the N prompts that moved most; JSON has all.",
)
@document_format_option
@click.pass_obj
def compare(context: Context, before: int, now: int, *, metric: str, movers: int, format_: str) -> None:
    """Compare run B with run A prompt by prompt: the change with its interval, what moved most, survival.

    Says why when they are not comparable: another domain, prompt set, source, K, concurrency or sampling.
    """
    with context.database() as database, database.transaction() as connection:
        document = _compared(connection, before, now, metric)
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print(document, movers)


def _compared(connection: Connection, before: int, now: int, metric: str) -> dict[str, Any]:
    """The JSON shape (docs/json.md)."""
    from monitor.core.comparison import compare as compared
    from monitor.core.records import Identity
    from monitor.store.runs import candidate, get_run

    found = [get_run(connection, run_id) for run_id in (before, now)]
    for run_id, run in zip((before, now), found, strict=True):
        if run is None:
            raise UsageError(f"there is no run {run_id}; see 'specwatch runs'")
    runs = [run for run in found if run is not None]
    sides = [candidate(connection, run["id"], metric) for run in runs]
    first, second = (Identity.from_dict(run["identity"]) for run in runs)
    return {
        **{side: {name: run[name] for name in OF_A_RUN} for side, run in zip(SIDES, runs, strict=True)},
        "metric": metric,
        "source": runs[1]["source"],
        "identity_changes": {name: list(pair) for name, pair in second.changes_from(first).items()},
        **compared(sides[0], sides[1], [run["domain"] for run in runs]).as_dict(),
    }


def _print(document: Mapping[str, Any], movers: int) -> None:
    metric = document["metric"]
    for side in SIDES:
        run = document[side]
        told = f"run {run['id']} of {run['route']} · {run['domain']}, {local_time(run['started_at'])}:"
        click.echo(wrapped(side, *told.split(), *f"AL {figure(metric, run['acceptance_length'])}".split()))
        click.echo(wrapped("", *f"survival {survival_text(run['survival'])}{by_source(run['source'])}".split()))
    changes = document["identity_changes"]
    told = ", ".join(f"{name} {a} → {b}" for name, (a, b) in changes.items()) or "nothing that the servers show"
    click.echo(wrapped("differ in", *told.split()))
    if not document["comparable"]:
        click.echo(wrapped("verdict", *f"not comparable: {'; '.join(document['differences'])}".split()))
        return
    low, high = map(change, document["change_interval"])
    told = (
        f"{change(document['change'])} of {metric} (95 % interval {low} to {high}) over {document['prompts']} prompts"
    )
    click.echo(wrapped("change", *told.split()))
    rows = sorted(document["per_prompt"], key=lambda row: -abs(row["change"]))[:movers]
    if rows:
        click.echo()
        print_table([{**row, "source": document["source"]} for row in rows], _columns(metric))


def _columns(metric: str) -> list[Column]:
    return [
        Column("prompt", lambda row: row["question_id"], whole=True),
        *(Column(side, lambda row, side=side: figure(metric, row[side]), right=True) for side in SIDES),  # type: ignore[misc]
        Column("change", lambda row: change(row["change"]), right=True),
        Column("source", lambda row: row["source"], once=True),
    ]
