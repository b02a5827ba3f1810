"""`specwatch compare A B`: two runs, days, identities or baselines beside each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.compare_sides import SideParameter
from monitor.cli.output import Column, document_format_option, local_time, print_table, wrapped
from monitor.core.figures import SAMPLE_METRICS
from monitor.core.format import NOTHING, change, count, figure, survival_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from monitor.cli.context import Context
    from monitor.core.comparison import SideName

SIDES = ("before", "now")


@click.command()
@click.argument("before", metavar="A", type=SideParameter())
@click.argument("now", metavar="B", type=SideParameter())
@click.option(
    "--route", help="Of days, identities and generations.  [default: the run's or baseline's, or the only one]"
)
@click.option("--domain", "domains", multiple=True, help="Only this domain; repeatable.  [default: all]")
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
def compare(
    context: Context,
    before: SideName,
    now: SideName,
    *,
    route: str | None,
    domains: tuple[str, ...],
    metric: str,
    movers: int,
    format_: str,
) -> None:
    """Compare B with A, domain by domain and prompt by prompt: the change with its interval, what moved most, survival.

    A and B are each a run (12), a day (2026-11-01, today, yesterday), a span (2026-11-01..2026-11-07, its last day
    included, or 7d..), an identity (identity:3, as 'history --group-by identity' numbers them, or the beginning of a
    fingerprint), baseline:ID, generation:N (in each domain its N-th approved baseline) or baseline, those in force.

    Of several runs only those that are comparable are pooled, and it is said what was left out. Where the sides are not
    comparable it says why: another domain, prompt set, source, K, concurrency or sampling.
    """
    from monitor.cli.history import require_domain, require_route
    from monitor.store.comparisons import compared
    from monitor.store.runs import measured_routes

    with context.database() as database, database.transaction() as connection:
        if route is not None:
            require_route(connection, route)
        for domain in domains:
            require_domain(connection, route, domain)
        known = measured_routes(connection)
        document = compared(connection, (before, now), route, domains, metric, known)
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print(document, movers)


def _print(document: Mapping[str, Any], movers: int) -> None:
    for side in SIDES:
        click.echo(
            wrapped(side, *f"{document[side]['asked']} of {document[side]['route']},".split(), *_pooled(document, side))
        )
    domains = document["domains"]
    several = _several(domains)
    differ = _changes(domains) + (", between the newest run of each side" if several else "")
    told_of = (("pooled", several), ("differ in", differ), ("left out", _left_out(domains)))
    for label, told in told_of:
        if told:
            click.echo(wrapped(label, *told.split()))
    click.echo()
    metric = document["metric"]
    print_table(domains, _domain_columns(metric, everywhere=all(part["comparable"] for part in domains)))
    compared = [part for part in domains if part["comparable"]]
    if compared:
        click.echo()
        print_table(list(_positions(compared)), _position_columns())
    rows = sorted(
        (
            {**prompt, "domain": part["domain"], "source": part["source"]}
            for part in compared
            for prompt in part["per_prompt"]
        ),
        key=lambda row: -abs(row["change"]),
    )[:movers]
    if rows:
        click.echo()
        print_table(rows, _prompt_columns(metric))


def _pooled(document: Mapping[str, Any], side: str) -> list[str]:
    """How many runs it is, and when they were made."""
    sides = [part[side] for part in document["domains"] if part[side] is not None and part[side]["first_at"]]
    if not sides:
        return ["no", "runs"]
    runs = count(sum(len(one["run_ids"]) for one in sides), "run")
    first, last = min(one["first_at"] for one in sides), max(one["last_at"] for one in sides)
    when = local_time(first) if first == last else f"{local_time(first)} to {local_time(last)}"
    return f"{runs}, {when}".split()


def _several(domains: Sequence[Mapping[str, Any]]) -> str:
    """Each side whose runs are of several identities, with how many of each, and how to compare one of them."""
    told = []
    for side in SIDES:
        found: dict[str, int] = {}
        for part in domains:
            for number, runs in ({} if part[side] is None else part[side]["identity_runs"]).items():
                found[number] = found.get(number, 0) + runs
        if len(found) > 1:
            runs_of = ", ".join(f"identity:{number} ({count(runs, 'run')})" for number, runs in found.items())
            told.append(f"{side} holds several identities: {runs_of}")
    hint = "name identity:N as a side to compare one alone"
    return "; ".join([*told, hint]) if told else ""


def _changes(domains: Sequence[Mapping[str, Any]]) -> str:
    """What the servers show to be another."""
    told = {f"{name} {a} → {b}": None for part in domains for name, (a, b) in part["identity_changes"].items()}
    return ", ".join(told) or "nothing that the servers show"


def _left_out(domains: Sequence[Mapping[str, Any]]) -> str:
    """Each reason once, with its runs over all domains, and in which where not in all."""
    found: dict[tuple[str, str], list[tuple[str, int | None]]] = {}
    for part in domains:
        for side in SIDES:
            for left in () if part[side] is None else part[side]["left_out"]:
                found.setdefault((side, left["why"]), []).append((part["domain"], left["runs"]))
    return "; ".join(
        f"of {side}, {_left_runs(left)}{why}{_where(left, len(domains))}" for (side, why), left in found.items()
    )


def _left_runs(left: Sequence[tuple[str, int | None]]) -> str:
    """How many, where they were counted."""
    known = [number for _, number in left if number is not None]
    return f"{count(sum(known), 'run')}: " if known else ""


def _where(left: Sequence[tuple[str, int | None]], domains: int) -> str:
    return "" if len(left) == domains else f" ({', '.join(domain for domain, _ in left)})"


def _domain_columns(metric: str, *, everywhere: bool) -> list[Column]:
    """`everywhere`: whether all are comparable, so that no column has to say why they are not."""
    columns = [
        Column("domain", lambda row: row["domain"]),
        Column("before", lambda row: figure(metric, row["value_before"]), right=True),
        Column("now", lambda row: figure(metric, row["value"]), right=True),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("95 % interval", _interval, whole=True),
        Column("prompts", lambda row: str(row["prompts"]), right=True),
        Column("runs", lambda row: " / ".join(_runs(row[side]) for side in SIDES), whole=True),
        Column("source", lambda row: row["source"] or NOTHING, once=True),
    ]
    why = Column("not comparable", lambda row: "; ".join(row["differences"]) or NOTHING)
    return columns if everywhere else [*columns, why]


def _interval(part: Mapping[str, Any]) -> str:
    ends = part["change_interval"]
    return NOTHING if ends is None else f"{change(ends[0])} to {change(ends[1])}"


def _runs(side: Mapping[str, Any] | None) -> str:
    return NOTHING if side is None else str(len(side["run_ids"]))


def _positions(domains: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in domains:
        for side in SIDES:
            yield {"domain": part["domain"], "side": side, **part[side]}


def _position_columns() -> list[Column]:
    return [
        Column("domain", lambda row: row["domain"]),
        Column("side", lambda row: row["side"]),
        Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
        Column("survival by position", lambda row: survival_text(row["survival"]), whole=True),
        Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True, once=True),
        Column("source", lambda row: row["source"], once=True),
    ]


def _prompt_columns(metric: str) -> list[Column]:
    return [
        Column("prompt", lambda row: row["question_id"], whole=True),
        Column("before", lambda row: figure(metric, row["before"]), right=True),
        Column("now", lambda row: figure(metric, row["now"]), right=True),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("domain", lambda row: row["domain"], once=True),
        Column("source", lambda row: row["source"], once=True),
    ]
