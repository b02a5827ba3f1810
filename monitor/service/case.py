"""One finished run on its way into the store, and what it has led to so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.routes import Route
    from monitor.core.figures import Aggregate
    from monitor.core.incidents import Transition
    from monitor.core.judge import Verdict
    from monitor.core.records import Run
    from monitor.core.stale import Measured


@dataclass
class Recorded:
    """What a run led to, for the log and the process's own metrics. `measured`: of an invalid run, what is known of
    the other runs of its domain on its replica."""

    run_id: int
    figures: Aggregate
    bump_id: int | None = None
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    transitions: list[tuple[int, Transition]] = field(default_factory=list)
    baseline_id: int | None = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Case:
    """A run of a route, within the transaction of `connection`, at the moment `now`."""

    connection: Connection
    route: Route
    run: Run
    recorded: Recorded
    now: datetime
