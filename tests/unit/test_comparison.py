"""Two sides of one domain beside each other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from monitor.core.comparison import Pool, Side, alike, compare, pooled_values
from monitor.core.statistics import RUN_SIGMA_UNKNOWN
from tests.factories import COMPARABILITY

OTHER_K = replace(COMPARABILITY, k=5)


def pool(*run_ids: int, **changes: Any) -> Pool:
    return Pool(**{"comparability": COMPARABILITY, "run_ids": run_ids or (1,), **changes})


def side(*lengths: float, label: str = "run 1", prompts: int = 24, **changes: Any) -> Side:
    """A run for each length, of which every prompt has it."""
    runs = [{f"q{number:02}": length for number in range(prompts)} for length in lengths]
    return Side(label, pool(**changes), pooled_values(runs))


def test_the_change_is_paired_by_prompt_and_has_an_interval() -> None:
    found = compare(side(2.0), side(1.8, label="run 2"))
    assert found.estimate is not None
    assert found.estimate.change == pytest.approx(-0.1)
    low, high = found.estimate.change_interval
    assert low < -0.1 < high < 0
    document = found.as_dict()
    assert document["comparable"]
    assert document["value"] / document["value_before"] == pytest.approx(0.9)


def test_the_prompt_that_fell_most_is_first() -> None:
    now = {f"q{number:02}": 2.4 for number in range(23)} | {"q23": 1.2}
    first = compare(side(2.4), Side("run 2", pool(2), pooled_values([now]))).as_dict()["per_prompt"][0]
    assert first == pytest.approx({"question_id": "q23", "before": 2.4, "now": 1.2, "change": -0.5})


def test_prompts_that_only_one_side_has_do_not_count() -> None:
    assert compare(side(2.4), side(2.4, prompts=20)).as_dict()["prompts"] == 20


def test_more_runs_of_a_side_narrow_the_interval_and_five_tell_their_own_spread() -> None:
    def width(before: Side, now: Side) -> float:
        found = compare(before, now).estimate
        assert found is not None
        return found.high - found.low

    assert width(side(2.0, 2.0), side(1.8, 1.8)) < width(side(2.0), side(1.8))
    assert side(2.0, 2.2, 2.0, 2.2).values.run_sigma == RUN_SIGMA_UNKNOWN  # type: ignore[union-attr]
    spread = side(2.0, 2.2, 2.0, 2.2, 2.0)
    assert spread.values.run_sigma == pytest.approx(math.log(1.1) / 2, rel=0.15)  # type: ignore[union-attr]
    assert width(spread, side(1.8)) > width(side(2.1, 2.1, 2.1, 2.1, 2.1), side(1.8))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (side(2.4, label="run 2", invalid_reason="busy"), "run 2 is invalid: busy"),
        (side(2.4, label="run 2", comparability=OTHER_K), "K 5 is not yesterday's 3"),
        (Side("run 2", pool(2), pooled_values([{"q00": 2.0}])), "they share 1 prompts with a value, 2 are needed"),
        (Side("run 2", pool(2), None), "no prompt of run 2 has a value; its samples may have been removed"),
    ],
)
def test_sides_that_are_not_comparable_say_why_and_have_no_change(now: Side, why: str) -> None:
    document = compare(side(2.4, label="yesterday"), now).as_dict()
    assert (document["comparable"], document["differences"]) == (False, [why])
    assert (document["change"], document["value"], document["per_prompt"]) == (None, None, [])


def test_of_several_pools_the_comparable_ones_with_most_runs_are_compared() -> None:
    many, few, lone = pool(9, 8, 7, comparability=OTHER_K), pool(6, 5), pool(4)
    assert alike([many, few], [lone]) == (few, lone)
    assert alike([many, few], [lone, pool(3, 2, comparability=OTHER_K)])[0] is many
    assert alike([many], [lone]) == (many, lone)


def test_what_is_left_out_says_what_tells_it_from_what_is_kept() -> None:
    kept = pool(2, conditions=(("method", "eagle"), ("drafter", "a")))
    other = pool(1, comparability=OTHER_K, conditions=(("method", "eagle"), ("drafter", "b")))
    assert other.left_out_because(kept) == "K 5 is not 3; drafter b is not a"
