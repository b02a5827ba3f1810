"""Greedy outputs beside each other: how many agree, where others part, and what a change points at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.core.outputs import Agreement, Changes, agreement, changes
from tests.factories import make_sample

if TYPE_CHECKING:
    from monitor.core.records import Sample


def answers(**outputs: tuple[int, ...] | None) -> list[Sample]:
    """One sample per question with these token ids, and a hash unless there are none."""
    return [
        make_sample(question, output_ids=ids, output_hash=None if ids is None else str(hash(ids)))
        for question, ids in outputs.items()
    ]


def test_prompts_agree_where_hashes_do_and_others_part_at_the_first_other_token() -> None:
    one = answers(a=(1, 2, 3), b=(1, 2, 3), c=(1, 2, 3), d=(5,))
    other = answers(a=(1, 2, 3), b=(1, 9, 3), c=(1, 2), d=(6,))
    assert agreement([(one, other)]) == Agreement(1, 4, (0, 1, 2))


def test_answers_without_token_ids_on_either_side_are_not_compared() -> None:
    one, other = answers(a=(1,), b=None, c=(3,)), answers(a=None, b=(2,), c=(3,))
    assert agreement([(one, other)]) == Agreement(1, 1)
    assert agreement([(one[:2], other)]).as_dict() == {
        "same": 0,
        "compared": 0,
        "share": None,
        "first_differences": [],
    }


def test_every_pair_of_passes_counts() -> None:
    one, other = answers(a=(1,), b=(2,)), answers(a=(1,), b=(3,))
    assert agreement([(one, one), (one, other)]) == Agreement(3, 4, (0,))


def test_an_output_is_changed_when_no_run_of_the_baseline_gave_it() -> None:
    run = [make_sample("a", output_hash="x"), make_sample("b", output_hash="y"), make_sample("c", output_hash="z")]
    assert changes([run], {"a": {"w": 3, "x": 2}, "b": {"w": 5}}) == Changes(1, 2)


def test_invalid_samples_and_samples_without_a_hash_are_left_out() -> None:
    run = [make_sample("a", output_hash="x", invalid_reason="too_short"), make_sample("b", output_hash=None)]
    assert changes([run], {"a": {"w": 5}, "b": {"w": 5}}) is None


def test_a_prompt_of_several_runs_is_counted_once_and_is_changed_where_most_of_its_outputs_are() -> None:
    other, known = make_sample("a", output_hash="x"), make_sample("a", output_hash="w")
    before = {"a": {"w": 5}}
    assert changes([[other], [other], [known]], before) == Changes(1, 1)
    assert changes([[other], [known], [known]], before) == Changes(0, 1)
    assert changes([[other], [known]], before) == Changes(0, 1)


def test_what_only_one_run_of_the_baseline_gave_says_how_many_outputs_vary_by_themselves() -> None:
    run = [make_sample("a", output_hash="x"), make_sample("b", output_hash="y")]
    assert changes([run], {"a": {"v": 1, "x": 4}, "b": {"v": 1, "w": 1, "y": 3}}) == Changes(0, 2, 0.3)
    assert changes([run], {"a": {"v": 1}, "b": {"v": 1}}) == Changes(2, 2, 0.0), "of one run nothing is known"


def test_outputs_that_vary_by_themselves_point_at_nothing() -> None:
    assert Changes(24, 24, 0.4).points_at == "target"
    assert Changes(24, 24, 0.41).points_at is None
    assert Changes(2, 24, 0.41).points_at is None


@pytest.mark.parametrize(
    ("changed", "compared", "points_at"),
    [
        (0, 24, "drafter"),
        (9, 24, "drafter"),
        (10, 24, None),
        (14, 24, None),
        (15, 24, "target"),
        (24, 24, "target"),
        (7, 7, None),
        (0, 7, None),
    ],
)
def test_outputs_point_at_something_only_when_their_share_is_clear(
    changed: int, compared: int, points_at: str | None
) -> None:
    assert Changes(changed, compared).points_at == points_at
