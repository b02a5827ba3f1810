"""Verdicts: what judging said of a run, or of a measured speedup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on

from monitor.core.leak import Look
from monitor.store.schema import baselines, bumps, runs, speedups, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select

    from monitor.core.judge import Verdict


def store_verdict(
    connection: Connection, run_id: int, rule: str, verdict: Verdict, judged_at: datetime, trip_id: int | None = None
) -> int:
    """Writes what a rule said of a run; `trip_id` where it confirms a trip, and so speaks of more runs than this."""
    values = {
        "run_id": run_id,
        "trip_id": trip_id,
        "rule": rule,
        "outcome": verdict.outcome.value,
        "document": verdict.as_dict(),
        "judged_at": judged_at,
    }
    if trip_id is None and verdict.estimate is not None:
        _mark_judged(connection, run_id, verdict, verdict.estimate.change)
    return connection.execute(insert(verdicts).values(values).returning(verdicts.c.id)).scalar_one()


def store_speedup_verdict(
    connection: Connection, speedup_id: int, rule: str, verdict: Verdict, judged_at: datetime
) -> int:
    """Writes what a rule said of a measured speedup."""
    values = {
        "speedup_id": speedup_id,
        "rule": rule,
        "outcome": verdict.outcome.value,
        "document": verdict.as_dict(),
        "judged_at": judged_at,
    }
    return connection.execute(insert(verdicts).values(values).returning(verdicts.c.id)).scalar_one()


def verdicts_of_speedups(connection: Connection, speedup_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """speedup id → its verdicts, oldest first; those nobody judged are left out."""
    statement = select(verdicts).where(verdicts.c.speedup_id.in_(speedup_ids)).order_by(verdicts.c.id)
    found: dict[int, list[dict[str, Any]]] = {}
    for row in connection.execute(statement):
        head = {"id": row.id, "rule": row.rule, "judged_at": row.judged_at.isoformat()}
        found.setdefault(row.speedup_id, []).append({**head, **row.document})
    return found


def _mark_judged(connection: Connection, run_id: int, verdict: Verdict, change: float) -> None:
    """Keeps the largest fall beside the run's figures, where history reads it without looking at verdicts."""
    seen = {
        "judged_metric": verdict.metric,
        "baseline_id": verdict.baseline_id,
        "baseline_value": verdict.baseline_value,
        "change": change,
    }
    larger = or_(runs.c.change.is_(None), runs.c.change > change)
    connection.execute(update(runs).where(runs.c.id == run_id, larger).values(seen))


def list_verdicts(connection: Connection, run_id: int) -> list[dict[str, Any]]:
    return verdicts_of(connection, [run_id]).get(run_id, [])


def verdicts_of(connection: Connection, run_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """run id → its verdicts, oldest first; runs nobody judged are left out."""
    statement = select(verdicts).where(verdicts.c.run_id.in_(run_ids)).order_by(verdicts.c.id)
    found: dict[int, list[dict[str, Any]]] = {}
    for row in connection.execute(statement):
        found.setdefault(row.run_id, []).append(_document(row))
    return found


def _document(row: Row[Any]) -> dict[str, Any]:
    head = {"id": row.id, "rule": row.rule, "judged_at": row.judged_at.isoformat(), "source": None}
    return {**head, **row.document}  # rows of earlier versions have no source


@dataclass(frozen=True)
class StoredVerdict:
    """A verdict as it is kept, and what it is about; `trip_id` where it confirms a trip."""

    id: int
    route: str
    domain: str
    run_id: int
    trip_id: int | None
    document: dict[str, Any]


def get_verdict(connection: Connection, verdict_id: int) -> StoredVerdict | None:
    """None when there is no such verdict."""
    statement = select(verdicts, runs.c.route, runs.c.domain).join(runs, runs.c.id == verdicts.c.run_id)
    row = connection.execute(statement.where(verdicts.c.id == verdict_id)).one_or_none()
    if row is None:
        return None
    return StoredVerdict(row.id, row.route, row.domain, row.run_id, row.trip_id, _document(row))


def verdict_of_run(connection: Connection, run_id: int, rule: str | None = None) -> int | None:
    """The verdict that says most of the run, by its id: the rule's, a confirmation before others, the largest fall."""
    statement = _telling(select(verdicts.c.id).where(verdicts.c.run_id == run_id))
    if rule is not None:
        statement = statement.where(verdicts.c.rule == rule)
    return connection.execute(statement.limit(1)).scalar_one_or_none()


def newest_verdicts(connection: Connection, route: str) -> list[int]:
    """Of the newest judged run of every domain of the route, by domain, the verdict that says most of it."""
    judged = exists().where(verdicts.c.run_id == runs.c.id)
    newest_run = (
        select(runs.c.domain, func.max(runs.c.id).label("id"))
        .where(runs.c.route == route, judged)
        .group_by(runs.c.domain)
    )
    found = [row.id for row in connection.execute(newest_run.order_by(runs.c.domain))]
    return [known for run_id in found if (known := verdict_of_run(connection, run_id)) is not None]


def _telling(statement: Select[Any]) -> Select[Any]:
    fall = verdicts.c.document["change"].as_float()
    return statement.order_by(verdicts.c.trip_id.is_(None), fall.asc().nulls_last(), verdicts.c.id)


def last_good_run(
    connection: Connection, route: str, domain: str, rule: str, before: int | None = None
) -> dict[str, Any] | None:
    """The latest run of this domain that the rule found above the resolve line: when it was last well.

    `before`: only runs before that one; a later well run may be another replica's.
    """
    statement = (
        select(runs.c.id, runs.c.finished_at)
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, verdicts.c.rule == rule)
        .where(verdicts.c.document["above_resolve_line"].as_boolean())
        .order_by(runs.c.id.desc())
        .limit(1)
    )
    if before is not None:
        statement = statement.where(runs.c.id < before)
    row = connection.execute(statement).one_or_none()
    return None if row is None else {"run_id": row.id, "finished_at": row.finished_at.isoformat()}


