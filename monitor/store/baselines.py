"""Baselines: immutable rows from chosen runs; approving one is a row of its own (approvals.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, func, insert, select, true

from monitor.core.figures import SAMPLE_METRICS
from monitor.core.judge import Comparability, Outcome, Reference
from monitor.core.records import Identity
from monitor.core.statistics import BaselineValues, baseline_values, geometric_mean
from monitor.errors import UsageError
from monitor.store.approvals import approved_baselines, comparable_with, generations, with_approval
from monitor.store.retention import without_samples
from monitor.store.runs import candidate, comparability
from monitor.store.schema import SERVING, baselines, identities, runs, samples, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row


def create_baseline(connection: Connection, run_ids: Sequence[int], created_by: str, created_at: datetime) -> int:
    """An unapproved baseline from valid, mutually comparable runs of one route and domain; returns its id.

    Raises UsageError naming the run that is missing, invalid or not comparable with the first.
    """
    chosen = list(dict.fromkeys(run_ids))  # a run named twice is still one run
    held = select(runs).where(runs.c.id.in_(chosen)).order_by(runs.c.id).with_for_update(read=True)  # retention.py
    found = {row.id: row for row in connection.execute(held)}
    rows = [_usable(found, run_id) for run_id in chosen]
    if gone := without_samples(connection, chosen):
        raise UsageError(f"the samples of run {gone[0]} are no longer kept: a baseline needs runs that have theirs")
    if not rows:
        raise UsageError("a baseline needs at least one valid run")
    first = rows[0]
    for row in rows[1:]:
        _require_same(first, row)
    values = {
        "route": first.route,
        "domain": first.domain,
        "prompt_set_hash": first.prompt_set_hash,
        "source": first.source,
        "k": first.k,
        "concurrency": first.concurrency,
        "sampling": first.sampling,
        "identity_id": rows[-1].identity_id,
        "run_ids": [row.id for row in rows],
        "metrics": {metric: _metric(connection, rows, metric) for metric in SAMPLE_METRICS},
        "created_at": created_at,
        "created_by": created_by,
    }
    return connection.execute(insert(baselines).values(values).returning(baselines.c.id)).scalar_one()


def reference(connection: Connection, route: str, domain: str, metric: str, run: Comparability) -> Reference | None:
    """The baseline to judge by: the last approved one comparable with the run, else the last approved one."""
    statement = approved_baselines().where(baselines.c.route == route, baselines.c.domain == domain)
    approved = list(connection.execute(statement))
    if not approved:
        return None
    comparable = [row for row in approved if not comparability(row).differences(run)]
    return _reference(connection, (comparable or approved)[0], metric)


def reference_by_id(connection: Connection, baseline_id: int, metric: str) -> Reference:
    row = connection.execute(select(baselines).where(baselines.c.id == baseline_id)).one()
    return _reference(connection, row, metric)


def _reference(connection: Connection, row: Row[Any], metric: str) -> Reference:
    """Of a metric that a baseline of an earlier version does not hold, from the raw counts of the same runs."""
    stored = row.metrics.get(metric)
    if stored is None:
        its_runs = select(runs).where(runs.c.id.in_(row.run_ids)).order_by(runs.c.id)
        stored = _metric(connection, list(connection.execute(its_runs)), metric)
    return Reference(row.id, comparability(row), stored["values"], stored["run_sigma"], stored["runs"])


def identity_of(connection: Connection, baseline_id: int) -> Identity:
    """What was running in the last of its runs."""
    statement = select(identities.c.document).join(baselines, baselines.c.identity_id == identities.c.id)
    return Identity.from_dict(connection.execute(statement.where(baselines.c.id == baseline_id)).scalar_one())


def runs_of(connection: Connection, baseline_id: int) -> dict[str, Any]:
    """The runs a baseline was made from, and when the last of them ended."""
    run_ids = list(connection.execute(select(baselines.c.run_ids).where(baselines.c.id == baseline_id)).scalar_one())
    ended = connection.execute(select(func.max(runs.c.finished_at)).where(runs.c.id.in_(run_ids))).scalar_one()
    return {"run_ids": run_ids, "finished_at": ended.isoformat()}


def outputs_of(connection: Connection, baseline_id: int) -> dict[str, dict[str, int]]:
    """In how many of the baseline's runs valid samples have each output hash, by question."""
    run_ids = select(func.unnest(baselines.c.run_ids)).where(baselines.c.id == baseline_id)
    c = samples.c
    statement = (
        select(c.question_id, c.output_hash, func.count())
        .where(c.run_id.in_(run_ids), c.invalid_reason.is_(None), c.output_hash.is_not(None))
        .group_by(c.question_id, c.output_hash)
    )
    found: dict[str, dict[str, int]] = {}
    for question_id, output_hash, times in connection.execute(statement):
        found.setdefault(question_id, {})[output_hash] = times
    return found


