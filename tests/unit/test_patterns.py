"""Load and context length as causes: what counts as more than the baseline had, and how sure the evidence must be."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from monitor.core.cause import Cause, Strength
from monitor.core.evidence import Evidence, Load, PastRun, PromptMove
from monitor.core.patterns import context_cause, load_cause
from tests.factories import REPLICA, START

CALM, BUSY = Load(running=1), Load(running=12)
BASELINE = (
    Load(running=1, waiting=1, kv_cache_usage=0.5, preemptions=0),
    Load(running=4, waiting=0, kv_cache_usage=0.1, preemptions=2),
)


def runs(*seen: tuple[Load, float]) -> tuple[PastRun, ...]:
    """Runs at these loads, with these changes, 40 minutes apart."""
    return tuple(
        PastRun(number, REPLICA, START + number * timedelta(minutes=40), 2.4 * (1 + change), change, load=load)
        for number, (load, change) in enumerate(seen, 1)
    )


def by_load(*seen: tuple[Load, float], baseline: tuple[Load, ...] = (CALM,)) -> Cause | None:
    return load_cause(Evidence(change=-0.2, replica=REPLICA, recent=runs(*seen), baseline_loads=baseline))


@pytest.mark.parametrize(
    ("most", "more", "said"),
    [
        (Load(running=10), Load(running=11), "requests running 11, at most 4"),
        (Load(waiting=1), Load(waiting=2), "waiting 2, at most 1"),
        (Load(kv_cache_usage=0.7), Load(kv_cache_usage=0.75), "KV cache use 75%, at most 50%"),
        (Load(preemptions=2), Load(preemptions=3), "preemptions 3, at most 2"),
    ],
)
def test_a_gauge_is_named_from_where_it_is_past_the_highest_of_the_baseline_and_its_margin(
    most: Load, more: Load, said: str
) -> None:
    assert by_load((most, -0.2), baseline=BASELINE) is None
    cause = by_load((more, -0.2), baseline=BASELINE)
    assert cause is not None
    assert cause.strength is Strength.WEAK
    assert cause.sentence == f"{said} in the baseline's runs; no run without that load since to compare with"


def test_a_gauge_that_one_side_does_not_know_is_no_evidence() -> None:
    assert by_load((Load(waiting=9), -0.2), baseline=(Load(running=1),)) is None
    assert by_load((Load(running=1), -0.2), baseline=(Load(running=1, waiting=0),)) is None
    assert by_load((BUSY, -0.2), baseline=()) is None
    assert by_load(baseline=(CALM,)) is None, "no run is known"


def test_of_several_runs_past_the_baseline_the_load_of_the_newest_is_told() -> None:
    evidence = Evidence(
        change=-0.2,
        replica=REPLICA,
        recent=runs((Load(running=20), -0.2), (Load(running=30), -0.2)),
        run_ids=(1, 2),
        baseline_loads=(CALM,),
    )
    cause = load_cause(evidence)
    assert cause is not None
    assert cause.sentence.startswith("requests running 30, at most 1 in ")


FELL, LEVEL = (BUSY, -0.2), (CALM, -0.01)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([FELL, LEVEL, FELL, LEVEL], "since run 1"),
        ([FELL, LEVEL, LEVEL], None),
        ([FELL, FELL, LEVEL], None),
        # runs at load that held before the first that fell, and a calm one that fell then, are of another time
        (
            [(BUSY, 0.0)] * 3 + [FELL, LEVEL] * 2,
            "since run 4",
        ),
        ([(CALM, -0.2), *[FELL, LEVEL] * 2], "since run 2"),
        # at load they held as a whole; without it one did not hold
        ([FELL, LEVEL, (BUSY, 0.0), (BUSY, 0.0), LEVEL], None),
        ([FELL, (CALM, -0.08), FELL, (CALM, 0.0)], None),
    ],
)
def test_load_is_the_cause_when_runs_at_it_fell_and_since_then_those_without_it_held(
    seen: list[tuple[Load, float]], said: str | None
) -> None:
    cause = by_load(*seen)
    if said is None:
        assert cause is None
        return
    assert cause is not None
    assert cause.strength is Strength.STRONG
    told = f"-20.0% over 2 runs {said}, the others meanwhile -1.0% over 2 runs"
    assert cause.sentence == f"only runs at more load than the baseline's fell: {told}"


def prompts(short: list[float], long: list[float], middle: float = 0.0) -> tuple[PromptMove, ...]:
    """Prompts of which a third is short and a third long, with these natural logs of now ÷ before; any order of ids."""
    logs = [*short, *[middle] * len(short), *long]
    found = [
        PromptMove(f"q{number * 7 % len(logs):02}", 2.4, 2.4 * math.exp(log), prompt_tokens=100 * (number + 1))
        for number, log in enumerate(logs)
    ]
    return tuple(sorted(found, key=lambda move: move.question_id))


def by_context(moves: tuple[PromptMove, ...]) -> Cause | None:
    return context_cause(Evidence(change=-0.2, replica=REPLICA, moves=moves))


@pytest.mark.parametrize(
    ("short", "long", "strength"),
    [
        (0.0, -0.20, Strength.STRONG),
        (-0.10, -0.30, Strength.MODERATE),  # the short ones fell too, a third as much
        (-0.15, -0.28, None),  # less than twice as much
        (0.0, -0.09, None),  # the long ones held
    ],
)
def test_context_length_is_the_cause_when_long_prompts_fell_twice_as_much_as_short_ones(
    short: float, long: float, strength: Strength | None
) -> None:
    cause = by_context(prompts([short] * 8, [long] * 8))
    assert (None if cause is None else cause.strength) is strength


@pytest.mark.parametrize(("number", "named"), [(4, True), (3, False)])
def test_a_third_of_fewer_than_four_prompts_says_nothing(number: int, named: bool) -> None:
    assert (by_context(prompts([0.0] * number, [-0.2] * number)) is not None) is named


@pytest.mark.parametrize(("apart", "named"), [(0.050, True), (0.078, False), (0.110, False)])
def test_long_and_short_prompts_are_told_apart_from_four_standard_errors_on(apart: float, named: bool) -> None:
    """Eight of each; the long ones -0.12 ± `apart`: 5.9, 3.96 and 2.9 standard errors."""
    long = [-0.12 - apart, -0.12 + apart] * 4
    assert (by_context(prompts([0.0] * 8, long)) is not None) is named


def test_prompts_that_all_moved_alike_are_not_taken_to_be_measured_exactly() -> None:
    """Four of each, 0.0555 apart: with a spread of 0.02 in either group 3.9 standard errors."""
    assert by_context(prompts([-0.0545] * 4, [-0.11] * 4)) is None
    assert by_context(prompts([0.0] * 4, [-0.11] * 4)) is not None


def test_prompts_of_unknown_length_are_left_out() -> None:
    known = prompts([0.0] * 8, [-0.3] * 8)
    unknown = tuple(replace(move, prompt_tokens=None, now=0.6) for move in known[:9])
    cause = by_context((*unknown, *known))
    assert cause is not None
    assert cause == by_context(known)
    assert cause.sentence == "8 prompts of 1,700 to 2,400 tokens -25.9%, 8 prompts of 100 to 800 0.0%"
