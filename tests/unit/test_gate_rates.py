"""How often a gate is wrong, by simulation of its own decision. Seeded; the noise is that of docs/statistics.md."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from monitor.core.gate import LOOKS, SEVEREST_FIRST, GateReason, paired_reference, take_look
from monitor.core.noise import Noise

if TYPE_CHECKING:
    from monitor.core.noise import Logs

PROMPTS = 24
MAX_DROP = 0.10


def gates(drop: float, trials: int) -> tuple[Counter[GateReason], float]:
    """How gates of one domain end when the candidate has truly lost `drop`, and how many pairs they take on average."""
    generator = np.random.default_rng(2026 + round(drop * 100))
    ended: Counter[GateReason] = Counter()
    pairs = 0
    for _ in range(trials):
        reason, taken = one_gate(drop, generator)
        ended[reason] += 1
        pairs += taken
    return ended, pairs / trials


def one_gate(drop: float, generator: np.random.Generator) -> tuple[GateReason, int]:
    reference, candidate = sides(0.0, generator), sides(drop, generator)
    reason = GateReason.UNDECIDED
    for pairs in LOOKS:
        reason = take_look(candidate[:pairs], paired_reference(reference[:pairs])).reason(MAX_DROP)
        if reason is not GateReason.UNDECIDED:
            return reason, pairs
    return reason, LOOKS[-1]


def sides(drop: float, generator: np.random.Generator) -> list[dict[str, float]]:
    noise, runs = Noise(), LOOKS[-1]
    shocks = noise.shocks((runs,), generator)[:, None]
    logs: Logs = noise.prompts((runs, PROMPTS), generator) + shocks + math.log1p(-drop)
    return [{str(prompt): math.exp(value) for prompt, value in enumerate(run.tolist())} for run in logs]


def test_a_candidate_that_lost_nothing_passes_mostly_after_two_pairs() -> None:
    ended, pairs = gates(0.0, 1500)
    assert ended[GateReason.NO_REGRESSION] / 1500 >= 0.99
    assert ended[GateReason.REGRESSION] == 0
    assert pairs < 2.15


def test_a_candidate_that_lost_fifteen_percent_never_passes() -> None:
    ended, _ = gates(0.15, 4000)
    assert ended[GateReason.NO_REGRESSION] == 0
    assert 0.87 < ended[GateReason.REGRESSION] / 4000 < 0.94


def test_a_candidate_that_lost_twenty_percent_fails() -> None:
    ended, pairs = gates(0.20, 1500)
    assert ended[GateReason.REGRESSION] / 1500 >= 0.98
    assert ended[GateReason.NO_REGRESSION] == 0
    assert pairs < 2.15


@pytest.mark.parametrize(
    ("drop", "passed", "undecided"),
    [(0.03, (0.975, 1.0), (0.0, 0.025)), (0.05, (0.82, 0.91), (0.09, 0.18)), (0.08, (0.17, 0.29), (0.70, 0.83))],
    ids=["3 percent", "5 percent", "8 percent"],
)
def test_a_candidate_that_lost_less_than_it_may_passes_or_is_undecided(
    drop: float, passed: tuple[float, float], undecided: tuple[float, float]
) -> None:
    ended, _ = gates(drop, 1000)
    assert passed[0] <= ended[GateReason.NO_REGRESSION] / 1000 <= passed[1]
    assert undecided[0] <= ended[GateReason.UNDECIDED] / 1000 <= undecided[1]
    assert ended[GateReason.REGRESSION] / 1000 <= 0.005


def test_at_exactly_the_allowed_drop_a_gate_is_wrong_either_way_in_at_most_five_percent() -> None:
    ended, _ = gates(0.10, 1500)
    assert ended[GateReason.NO_REGRESSION] / 1500 <= 0.05
    assert ended[GateReason.REGRESSION] / 1500 <= 0.05
    assert ended[GateReason.UNDECIDED] / 1500 >= 0.92


ELEVEN = 11
"""Domains that come with Specwatch. Their runs are minutes apart, so each has shocks of its own."""


def whole_gates(drop: float, trials: int) -> Counter[GateReason]:
    """How gates of eleven domains end when the candidate has truly lost `drop` in each of them."""
    generator = np.random.default_rng(1100 + round(drop * 100))
    ended: Counter[GateReason] = Counter()
    for _ in range(trials):
        reasons = {one_gate(drop, generator)[0] for _ in range(ELEVEN)}
        ended[min(reasons, key=lambda reason: SEVEREST_FIRST.index(reason.decision))] += 1
    return ended


def test_eleven_domains_that_lost_nothing_pass_together() -> None:
    assert whole_gates(0.0, 1000)[GateReason.NO_REGRESSION] / 1000 >= 0.99


def test_eleven_domains_that_lost_fifteen_percent_never_pass_and_fail() -> None:
    ended = whole_gates(0.15, 500)
    assert ended[GateReason.NO_REGRESSION] == 0
    assert ended[GateReason.REGRESSION] / 500 >= 0.99
