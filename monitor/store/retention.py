"""Removing the bulk of old measurements: samples and passive readings, in batches that each take a moment.

Guarantee: kept, however old, are the samples of the runs that a baseline was made from, that confirmed an incident or
may still do so, or that are of a promoted gate, and the readings from the time of a baseline's runs and from the hour
before such a run of an incident ended; and no row of a run, verdict, incident or gate is removed. A baseline that is
being made holds its runs: one side waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, exists, func, not_, or_, select

from monitor.core.judge import Outcome
from monitor.core.organic import WINDOW
from monitor.store.schema import SERVING, baselines, organic, runs, samples, trips, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection


@dataclass(frozen=True)
class Removed:
    """Samples, and the runs that they were of."""

    runs: int
    samples: int


def removable_samples(connection: Connection, before: datetime) -> Removed:
    """What is there to be removed of runs that ended before then."""
    such = and_(runs.c.finished_at < before, _has_samples(), not_(_is_rested_on()))
    old = select(runs.c.id).where(such).subquery()
    statement = select(func.count(samples.c.run_id.distinct()), func.count()).select_from(samples)
    return Removed(*connection.execute(statement.join(old, old.c.id == samples.c.run_id)).one())


def kept_samples(connection: Connection, before: datetime) -> int:
    """How many runs that ended before then keep their samples, because something rests on them."""
    such = and_(runs.c.finished_at < before, _is_rested_on(), _has_samples())
    return connection.execute(select(func.count()).select_from(runs).where(such)).scalar_one()


def remove_samples(
    connection: Connection, before: datetime, after_run_id: int, most_runs: int
) -> tuple[Removed, int | None]:
    """Removes those of the next runs with samples, by id; and the id to go on after, None when no older run is left.

    Runs get their ids in the order in which they are stored, so what is older comes first. A run that somebody holds is
    passed over until the next day.
    """
    following = select(samples.c.run_id).where(samples.c.run_id > after_run_id).distinct()
    ids = list(connection.execute(following.order_by(samples.c.run_id).limit(most_runs)).scalars())
    old = and_(runs.c.id.in_(ids), runs.c.finished_at < before)
    if not ids or not connection.execute(select(exists().where(old))).scalar_one():
        return Removed(0, 0), None
    held = select(runs.c.id).where(old, not_(_is_rested_on())).with_for_update(skip_locked=True)
    locked = list(connection.execute(held).scalars())
    # Looked at again, now that they are held: a baseline may have been made of them while they were waited for.
    still = select(runs.c.id).where(runs.c.id.in_(locked), not_(_is_rested_on()))
    gone = connection.execute(delete(samples).where(samples.c.run_id.in_(still)).returning(samples.c.run_id)).scalars()
    run_ids = list(gone)
    return Removed(len(set(run_ids)), len(run_ids)), ids[-1]


def removable_organic(connection: Connection, before: datetime) -> int:
    return connection.execute(select(func.count()).select_from(organic).where(_old_readings(before))).scalar_one()


def remove_organic(connection: Connection, before: datetime, most: int) -> int:
    """Removes as many readings that ended before then; returns how many it were."""
    some = select(organic.c.id).where(_old_readings(before)).order_by(organic.c.id).limit(most)
    return connection.execute(delete(organic).where(organic.c.id.in_(some))).rowcount


def without_samples(connection: Connection, run_ids: Sequence[int]) -> list[int]:
    """Those of the runs that had samples and have none any more, by id."""
    such = and_(runs.c.id.in_(run_ids), runs.c.prompts_total > 0, not_(_has_samples()))
    return list(connection.execute(select(runs.c.id).where(such).order_by(runs.c.id)).scalars())


def _has_samples() -> ColumnElement[bool]:
    return exists().where(samples.c.run_id == runs.c.id)


def _is_rested_on() -> ColumnElement[bool]:
    """Of a run; never NULL."""
    return or_(not_(SERVING), runs.c.id.in_(select(func.unnest(baselines.c.run_ids))), _is_of_an_incident())


def _is_of_an_incident() -> ColumnElement[bool]:
    """Of a run: it tripped, or was to confirm that, and either confirmed it or may still do so. Never NULL."""
    living = select(trips.c.id).where(trips.c.state.in_(("pending", Outcome.CONFIRMED.value)))
    tripped = select(trips.c.run_id).where(trips.c.state.in_(("pending", Outcome.CONFIRMED.value)))
    confirmed = exists().where(verdicts.c.run_id == runs.c.id, verdicts.c.outcome == Outcome.CONFIRMED.value)
    return or_(
        runs.c.id.in_(tripped),
        and_(runs.c.trip_id.is_not(None), runs.c.trip_id.in_(living)),
        confirmed,
    )


def _old_readings(before: datetime) -> ColumnElement[bool]:
    its_runs = select(func.unnest(baselines.c.run_ids).label("id"), baselines.c.id.label("baseline_id")).subquery()
    window: Any = (
        select(runs.c.route, func.min(runs.c.started_at).label("began"), func.max(runs.c.finished_at).label("ended"))
        .join(its_runs, its_runs.c.id == runs.c.id)
        .group_by(its_runs.c.baseline_id, runs.c.route)
        .subquery()
    )
    of_baseline = exists().where(
        window.c.route == organic.c.route, window.c.began <= organic.c.ended_at, window.c.ended >= organic.c.began_at
    )
    of_incident = exists().where(
        runs.c.route == organic.c.route,
        runs.c.finished_at >= organic.c.began_at,
        runs.c.finished_at <= organic.c.ended_at + WINDOW,
        _is_of_an_incident(),
    )
    return and_(organic.c.ended_at < before, not_(of_baseline), not_(of_incident))
