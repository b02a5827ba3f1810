"""How a route's domain stands: one word from its latest runs and verdicts. Pure; nothing known is never `ok`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core import stale
from monitor.core.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def standing(
    *,
    incidents: Collection[str],
    valid_run: Mapping[str, Any] | None,
    invalid_run: Mapping[str, Any] | None,
    verdicts: Sequence[Mapping[str, Any]],
) -> str:
    """`INCIDENT`, `STALE`, why the newest run is invalid, `not judged`, `tripped` or `ok`.

    `incidents`: the kinds of those that are open and that it is broken in; `STALE` where all that is known is that it
    is not measured. The runs are the latest valid and the latest invalid one, as documents; `verdicts` are those of the
    valid one. `ok` only where some rule judged the newest run and none tripped.
    """
    if incidents:
        return "STALE" if set(incidents) == {stale.RULE} else "INCIDENT"
    if invalid_run is not None and (valid_run is None or invalid_run["id"] > valid_run["id"]):
        return str(invalid_run["invalid_reason"])
    outcomes = {verdict["outcome"] for verdict in verdicts}
    if Outcome.TRIPPED in outcomes or Outcome.CONFIRMED in outcomes:
        return "tripped"
    # A floor is no baseline: where a rule with a drop could not judge, a run above the floor is not called ok.
    floors = [verdict.get("below") is not None or verdict.get("break_even") is not None for verdict in verdicts]
    relative = {verdict["outcome"] for verdict, floor in zip(verdicts, floors, strict=True) if not floor}
    return "ok" if (relative or outcomes) - {Outcome.INVALID} else "not judged"


def worst_change(verdicts: Sequence[Mapping[str, Any]]) -> float | None:
    """The largest fall any rule saw, as a fraction of the baseline; None where no rule could judge."""
    return min((verdict["change"] for verdict in verdicts if verdict["change"] is not None), default=None)
