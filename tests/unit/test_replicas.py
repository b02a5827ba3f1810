"""Which replica differs: only one that lies apart from the others both before and after it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from monitor.core.format import replica_difference_text
from monitor.core.replicas import ReplicaDifference, ReplicaRun, differing_replica
from tests.factories import START

PROMPTS = [1.6 + 0.05 * number for number in range(24)]


def rounds(*lengths: tuple[str, float]) -> list[ReplicaRun]:
    """Runs in this order in time: a replica's name, and what every prompt's acceptance length is times."""
    return [
        ReplicaRun(
            number,
            f"http://{name}",
            START + number * timedelta(minutes=40),
            {f"q{question}": length * factor for question, length in enumerate(PROMPTS)},
        )
        for number, (name, factor) in enumerate(lengths, start=1)
    ]


def differing(*lengths: tuple[str, float]) -> ReplicaDifference | None:
    return differing_replica(rounds(*lengths), "request")


def test_the_replica_apart_from_those_before_and_after_it_differs() -> None:
    found = differing(("a", 1.0), ("b", 0.8), ("c", 1.0), ("a", 1.0))
    assert found is not None
    assert (found.replica, found.run_id, found.others) == ("http://b", 2, ("http://a", "http://c"))
    assert found.other_run_ids == (1, 3, 4)
    assert found.estimate.change == pytest.approx(-0.2)
    assert found.as_dict()["source"] == "request"


def test_a_higher_replica_differs_too() -> None:
    found = differing(("a", 1.0), ("b", 1.25), ("c", 1.0), ("a", 1.0))
    assert found is not None
    assert (found.replica, found.estimate.change) == ("http://b", pytest.approx(0.25))


def test_of_two_replicas_that_differ_the_lower_one_is_named() -> None:
    found = differing(("a", 1.0), ("b", 0.8), ("a", 1.0), ("b", 0.8))
    assert found is not None
    assert (found.replica, found.others, found.estimate.change) == ("http://b", ("http://a",), pytest.approx(-0.2))


@pytest.mark.parametrize(
    "lengths",
    [
        [("a", 1.0), ("b", 1.0), ("c", 1.0), ("a", 1.0)],
        [("a", 1.0), ("b", 1.0), ("c", 0.8), ("a", 0.8), ("b", 0.8)],
        [("a", 1.0), ("b", 1.0), ("c", 1.0), ("a", 0.8)],
        [("a", 1.0), ("b", 0.97), ("c", 1.0), ("a", 1.0)],
        [("a", 0.8), ("a", 0.8)],
        [],
    ],
    ids=["all alike", "all fell", "just fell, and nobody else was looked at", "too little", "one replica", "none"],
)
def test_where_it_cannot_be_told_no_replica_differs(lengths: list[tuple[str, float]]) -> None:
    assert differing(*lengths) is None


def test_a_replica_that_has_left_the_rotation_is_named_no_more() -> None:
    before = [("a", 1.0), ("b", 0.8), ("c", 1.0), ("a", 1.0)]
    assert differing(*before) is not None
    assert differing(*before, ("c", 1.0)) is not None
    assert differing(*before, ("c", 1.0), ("a", 1.0)) is None


def test_a_replica_that_has_come_back_differs_no_more() -> None:
    before = [("a", 1.0), ("b", 0.8), ("c", 1.0)]
    assert differing(*before, ("b", 0.8)) is not None
    assert differing(*before, ("b", 1.0)) is None


def test_too_few_shared_prompts_tell_nothing() -> None:
    runs = [
        ReplicaRun(run.id, run.replica, run.started_at, dict(list(run.values.items())[:11]))
        for run in rounds(("a", 1.0), ("b", 0.8), ("a", 1.0))
    ]
    assert differing_replica(runs, "request") is None


def test_replicas_that_are_alike_are_seldom_said_to_differ() -> None:
    """Run-to-run spread of 1.5 % and 8 % per prompt, three replicas, three rounds: 1,000 looks."""
    chance = random.Random(7)
    false = 0
    for _ in range(1000):
        runs = []
        for run in rounds(*[(name, 1.0) for name in "abc" * 3]):
            shift = chance.gauss(0, 0.015)
            values = {q: value * (1 + shift + chance.gauss(0, 0.08)) for q, value in run.values.items()}
            runs.append(ReplicaRun(run.id, run.replica, run.started_at, values))
        false += differing_replica(runs, "request") is not None
    assert false <= 3


def test_a_difference_says_who_how_much_and_by_how_many_others() -> None:
    found = differing(("a", 1.0), ("b", 0.8), ("c", 1.0), ("a", 1.0))
    assert found is not None
    assert replica_difference_text(found.as_dict()) == (
        "only http://b: -20.0% (95 % interval -22.9% to -17.0%) against 2 other replicas, "
        "over 24 prompts, source request"
    )
