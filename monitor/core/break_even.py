"""The break-even acceptance length of a stored sweep at the load of a run: with less speculation loses. Pure.

It is modelled: the step times are the sweep's, not those of the run. No server shows its GPU, so a sweep counts
as one of the same GPU only where it was saved for the route.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Document = Mapping[str, Any]

BREAK_EVEN = "break_even"
"""What a rule of alerting.yaml names as its floor."""


@dataclass(frozen=True)
class BreakEven:
    """What a run is held against: `value` tokens per step, `low` the lower end of its 95 % interval.

    `concurrency` is the load it is for. Where no sweep can tell it `problem` says why, and the others are None.
    """

    concurrency: int
    value: float | None = None
    low: float | None = None
    sweep_id: int | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As in a verdict (docs/json.md)."""
        return {"basis": "modelled", "sweep_id": self.sweep_id, "concurrency": self.concurrency, "low": self.low}


def break_even(run: Document, identity: Document, sweeps: Sequence[Document], gpus: int | None) -> BreakEven:
    """Of the newest of the route's own `sweeps` that may stand for this run; they come newest first.

    `gpus`: of one server of the route, None where that is not told.
    """
    at = load_of(run)
    problems = []
    for sweep in sweeps:
        problem = _another(sweep, run, identity, gpus)
        found = None if problem else break_even_at(sweep["points"], at)
        if found is not None:
            return BreakEven(at, *found, sweep["id"])
        problems.append(problem or f"sweep {sweep['id']} has valid points {_range(sweep['points'])}, not at {at}")
    why = problems[0] if problems else "none is saved for it"
    return BreakEven(
        at, problem=f"no sweep of {run['route']}: {why}; save one, see --save and --for of 'specwatch sweep'"
    )


def load_of(run: Document) -> int:
    """Requests at once: the run's own, and those of others that the server showed before it."""
    others = (run.get("regime") or {}).get("running_before")
    return int(run["concurrency"] + round(others or 0))


def is_like(sweep: Document, run: Document, identity: Document) -> bool:
    """Whether step times of the sweep may stand for those of the run: the same model, K and engine."""
    swept = sweep["speculative_identity"]
    k = _k(run, identity)
    return (
        k is not None
        and identity["model"] is not None
        and (swept["model"], swept["k"], swept["engine"]) == (identity["model"], k, identity["engine"])
    )


def break_even_at(points: Sequence[Document], concurrency: int) -> tuple[float, float] | None:
    """(value, lower end of its 95 % interval), linear in the logarithm of the concurrency between two points.

    None beyond them. The interval is that of the point's speedup: both are of the same times.
    """
    known = sorted(
        (point["concurrency"], point["break_even_acceptance_length"], _low(point))
        for point in points
        if point["break_even_acceptance_length"] is not None
    )
    for at, value, low in known:
        if at == concurrency:
            return float(value), float(low)
    for before, after in pairwise(known):
        if before[0] < concurrency < after[0]:
            share = math.log(concurrency / before[0]) / math.log(after[0] / before[0])
            value, low = (float(a + share * (b - a)) for a, b in zip(before[1:], after[1:], strict=True))
            return value, low
    return None


def _low(point: Document) -> float:
    speedup, value = point["speedup"], point["break_even_acceptance_length"]
    return float(value) * math.sqrt(speedup["low"] / speedup["high"])


def _another(sweep: Document, run: Document, identity: Document, gpus: int | None) -> str | None:
    """In what the sweep is not of the same model, K, engine and GPUs; None where it is."""
    swept = sweep["speculative_identity"]
    if not is_like(sweep, run, identity):
        theirs, ours = (
            f"{one['engine']} {one['model']}, K = {k}"
            for one, k in ((swept, swept["k"]), (identity, _k(run, identity)))
        )
        return f"sweep {sweep['id']} is of {theirs} and run {run['id']} of {ours}"
    counts = {"gpus": (sweep["gpus"], gpus)}
    counts["tensor_parallel"] = (swept["tensor_parallel"], identity["tensor_parallel"])
    for name, (then, now) in counts.items():
        if then is not None and now is not None and then != now:
            return f"sweep {sweep['id']} was measured with {name} {then}, and it is {now} now"
    return None


def _k(run: Document, identity: Document) -> int | None:
    found: int | None = run["k"] if run["k"] is not None else identity["k"]
    return found


def _range(points: Sequence[Document]) -> str:
    known = sorted(p["concurrency"] for p in points if p["break_even_acceptance_length"] is not None)
    return f"from concurrency {known[0]} to {known[-1]}" if known else "nowhere"
