"""`specwatch baseline`: the references that runs are judged by."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import RECORD_ID, Column, document_format_option, emit, format_option, local_time, time_column
from monitor.core.format import NOTHING, count, figure
from monitor.errors import UsageError

if TYPE_CHECKING:
    from monitor.cli.context import Context

RECOMMENDED_RUNS = 10
"""Fewer are allowed and said (docs/statistics.md)."""
BELOW = "AL: geometric mean over the prompts, the figure that judging uses."


@click.group()
def baseline() -> None:
    """Create, show, approve and list baselines."""


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


by_option = click.option("--by", default=_person, show_default="your login name", help="Who is doing this.")
why_option = click.option("--why", default="", help="Why; kept with the approval.")


@baseline.command()
@click.argument("route")
@click.option(
    "--domain", "domains", multiple=True, help="Only these domains; repeatable.  [default: every domain with runs]"
)
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=RECOMMENDED_RUNS,
    show_default=True,
    help="From the last N valid runs.",
)
@click.option(
    "--run", "run_ids", multiple=True, type=RECORD_ID, help="From exactly these runs of one domain; repeatable."
)
@click.option("--mixed", is_flag=True, help="With --last: also from runs of several identities.")
@click.option("--approve", is_flag=True, help="Approve at once.")
@by_option
@why_option
@click.pass_obj
def create(
    context: Context,
    route: str,
    domains: tuple[str, ...],
    last: int,
    run_ids: tuple[int, ...],
    mixed: bool,
    approve: bool,
    by: str,
    why: str,
) -> None:
    """Create an immutable baseline of ROUTE per domain, from chosen runs or the last valid ones.

    Where model, drafter, engine or K changed among the last runs it refuses, and says how many there are since.
    """
    from monitor.store import approvals, baselines

    now = datetime.now(UTC)
    lines = []
    with context.database() as database, database.transaction() as connection:
        chosen = [list(run_ids)] if run_ids else _last_runs(connection, route, domains, last)
        if not run_ids and not mixed:
            _require_one_identity(connection, route, chosen, last)
        for ids in chosen:
            baseline_id = baselines.create_baseline(connection, ids, by, now)
            made = baselines.get_baseline(connection, baseline_id) or {}
            if made["route"] != route:
                raise UsageError(f"run {ids[0]} is of route {made['route']}, not {route}")
            if approve:
                approvals.approve_baseline(connection, baseline_id, by, why, now)
            lines.append(_line(made, approved=approve))
    click.echo("\n".join(lines))  # only what is committed is claimed


def _last_runs(connection: Any, route: str, domains: tuple[str, ...], last: int) -> list[list[int]]:
    from monitor.store import baselines
    from monitor.store.runs import domains_of

    chosen = []
    for domain in dict.fromkeys(domains or domains_of(connection, route)):
        ids = baselines.last_valid_runs(connection, route, domain, last)
        if not ids and domains:
            raise UsageError(f"{route} has no valid run of {domain}; see 'specwatch runs --route {route}'")
        if ids:
            chosen.append(ids)
    if not chosen:
        raise UsageError(f"there is no valid run of route {route}; see 'specwatch runs'")
    return chosen


def _require_one_identity(connection: Any, route: str, chosen: list[list[int]], last: int) -> None:
    """Raises UsageError where the runs of a domain are not all of what ran in its newest one."""
    from monitor.store.identities import identities_of

    problems, alike = [], last
    for ids in chosen:
        known = identities_of(connection, ids)
        newest = known[ids[-1]]
        changed = {run_id: changes for run_id in ids if (changes := newest.changes_from(known[run_id]))}
        if changed:
            since = next(number for number, run_id in enumerate(reversed(ids)) if run_id in changed)
            run_id = ids[-1 - since]
            what = ", ".join(f"{name} {before} → {now}" for name, (before, now) in changed[run_id].items())
            problems.append(f"{what} after run {run_id} ({count(since, 'run')} since)")
            alike = min(alike, since)
    if problems:
        told = "; ".join(dict.fromkeys(problems))
        raise UsageError(
            f"the last {last} runs of {route} are of several identities: {told}. Give --last {alike}, or wait for more "
            "runs of what runs now; --mixed takes them all the same"
        )


def _line(made: dict[str, Any], *, approved: bool) -> str:
    runs = len(made["run_ids"])
    few = "" if runs >= RECOMMENDED_RUNS else f" ({RECOMMENDED_RUNS} are recommended)"
    state = "approved" if approved else f"not approved: 'specwatch baseline approve {made['id']}'"
    length = figure("acceptance_length", made["acceptance_length_geometric_mean"])
    head = f"baseline {made['id']} of {made['route']} · {made['domain']}: AL {length} by {made['source']}"
    return f"{head} (geometric mean over {count(made['prompts'], 'prompt')}), {count(runs, 'run')}{few}, {state}"


@baseline.command()
@click.argument("baseline_ids", metavar="ID...", type=RECORD_ID, nargs=-1, required=True)
@by_option
@why_option
@click.pass_obj
def approve(context: Context, baseline_ids: tuple[int, ...], by: str, why: str) -> None:
    """Judge runs by these baselines from now on; the approval is a row of its own."""
    from monitor.store import approvals

    lines = []
    with context.database() as database, database.transaction() as connection:
        for baseline_id in baseline_ids:
            before = approvals.approve_baseline(connection, baseline_id, by, why, datetime.now(UTC))
            if before is None:
                lines.append(f"baseline {baseline_id} approved by {by}")
            else:
                at = local_time(before.approved_at.isoformat())
                lines.append(f"baseline {baseline_id} was already approved by {before.approved_by} at {at}")
    click.echo("\n".join(lines))  # only what is committed is claimed


@baseline.command(name="list")
@click.option("--route", help="Only this route.")
@click.option("--domain", help="Only this domain.")
@format_option
@click.pass_obj
def list_(context: Context, route: str | None, domain: str | None, format_: str) -> None:
    """List baselines, newest first."""
    from monitor.store.baselines import list_baselines

    with context.database() as database, database.transaction() as connection:
        rows = list_baselines(connection, route, domain)
    emit(rows, list_columns(), format_, "no baselines; 'specwatch baseline create ROUTE' makes one", BELOW)


def list_columns() -> list[Column]:
    return [
        Column("id", lambda row: str(row["id"]), right=True),
        Column("route", lambda row: row["route"], once=True),
        Column("domain", lambda row: row["domain"], once=True),
        Column("AL", lambda row: figure("acceptance_length", row["acceptance_length_geometric_mean"]), right=True),
        Column("runs", lambda row: str(len(row["run_ids"])), right=True),
        Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True, once=True),
        Column("source", lambda row: row["source"], once=True),
        time_column("approved", "approved_at"),
        Column("by", lambda row: row["approved_by"] or NOTHING),
        Column("generation", lambda row: NOTHING if row["generation"] is None else str(row["generation"]), right=True),
    ]


@baseline.command()
@click.argument("baseline_id", metavar="ID", type=RECORD_ID)
@document_format_option
@click.pass_obj
def show(context: Context, baseline_id: int, format_: str) -> None:
    """Show one baseline: what it was made from and every prompt's reference value."""
    from monitor.store.baselines import get_baseline

    with context.database() as database, database.transaction() as connection:
        found = get_baseline(connection, baseline_id)
    if found is None:
        raise UsageError(f"there is no baseline {baseline_id}; see 'specwatch baseline list'")
    if format_ == "json":
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    click.echo(_line(found, approved=found["approved_at"] is not None))
    click.echo(f"  runs         {', '.join(map(str, found['run_ids']))}")
    click.echo(
        f"  prompt set   {found['prompt_set_hash'][:16]}, "
        f"source {found['source']}, K {found['k']}, concurrency {found['concurrency']}"
    )
    click.echo(f"  run-to-run   {found['run_sigma']:.1%}")
    values = found["metrics"]["acceptance_length"]
    rows = [
        {"prompt": prompt, "value": value, "spread": values["spreads"].get(prompt)}
        for prompt, value in values["values"].items()
    ]
    emit(
        rows,
        [
            Column("prompt", lambda row: row["prompt"]),
            Column("AL", lambda row: figure("acceptance_length", row["value"]), right=True),
            Column("spread", lambda row: f"{row['spread']:.1%}", right=True),
        ],
        "table",
        "no prompts",
    )
