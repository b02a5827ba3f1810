"""A gate that passed, promoted: its candidate's runs kept, proposed as the next baselines, and the bump announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core.gate import Decision
from monitor.core.promotion import announced
from monitor.errors import UsageError
from monitor.service.bumps import announce
from monitor.store import baselines, gate_requests, gates, identities, runs, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.routes import Route
    from monitor.core.gate_verdict import GateVerdict
    from monitor.core.promotion import Promotion
    from monitor.core.records import Run


class Promoting:
    """A gate of the route that is measured and then ends; `candidate_runs` are those that it measured so far."""

    def __init__(self, route: Route, replicas: Callable[[], Sequence[str]]) -> None:
        self._route = route
        self._replicas = replicas
        self.candidate_runs: list[Run] = []

    def finish(self, connection: Connection, gate_id: int, verdict: GateVerdict, now: datetime) -> bool:
        """Keeps the verdict, and promotes where that was asked for and it is a pass. False: it had ended before.

        Guarantee: with the connection's transaction, all of it or nothing.
        """
        if not gate_requests.finish(connection, gate_id, verdict.as_dict(), verdict.finished_at):
            return False
        if verdict.promotion is not None and verdict.decision is Decision.PASS:
            gates.set_promoted(connection, gate_id, self._promote(connection, gate_id, verdict, verdict.promotion, now))
        return True

    def _promote(
        self, connection: Connection, gate_id: int, verdict: GateVerdict, promotion: Promotion, now: datetime
    ) -> dict[str, Any]:
        candidate = verdict.candidate.identity
        assert candidate is not None, "a candidate that passed was seen"
        slots.lock_route(connection, self._route.name)  # before rows that whoever records a run writes under it
        proposed, left_out = _propose(connection, gate_id, self.candidate_runs, promotion.by, now)
        what = announced(verdict.reference.identity, candidate)
        # Another candidate of the same pipeline or change request is another bump.
        shown = candidate.fingerprint or f"identity {identities.store_identity(connection, candidate, now)}"
        announcement, _ = announce(
            connection,
            self._route,
            self._replicas(),
            what,
            promotion.by,
            now,
            note=f"gate {gate_id} passed",
            link=promotion.link,
            key=f"{promotion.link or f'gate {gate_id}'} {shown}",
        )
        return promotion.done(announcement, proposed, left_out)


def _propose(
    connection: Connection, gate_id: int, candidate_runs: Sequence[Run], by: str, now: datetime
) -> tuple[list[dict[str, Any]], list[str]]:
    """An unapproved baseline of each domain from all of its runs, and why a domain has none."""
    by_domain: dict[str, list[int]] = {}
    for number, run in enumerate(candidate_runs, 1):
        run_id = runs.store_run(connection, f"gate {gate_id} run {number}", run)
        assert run_id is not None, "a gate is kept once"
        by_domain.setdefault(run.domain, []).append(run_id)
    proposed, left_out = [], []
    for domain, run_ids in by_domain.items():
        try:
            baseline_id = baselines.create_baseline(connection, run_ids, by, now)
        except UsageError as error:  # refused before anything is written
            left_out.append(f"no baseline of {domain}: {error}")
        else:
            proposed.append({"domain": domain, "id": baseline_id, "run_ids": run_ids})
    return proposed, left_out
