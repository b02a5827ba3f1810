"""`specwatch explain`: why a verdict is what it is, whether it comes out the same again, and what moved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import require_route
from monitor.cli.output import RECORD_ID, Column, document_format_option, local_time, print_table, wrapped
from monitor.core.cost import cost_text, pace_text
from monitor.core.explanation import cause_texts
from monitor.core.format import NOTHING, by_source, change, count, figure, floor_text, numbered
from monitor.core.judge import TRIP_P
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from monitor.cli.context import Context
    from monitor.store.verdicts import StoredVerdict

MOVERS = 10
"""Prompts shown, those that fell most; JSON has all."""
BROKE = ("opened", "updated", "reopened")
"""Transitions with the verdict that broke a domain; a reminder has a later one, an end what healed it."""


@click.command()
@click.argument("subject", metavar="[VERDICT_ID | ROUTE]", required=False)
@click.option("--run", "run_id", type=RECORD_ID, help="The verdict that says most of this run.")
@click.option(
    "--incident", "incident_id", type=RECORD_ID, help="The verdict behind each domain broken in it, the worst first."
)
@document_format_option
@click.pass_obj
def explain(context: Context, subject: str | None, run_id: int | None, incident_id: int | None, format_: str) -> None:
    """Say why a verdict is what it is, and what moved.

    Shows the statistic, its lines, both identities, the prompts that fell most, the causes that evidence points to, and
    whether the stored samples give the same verdict again. VERDICT_ID is in 'specwatch run show' and in the JSON of
    incidents; with ROUTE, the newest verdict of each of its domains. Of an incident that is over, each domain that was
    broken. Of several, the prompts are left out.
    """
    if sum(given is not None for given in (subject, run_id, incident_id)) != 1:
        raise click.UsageError("name one: VERDICT_ID, ROUTE, --run ID or --incident ID")
    from monitor.service.explaining import explain as explained

    routes = context.configured()
    with context.database() as database, database.transaction() as connection:
        found = list(_verdicts(connection, subject, run_id, incident_id))
        documents = [explained(connection, stored, routes.get(stored.route)) for stored in found]
    whole_route = subject is not None and not subject.isdecimal()
    if format_ == "json":
        first = {**documents[0], "other_domains": documents[1:]} if incident_id is not None else documents[0]
        click.echo(json.dumps(documents if whole_route else first, ensure_ascii=False, indent=2))
        return
    if len(documents) > 1 and incident_id is not None:
        click.echo(_heading(incident_id, documents))
    for number, document in enumerate(documents):
        click.echo("\n" if number else "", nl=False)
        _print(document, prompts=not whole_route and len(documents) == 1)


def _heading(incident_id: int, documents: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(document["domain"] for document in documents)
    see = f"the prompts of one: 'specwatch explain {documents[0]['verdict']['id']}'"
    return f"incident {incident_id}: {len(documents)} domains, the worst first: {names}; {see}\n"


def _verdicts(
    connection: Connection, subject: str | None, run_id: int | None, incident_id: int | None
) -> Iterator[StoredVerdict]:
    """At least one. Raises UsageError."""
    from monitor.store import verdicts

    if run_id is not None:
        ids = [verdicts.verdict_of_run(connection, run_id)]
        nothing = f"no verdict on run {run_id}; see 'specwatch run show {run_id}'"
    elif incident_id is not None:
        ids = _of_incident(connection, incident_id)
        nothing = f"no verdict on a run is behind incident {incident_id}; see 'specwatch incidents {incident_id}'"
    elif subject is not None and subject.isdecimal():
        ids = [RECORD_ID.convert(subject, None, None)]
        nothing = f"there is no verdict {subject}; 'specwatch run show ID' has those of a run"
    else:
        require_route(connection, subject or "")
        ids = list(verdicts.newest_verdicts(connection, subject or ""))
        nothing = f"no run of route {subject} was judged yet"
    found = [stored for known in ids if known is not None and (stored := verdicts.get_verdict(connection, known))]
    if not found:
        raise UsageError(nothing)
    yield from found


def _of_incident(connection: Connection, incident_id: int) -> list[int | None]:
    """Behind the newest message of each domain that is broken, of an incident that is over that was; the worst first.

    Raises UsageError when there is no such incident.
    """
    from monitor.alerting.text import worst_first
    from monitor.store.incidents import get_incident, is_broken
    from monitor.store.verdicts import verdict_of_run

    incident = get_incident(connection, incident_id)
    if incident is None:
        raise UsageError(f"there is no incident {incident_id}; see 'specwatch incidents'")
    broke = [event for event in incident["events"] if event["transition"] in BROKE]
    told = {event["domain"]: event for event in broke if event.get("verdict") and event["verdict"]["run_ids"]}
    broken = [name for name in told if is_broken(incident, name)] or list(told)
    events = [told[name] for name in worst_first(incident["domains"], broken)]
    return [verdict_of_run(connection, event["verdict"]["run_ids"][-1], event["rule"]) for event in events]


def _print(document: Mapping[str, Any], *, prompts: bool) -> None:
    verdict, run = document["verdict"], document["run"]
    click.echo(f"verdict {verdict['id']} of {document['route']} · {document['domain']}: {verdict['outcome']}")
    _line("because", verdict["reason"])
    _line("rule", _rule(verdict))
    _line("statistic", _statistic(verdict))
    _line("runs", "; ".join(map(_run, document["runs"])))
    _line("baseline", _baseline(document["baseline"]))
    _line("identity", _identity(document["identity"], run["id"]))
    _line("changed", _changes(document))
    _line("checked", _recomputed(document["recomputed"]))
    for text in cause_texts(document):
        _line("cause", text)
    if document["removed_beside"]:
        _line("removed", _removed(document["removed_beside"]))
    if document["organic"]:
        _line("traffic", _traffic(document["organic"]))
    if document["moved"] and document["pace"]:
        _line("pace", pace_text(document["pace"]))
    if document["cost"]:
        _line("cost", cost_text(document["cost"]))
    if prompts and document["prompts"]:
        metric = document["prompts_metric"]
        click.echo(f"\nprompts that fell most by {metric}, source {document['source']}\n")
        print_table(document["prompts"][:MOVERS], _prompt_columns(metric))


def _line(label: str, text: str) -> None:
    click.echo(wrapped(label, *text.split()))


def _rule(verdict: Mapping[str, Any]) -> str:
    name, metric, version = verdict["rule"], verdict["metric"], f"judge version {verdict['judge_version']}"
    if verdict["drop"] is None:
        below = verdict.get("below")
        floor = "" if below is None else f" below {below * 100:g}%"
        if verdict.get("break_even"):
            floor = " below break_even"
        return f"{name}: {metric}{floor}, {version}"
    return (
        f"{name}: {metric} down {verdict['drop'] * 100:g}%; a run trips at {change(verdict['trip_change'])} where p is "
        f"under {TRIP_P}, and is well above {change(verdict['resolve_change'])}; {version}"
    )


def _statistic(verdict: Mapping[str, Any]) -> str:
    source = by_source(verdict["source"])
    if verdict["change"] is None:
        value = verdict["value"]
        return "none" if value is None else f"{floor_text(verdict)}{source} over {verdict['prompts']} prompts"
    low, high = map(change, verdict["change_interval"])
    now, before = (figure(verdict["metric"], verdict[name]) for name in ("value", "baseline_value"))
    return (
        f"{now}{source}, {change(verdict['change'])} from {before} (95 % interval {low} to {high}), geometric means "
        f"over {verdict['prompts']} prompts; p of a drop {verdict['p_drop']:.2g}, standard error of the log ratio "
        f"{verdict['standard_error']:.4f}"
    )


def _run(run: Mapping[str, Any]) -> str:
    length = figure("acceptance_length", run["acceptance_length"])
    measured = f"AL {length}{by_source(run['source'])}" if run["valid"] else f"invalid: {run['invalid_reason']}"
    return f"{run['id']} ({run['reason']}) on {run['replica']} at {local_time(run['started_at'])}, {measured}"


def _baseline(baseline: Mapping[str, Any] | None) -> str:
    if baseline is None:
        return "none"
    approved = f"approved by {baseline['approved_by']} at {local_time(baseline['approved_at'])}"
    runs = numbered("run", baseline["run_ids"])
    return f"{baseline['id']} of {runs}, {approved if baseline['approved_at'] else 'not approved'}"


def _identity(identity: Mapping[str, Any], run_id: int) -> str:
    known = [f"{name} {value}" for name, value in identity.items() if value not in (None, [])]
    return f"of run {run_id}: {', '.join(known) or 'unknown'}"


def _changes(document: Mapping[str, Any]) -> str:
    if document["baseline"] is None:
        return "not known without a baseline"
    changes = document["identity_changes"]
    told = "; ".join(f"{name} {before} → {now}" for name, (before, now) in changes.items())
    return told or "nothing of the identity since the baseline that both sides show"


def _recomputed(recomputed: Mapping[str, Any]) -> str:
    match recomputed["same"]:
        case None:
            return f"not recomputed: {recomputed['why']}"
        case True:
            return "recomputed from the samples: the same verdict"
        case _:
            return f"recomputed from the samples: ANOTHER verdict, {recomputed['outcome']}: {recomputed['why']}"


def _removed(run_ids: Sequence[int]) -> str:
    return (
        f"samples of {count(len(run_ids), 'run')} of the route's replicas at the time are no longer kept, as "
        "routes.yaml says: whether one replica alone fell is not known any more; the incident's messages have the "
        "causes as they were found"
    )


def _traffic(organic: Mapping[str, Any]) -> str:
    before, after = (figure("acceptance_length", organic[name]) for name in ("before", "after"))
    return (
        f"organic AL of all requests {before} while the baseline was measured, {after} in the hour up to the run "
        f"({change(organic['change'])}, over {organic['steps_after']:,} steps)"
    )


def _prompt_columns(metric: str) -> list[Column]:
    return [
        Column("prompt", lambda row: row["question_id"], whole=True),
        Column("now", lambda row: figure(metric, row["value"]), right=True),
        Column("baseline", lambda row: figure(metric, row["baseline_value"]), right=True),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("prompt tokens", lambda row: _number(row["prompt_tokens"]), right=True),
        Column("cached", lambda row: _number(row["cached_prompt_tokens"]), right=True),
    ]


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"
