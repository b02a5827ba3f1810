"""What `serve` tells about runs while it works: a line each, and a trouble once however many runs it costs.

Troubles are told apart by route, replica and invalid reason. One is told when it begins, at most hourly while it lasts,
and when a domain that had it is measured again: a replica that is away is two lines, not one per domain and period.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import clock
from monitor.config.units import format_duration
from monitor.core import format as shown
from monitor.core.judge import Outcome
from monitor.core.stale import Measured
from monitor.service.budget import runs_per_hour
from monitor.service.complaint import Reminders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from monitor.config.routes import Route
    from monitor.core.records import Run
    from monitor.service.case import Recorded

logger = logging.getLogger(__name__)

EVERY_RUN_BELOW_PER_HOUR = 3600
"""Up to this pace each run has its line; of a faster fleet those have one that ended otherwise than the run before."""
_NUMBER = re.compile(r"\d+(\.\d+)?")


def run_line(run: Run, recorded: Recorded) -> str:
    """The run in one line, with what it led to."""
    notes = []
    if recorded.baseline_id is not None:
        notes.append(f"baseline {recorded.baseline_id} approved")
    if recorded.bump_id is not None:
        notes.append(f"bump {recorded.bump_id}: what is running has changed")
    return shown.run_line(_document(run, recorded), [verdict.as_dict() for _, verdict in recorded.verdicts], notes)


def _document(run: Run, recorded: Recorded) -> dict[str, Any]:
    made = {"id": recorded.run_id, "route": run.route, "reason": run.reason.value, "invalid_reason": run.invalid_reason}
    return {**recorded.figures.as_dict(), **made}


@dataclass
class _Trouble:
    """`since`: when its replica was last measured, by its first domain; before any was, its first run."""

    since: datetime
    domains: set[str] = field(default_factory=set)
    runs: int = 0


class RunLog:
    """Says on the log what is news about each run."""

    def __init__(self, routes: Iterable[Route], now: Callable[[], datetime]) -> None:
        self.every_run = runs_per_hour(routes) <= EVERY_RUN_BELOW_PER_HOUR
        self.now = now
        self._outcomes: dict[tuple[str, str], list[str]] = {}
        self._troubles: dict[tuple[str, str, str], _Trouble] = {}
        self._reminders = Reminders()

    def tell(self, run: Run, recorded: Recorded) -> None:
        """To be called once for every recorded run, in their order."""
        outcomes = [run.invalid_reason or "", *(verdict.outcome.value for _, verdict in recorded.verdicts)]
        is_news = self._outcomes.get((run.route, run.domain)) != outcomes or recorded.bump_id or recorded.transitions
        self._outcomes[run.route, run.domain] = outcomes
        if run.invalid_reason is not None:
            self._raise_trouble(run, recorded, run.invalid_reason)
            return
        self._end_troubles(run)
        if self.every_run or is_news:
            logger.info("%s", run_line(run, recorded))
        for warning in run.warnings:
            self._warn(run, warning)
        for rule, verdict in recorded.verdicts:
            if verdict.outcome is Outcome.INVALID and verdict.break_even is not None:
                self._warn(run, f"rule {rule} cannot judge: {verdict.reason}")

    def _raise_trouble(self, run: Run, recorded: Recorded, reason: str) -> None:
        key = (run.route, run.replica, reason)
        known = recorded.measured or Measured(first_run_at=run.started_at, invalid={reason: 1})
        since = known.last_valid_at or known.first_run_at or run.started_at
        trouble = self._troubles.setdefault(key, _Trouble(since))
        trouble.runs += 1 if run.domain in trouble.domains else known.invalid.get(reason, 1)
        trouble.domains.add(run.domain)
        if self._reminders.due(key, self.now()):
            lasts = f"; no valid run for {self._age(trouble)} now, {trouble.runs} runs" if trouble.runs > 1 else ""
            detail = " ".join((run.invalid_detail or reason).split())
            logger.warning("%s: %s%s (told once an hour)", run_line(run, recorded), detail, lasts)

    def _end_troubles(self, run: Run) -> None:
        for key, trouble in list(self._troubles.items()):
            route, replica, reason = key
            if (route, replica) == (run.route, run.replica) and run.domain in trouble.domains:
                del self._troubles[key]
                self._reminders.forget(key)
                logger.info(
                    "%s can be measured again at %s: no valid run for %s, since %s: %s",
                    *(route, replica, self._age(trouble), clock(trouble.since.isoformat())),
                    f"{trouble.runs} × {reason}",
                )

    def _age(self, trouble: _Trouble) -> str:
        return format_duration(timedelta(seconds=round((self.now() - trouble.since).total_seconds())))

    def _warn(self, run: Run, warning: str) -> None:
        """Whatever its numbers, a warning is told once an hour and replica; one about this machine once an hour."""
        kind = _NUMBER.sub("#", warning)
        where = () if kind.startswith("this machine") else (run.route, run.replica)
        if self._reminders.due((kind, *where), self.now()):
            logger.warning("%s · %s: %s (told once an hour)", run.route, run.domain, warning)
