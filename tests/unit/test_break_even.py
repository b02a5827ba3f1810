"""The break-even acceptance length at the load of a run: from the route's own sweeps, or why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.core.break_even import BreakEven, break_even, load_of

IDENTITY = {"engine": "vllm", "model": "m", "k": 3, "tensor_parallel": None}
RUN = {"id": 7, "route": "chat", "concurrency": 4, "k": 3, "regime": {"running_before": 12.0}}
HINT = "; save one, see --save and --for of 'specwatch sweep'"


def sweep(*break_evens: tuple[int, float | None], **changes: Any) -> dict[str, Any]:
    points = [
        {
            "concurrency": at,
            "break_even_acceptance_length": value,
            "speedup": None if value is None else {"ratio": 1.2, "low": 1.0, "high": 1.44},
        }
        for at, value in break_evens
    ]
    document: dict[str, Any] = {"id": 5, "gpus": None, "speculative_identity": dict(IDENTITY), "points": points}
    return {**document, **changes}


def found(*sweeps: dict[str, Any], gpus: int | None = None, **changes: Any) -> BreakEven:
    return break_even({**RUN, **changes}, IDENTITY, sweeps, gpus)


def test_it_is_read_at_the_requests_of_the_run_and_of_everybody_else() -> None:
    assert [load_of({**RUN, "regime": regime}) for regime in (RUN["regime"], {}, {"running_before": None})] == [
        16,
        4,
        4,
    ]
    assert found(sweep((1, 1.1), (4, 1.2), (16, 2.0))) == BreakEven(16, 2.0, pytest.approx(2.0 / 1.2), 5)


def test_between_two_points_value_and_interval_are_linear_in_the_logarithm() -> None:
    between = found(sweep((4, 1.0), (64, 1.4)))
    assert (between.value, between.low) == (pytest.approx(1.2), pytest.approx(1.2 / 1.2))


def test_the_newest_sweep_that_may_stand_for_the_run_is_used() -> None:
    other = {**IDENTITY, "model": "n"}
    sweeps = sweep((16, 1.9), id=9, speculative_identity=other), sweep((16, 1.5), id=8), sweep((16, 1.3), id=7)
    assert (found(*sweeps).value, found(*sweeps).sweep_id) == (1.5, 8)


@pytest.mark.parametrize(
    ("sweeps", "why"),
    [
        ((), "none is saved for it"),
        (
            (sweep((16, 1.5), speculative_identity={**IDENTITY, "k": 5}),),
            "sweep 5 is of vllm m, K = 5 and run 7 of vllm m, K = 3",
        ),
        (
            (sweep((16, 1.5), speculative_identity={**IDENTITY, "engine": "sglang"}),),
            "sweep 5 is of sglang m, K = 3 and run 7 of vllm m, K = 3",
        ),
        ((sweep((16, 1.5), gpus=2),), "sweep 5 was measured with gpus 2, and it is 1 now"),
        ((sweep((1, 1.1), (8, 1.3), (16, None)),), "sweep 5 has valid points from concurrency 1 to 8, not at 16"),
        ((sweep((16, None)),), "sweep 5 has valid points nowhere, not at 16"),
    ],
)
def test_without_a_usable_sweep_it_says_why(sweeps: tuple[dict[str, Any], ...], why: str) -> None:
    assert found(*sweeps, gpus=1) == BreakEven(16, problem=f"no sweep of chat: {why}{HINT}")