def first_valid_runs(connection: Connection, like_run: int, count: int) -> list[int]:
    """Ids of the first `count` valid runs with samples, comparable with `like_run` and of its identity, oldest first.

    Fewer when there are fewer: after a bump the count begins anew, since a baseline nobody looked at must not mix. Runs
    that tripped an absolute rule are left out: what a dead drafter does is no level to hold others to. That speculation
    does not break even is no such fault.
    """
    identity = select(runs.c.identity_id).where(runs.c.id == like_run).scalar_subquery()
    broke_even_not = verdicts.c.document["break_even"]["basis"].as_string().is_not(None)
    tripped = exists().where(
        verdicts.c.run_id == runs.c.id, verdicts.c.outcome == Outcome.TRIPPED.value, ~broke_even_not
    )
    return _comparable_runs(connection, like_run, and_(runs.c.identity_id == identity, ~tripped), runs.c.id, count)


def last_valid_runs(connection: Connection, route: str, domain: str, count: int) -> list[int]:
    """Ids of the last `count` valid runs with samples that are comparable with the newest one, oldest first."""
    statement = select(runs.c.id).where(runs.c.route == route, runs.c.domain == domain, runs.c.valid, SERVING)
    newest = connection.execute(statement.order_by(runs.c.id.desc()).limit(1)).scalar_one_or_none()
    if newest is None:
        return []
    return _comparable_runs(connection, newest, true(), runs.c.id.desc(), count)


def list_baselines(connection: Connection, route: str | None = None, domain: str | None = None) -> list[dict[str, Any]]:
    statement = with_approval().order_by(baselines.c.id.desc())
    if route is not None:
        statement = statement.where(baselines.c.route == route)
    if domain is not None:
        statement = statement.where(baselines.c.domain == domain)
    return _numbered(connection, [_document(row) for row in connection.execute(statement)])


def _numbered(connection: Connection, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the generation that each is of its route and domain; None for one that was never approved."""
    routes = {document["route"] for document in documents}
    numbers = {
        baseline_id: number
        for route in routes
        for ids in generations(connection, route).values()
        for number, baseline_id in enumerate(ids, 1)
    }
    return [{**document, "generation": numbers.get(document["id"])} for document in documents]


def get_baseline(connection: Connection, baseline_id: int) -> dict[str, Any] | None:
    """The document with per-prompt values of every metric."""
    row = connection.execute(with_approval().where(baselines.c.id == baseline_id)).one_or_none()
    return None if row is None else {**_numbered(connection, [_document(row)])[0], "metrics": row.metrics}


def _comparable_runs(
    connection: Connection, like_run: int, such: ColumnElement[bool], order: ColumnElement[Any], count: int
) -> list[int]:
    like = connection.execute(select(runs).where(runs.c.id == like_run)).one()
    has_samples = exists().where(samples.c.run_id == runs.c.id)
    statement = select(runs.c.id).where(runs.c.valid, SERVING, *comparable_with(runs, like), such, has_samples)
    return sorted(connection.execute(statement.order_by(order).limit(count)).scalars())


def _document(row: Row[Any]) -> dict[str, Any]:
    figures = row.metrics["acceptance_length"]
    values = figures["values"]
    return {
        "id": row.id,
        "route": row.route,
        "domain": row.domain,
        "prompt_set_hash": row.prompt_set_hash,
        "source": row.source,
        "k": row.k,
        "concurrency": row.concurrency,
        "sampling": row.sampling,
        "identity_id": row.identity_id,
        "run_ids": list(row.run_ids),
        "prompts": len(values),
        "acceptance_length_geometric_mean": geometric_mean(values.values()),
        "run_sigma": figures["run_sigma"],
        "created_at": row.created_at.isoformat(),
        "created_by": row.created_by,
        "approved_at": None if row.approved_at is None else row.approved_at.isoformat(),
        "approved_by": row.approved_by,
        "why": row.why,
    }


def _metric(connection: Connection, rows: Sequence[Row[Any]], metric: str) -> dict[str, Any]:
    found = [candidate(connection, row.id, metric).values for row in rows]
    values: BaselineValues = baseline_values(found)
    return {
        "values": values.values,
        "spreads": values.spreads,
        "run_sigma": values.run_sigma,
        "runs": values.runs,
    }


def _usable(found: dict[int, Row[Any]], run_id: int) -> Row[Any]:
    row = found.get(run_id)
    if row is None:
        raise UsageError(f"there is no run {run_id}; see 'specwatch runs'")
    if not row.valid:
        raise UsageError(f"run {run_id} is invalid ({row.invalid_reason}) and cannot be part of a baseline")
    return row


def _require_same(first: Row[Any], row: Row[Any]) -> None:
    if (row.route, row.domain) != (first.route, first.domain):
        raise UsageError(f"run {row.id} is of {row.route}/{row.domain}, run {first.id} of {first.route}/{first.domain}")
    differences = comparability(first).differences(comparability(row))
    if differences:
        raise UsageError(f"run {row.id} is not comparable with run {first.id}: {'; '.join(differences)}")