def newest_valid(connection: Connection, route: str, domain: str, rule: str) -> dict[str, Any] | None:
    """The rule's verdict on the domain's latest run that it could judge, with that run's id and end."""
    statement = (
        select(runs.c.id, runs.c.finished_at, verdicts.c.document)
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, verdicts.c.rule == rule)
        .where(verdicts.c.trip_id.is_(None), verdicts.c.outcome != "invalid")
        .where(verdicts.c.document["value"].as_float().is_not(None))
        .order_by(runs.c.id.desc())
        .limit(1)
    )
    row = connection.execute(statement).one_or_none()
    return None if row is None else {**row.document, "run_id": row.id, "finished_at": row.finished_at.isoformat()}


def healing_runs(connection: Connection, route: str, domain: str, rule: str, count: int, since: datetime) -> list[int]:
    """Ids of the last `count` runs after `since` that the rule found above the resolve line, oldest first."""
    statement = (
        select(runs.c.id)
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, runs.c.finished_at > since, verdicts.c.rule == rule)
        .where(verdicts.c.trip_id.is_(None), verdicts.c.document["above_resolve_line"].as_boolean())
        .order_by(runs.c.id.desc())
        .limit(count)
    )
    return sorted(connection.execute(statement).scalars())


def looks(
    connection: Connection, route: str, domain: str, rule: str, baseline_id: int, before: int, count: int
) -> list[Look]:
    """The last `count` runs before that one that the rule judged alone against this baseline, oldest first.

    Guarantee: reads no run older than the baseline's own, so a baseline just approved does not cost all of history.
    """
    own = select(func.unnest(baselines.c.run_ids).label("id")).where(baselines.c.id == baseline_id).subquery()
    document = verdicts.c.document
    statement = (
        select(
            runs.c.id, document["change"].as_float().label("change"), document["standard_error"].as_float().label("se")
        )
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, verdicts.c.rule == rule, verdicts.c.trip_id.is_(None))
        .where(runs.c.id > select(func.max(own.c.id)).scalar_subquery(), runs.c.id < before)
        .where(verdicts.c.outcome != "invalid", document["baseline_id"].as_integer() == baseline_id)
        .order_by(runs.c.id.desc())
        .limit(count)
    )
    return [Look(row.id, row.change, row.se) for row in reversed(connection.execute(statement).all())]


def ill_replicas(connection: Connection, route: str, domain: str, rule: str, since: datetime) -> list[str]:
    """Replicas whose latest run after `since` the rule found at or below the resolve line, sorted."""
    statement = (
        select(runs.c.replica, verdicts.c.document["above_resolve_line"].as_boolean().label("well"))
        .ext(distinct_on(runs.c.replica))
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, runs.c.finished_at > since, verdicts.c.rule == rule)
        .where(verdicts.c.trip_id.is_(None), verdicts.c.outcome != "invalid")
        .order_by(runs.c.replica, runs.c.id.desc())
    )
    return [row.replica for row in connection.execute(statement) if row.well is False]


def ill_when_measured(connection: Connection, route: str, domain: str, rule: str) -> list[str]:
    """Replicas whose latest measured speedup the rule found at or below the resolve line, sorted."""
    replica = speedups.c.document["replica"].as_string()
    statement = (
        select(replica.label("replica"), verdicts.c.document["above_resolve_line"].as_boolean().label("well"))
        .ext(distinct_on(replica))
        .join(verdicts, verdicts.c.speedup_id == speedups.c.id)
        .where(speedups.c.route == route, speedups.c.domain == domain, speedups.c.valid)
        .where(verdicts.c.rule == rule, verdicts.c.outcome != "invalid")
        .order_by(replica, speedups.c.id.desc())
    )
    return [row.replica for row in connection.execute(statement) if row.well is False]


def last_changes(connection: Connection, route: str, rule: str) -> dict[str, float]:
    """Domain → latest judged change of the route by this rule, as a fraction.

    What was measured before the last bump says nothing of what is running: it is left out.
    """
    bump = select(bumps.c.run_id).where(bumps.c.route == route).order_by(bumps.c.id.desc()).limit(1).scalar_subquery()
    statement = (
        select(runs.c.domain, verdicts.c.document["change"].as_float().label("change"))
        .ext(distinct_on(runs.c.domain))
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, verdicts.c.rule == rule, verdicts.c.outcome != "invalid")
        .where(runs.c.id >= func.coalesce(bump, 0))
        .order_by(runs.c.domain, runs.c.id.desc(), verdicts.c.id.desc())
    )
    return {row.domain: row.change for row in connection.execute(statement) if row.change is not None}
