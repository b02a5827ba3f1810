"""`specwatch runs`, `run show`: single runs, down to their prompts."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import require_domain, require_route
from monitor.cli.output import (
    RECORD_ID,
    Column,
    document_format_option,
    emit,
    format_option,
    local_time,
    print_table,
    time_column,
    wrapped,
)
from monitor.cli.run_now import run_now
from monitor.core.format import (
    NOTHING,
    change,
    context_text,
    count,
    figure,
    floor_text,
    leak_text,
    survival_text,
    warm_parts,
)
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from monitor.cli.context import Context


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
        Column("result", lambda row: "valid" if row["valid"] else row["invalid_reason"]),
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
    """Ask for a run now, or look into one, down to single prompts."""


run.add_command(run_now)


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
    click.echo(wrapped("identity", *_listed(f"{name} {value}" for name, value in known.items()) or ["unknown"]))
    click.echo(wrapped("sampling", *_listed(_sampling(found))))
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
    if by_source := found["acceptance_by_source"]:
        lengths = (f"AL {figure('acceptance_length', length)} by {source}" for source, length in by_source.items())
        click.echo(wrapped("sources", *_listed(lengths)))
    if by_context := found["by_context"]:
        click.echo(wrapped("context", *_listed(map(_of_context, by_context)), f"by {found['source']}"))
    click.echo(
        f"  counts    steps {found['steps']}, drafted {NOTHING if found['drafted'] is None else found['drafted']}, "
        f"accepted {found['accepted']}, completion tokens {found['completion_tokens']}"
    )
    if found["warm"] is not None:
        click.echo(wrapped("warm", *warm_parts(found)))
    for warning in found["warnings"]:
        click.echo(wrapped("warning", *warning.split()))
    for verdict in verdicts:
        said = f"{verdict['rule']}: {verdict['outcome']}{_judged(verdict)} ({verdict['reason']})"
        click.echo(wrapped("verdict", *said.split()))
    if found["samples_removed"]:
        click.echo("  prompts   their samples are no longer kept, as retention in routes.yaml says")
        return
    click.echo()
    _print_samples(found["samples"])


def _sampling(found: Mapping[str, Any]) -> Iterator[str]:
    """Under what the run was asked: only what says something, the rest being as the probe sets it."""
    sampling = found["sampling"]
    yield f"{sampling['endpoint']} of up to {sampling['max_tokens']} tokens"
    yield f"temperature {sampling['temperature']:g}"
    yield f"cache {sampling['cache']}"
    yield f"concurrency {found['concurrency']}"
    for name in ("chat_template_kwargs", "extra_body"):
        if sampling[name]:
            yield f"{name} {json.dumps(sampling[name], ensure_ascii=False)}"
    if keys := sampling.get("prompt_keys"):
        yield f"prompts with {' and '.join(keys)}"


def _of_context(bucket: Mapping[str, Any]) -> str:
    length = figure("acceptance_length", bucket["acceptance_length"])
    return f"AL {length} at {context_text(bucket)} prompt tokens ({count(bucket['prompts'], 'prompt')})"


def _listed(parts: Iterable[str]) -> list[str]:
    listed = list(parts)
    return [*(f"{part}," for part in listed[:-1]), *listed[-1:]]


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
        floor = verdict.get("below") is not None and verdict["value"] is not None
        name = "first-position survival" if verdict.get("break_even") is None else verdict["metric"].replace("_", " ")
        return f", {name} {floor_text(verdict)}" if floor else ""
    now, before = (figure(verdict["metric"], verdict[name]) for name in ("value", "baseline_value"))
    leak = "" if verdict.get("accumulated") is None else f"; {leak_text(verdict)}"
    return (
        f", {now}, {change(verdict['change'])} from {before} of baseline {verdict['baseline_id']}, "
        f"geometric means over {verdict['prompts']} prompts{leak}"
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
    Column("source", lambda row: row["source"] or "none", once=True),
    Column("finish", lambda row: row["finish_reason"] or NOTHING, once=True),
    Column("result", lambda row: row["invalid_reason"] or "valid", once=True),
]
JUDGED_SAMPLE_COLUMNS = [
    *SAMPLE_COLUMNS[:2],
    Column("baseline", lambda row: figure("acceptance_length", row["baseline_acceptance_length"]), right=True),
    Column("change", lambda row: change(row["change"]), right=True),
    *(column for column in SAMPLE_COLUMNS[2:] if column.heading not in ("drafted", "finish")),
]
"""What moved comes first; what gives way to it is in the JSON."""
