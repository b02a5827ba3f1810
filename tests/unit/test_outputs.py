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
    assert changes([run], {"a": {"w", "x"}, "b": {"w"}}) == Changes(1, 2)


def test_invalid_samples_and_samples_without_a_hash_are_left_out() -> None:
    run = [make_sample("a", output_hash="x", invalid_reason="too_short"), make_sample("b", output_hash=None)]
    assert changes([run], {"a": {"w"}, "b": {"w"}}) is None


def test_a_prompt_of_several_runs_is_counted_once_and_is_changed_where_most_of_its_outputs_are() -> None:
    other, known = make_sample("a", output_hash="x"), make_sample("a", output_hash="w")
    before = {"a": {"w"}}
    assert changes([[other], [other], [known]], before) == Changes(1, 1)
    assert changes([[other], [known], [known]], before) == Changes(0, 1)
    assert changes([[other], [known]], before) == Changes(0, 1)


@pytest.mark.parametrize(
    ("changed", "compared", "points_at"),
    [
        (0, 24, "drafter"),
        (6, 24, "drafter"),
        (7, 24, None),
        (17, 24, None),
        (18, 24, "target"),
        (24, 24, "target"),
        (7, 7, None),
        (0, 7, None),
    ],
)
def test_outputs_point_at_something_only_when_their_share_is_clear(
    changed: int, compared: int, points_at: str | None
) -> None:
    assert Changes(changed, compared).points_at == points_at
