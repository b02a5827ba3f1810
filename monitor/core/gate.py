"""The sequential decision of a gate: has the candidate lost more than it may, compared prompt by prompt? Pure.

Runs are interleaved, reference then candidate, on the same prompts; after 2, 3, 4 and 5 pairs the interval of the
change is looked at. Wholly above the allowed drop: pass; wholly below: fail; else another pair, and at the end it is
undecided. Error rates are those of docs/statistics.md; GATE_VERSION changes whenever a verdict on equal numbers could.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.statistics import (
    RUN_SIGMA_UNKNOWN,
    BaselineValues,
    baseline_values,
    paired_estimate,
    pooled_differences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GATE_VERSION = 2
LOOKS = (2, 3, 4, 5)
"""Pairs after which it is looked at."""
ALPHA = 0.05
"""Chance of a wrong pass at exactly the allowed drop, and of a wrong fail, each split evenly over the looks."""
LEVEL = 1 - 2 * ALPHA / len(LOOKS)
"""Of the interval of one look: each end is wrong in ALPHA / 4."""
REFERENCES = ("production", "baseline")
"""What a candidate of a route is held against, unless it is the URL of another server."""
MAX_DROP = 0.10
METRICS = ("acceptance_length", "tokens_per_step")


class Decision(enum.StrEnum):
    """What a pipeline is told. Only PASS lets it go on: whatever could not be measured is not a pass."""

    PASS = "pass"  # noqa: S105  (no password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    NOT_MEASURABLE = "not_measurable"


EXIT_CODES = {
    Decision.PASS: 0,
    Decision.FAIL: 10,
    Decision.INCONCLUSIVE: 11,
    Decision.NO_BASELINE: 12,
    Decision.NOT_MEASURABLE: 13,
}
SEVEREST_FIRST = (
    Decision.FAIL,
    Decision.NO_BASELINE,
    Decision.NOT_MEASURABLE,
    Decision.INCONCLUSIVE,
    Decision.PASS,
)
"""A regression that was shown in one domain stands, whatever became of the others."""


class GateReason(enum.StrEnum):
    """The stable word why a gate, or one domain of it, ended as it did."""

    NO_REGRESSION = "no_regression"
    REGRESSION = "regression"
    UNDECIDED = "undecided"
    TIMED_OUT = "timed_out"
    NO_BASELINE = "no_baseline"
    PROMPT_SET_MISMATCH = "prompt_set_mismatch"
    NOT_COMPARABLE = "not_comparable"
    SAME_SERVER = "same_server"
    OTHER_MODEL = "other_model"
    CANDIDATE_NO_SPECULATION = "candidate_no_speculation"
    REFERENCE_NO_SPECULATION = "reference_no_speculation"
    UNREACHABLE = "unreachable"
    CONTAMINATED = "contaminated"
    TOO_FEW_PROMPTS = "too_few_prompts"
    IDENTITY_CHANGED = "identity_changed"
    RUN_INVALID = "run_invalid"
    TOO_SLOW = "too_slow"
    SPEEDUP_UNDECIDED = "speedup_undecided"
    SPEEDUP_INVALID = "speedup_invalid"
    LOSSY = "lossy"
    OUTPUTS_UNDECIDED = "outputs_undecided"
    OUTPUTS_UNKNOWN = "outputs_unknown"
    TWIN_SPECULATES = "twin_speculates"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"

    @property
    def decision(self) -> Decision:
        return _DECISIONS.get(self, Decision.NOT_MEASURABLE)


_DECISIONS = {
    GateReason.NO_REGRESSION: Decision.PASS,
    GateReason.REGRESSION: Decision.FAIL,
    GateReason.TOO_SLOW: Decision.FAIL,
    GateReason.LOSSY: Decision.FAIL,
    GateReason.SPEEDUP_UNDECIDED: Decision.INCONCLUSIVE,
    GateReason.OUTPUTS_UNDECIDED: Decision.INCONCLUSIVE,
    GateReason.UNDECIDED: Decision.INCONCLUSIVE,
    GateReason.TIMED_OUT: Decision.INCONCLUSIVE,
    GateReason.INTERRUPTED: Decision.INCONCLUSIVE,
    GateReason.CANCELLED: Decision.INCONCLUSIVE,
    GateReason.NO_BASELINE: Decision.NO_BASELINE,
    GateReason.PROMPT_SET_MISMATCH: Decision.NO_BASELINE,
    GateReason.NOT_COMPARABLE: Decision.NO_BASELINE,
}


@dataclass(frozen=True)
class Look:
    """The change after `pairs` pairs over `prompts` shared prompts: natural-log ratio, its error and interval."""

    pairs: int
    prompts: int
    mean: float
    standard_error: float
    half: float

    @property
    def change(self) -> float:
        return math.expm1(self.mean)

    @property
    def change_interval(self) -> tuple[float, float]:
        return math.expm1(self.mean - self.half), math.expm1(self.mean + self.half)

    def reason(self, max_drop: float) -> GateReason:
        """NO_REGRESSION, REGRESSION, or UNDECIDED where the interval holds the allowed drop."""
        low, high = self.change_interval
        if low > -max_drop:
            return GateReason.NO_REGRESSION
        return GateReason.REGRESSION if high < -max_drop else GateReason.UNDECIDED

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of a look (docs/json.md)."""
        return {
            "pairs": self.pairs,
            "prompts": self.prompts,
            "ratio": math.exp(self.mean),
            "change": self.change,
            "change_interval": list(self.change_interval),
            "standard_error": self.standard_error,
        }


def paired_reference(runs: Sequence[Mapping[str, float]]) -> BaselineValues:
    """What the reference's runs of the gate are worth as a baseline: their own spread is too few runs' to be known."""
    found = baseline_values(runs)
    return BaselineValues(found.values, found.spreads, RUN_SIGMA_UNKNOWN, found.runs)


def shared_prompts(candidate: Sequence[Mapping[str, float]], reference: BaselineValues) -> int:
    """How many prompts have a value on both sides."""
    return sum(any(question in run for run in candidate) for question in reference.values)


def take_look(candidate: Sequence[Mapping[str, float]], reference: BaselineValues) -> Look:
    """The candidate's runs so far against the reference, per prompt. Raises ValueError under two shared prompts."""
    differences = pooled_differences(candidate, reference.values)
    found = paired_estimate(differences, reference.run_sigma, reference.runs, len(candidate))
    return _look(len(candidate), found.n, found.mean, found.standard_error)


def mixed_look(looks: Mapping[str, Look], weights: Mapping[str, float]) -> Look | None:
    """The route's own change: the mean of its domains' by their weights, whose errors are independent.

    None when a domain of the mix has no look: a route half measured has no figure.
    """
    if not weights or any(domain not in looks for domain in weights):
        return None
    total = sum(weights.values())
    shares = [(weight / total, looks[domain]) for domain, weight in weights.items()]
    mean = sum(share * look.mean for share, look in shares)
    error = math.sqrt(sum((share * look.standard_error) ** 2 for share, look in shares))
    return _look(min(look.pairs for _, look in shares), min(look.prompts for _, look in shares), mean, error)


def _look(pairs: int, prompts: int, mean: float, standard_error: float) -> Look:
    from scipy.special import stdtrit

    half = float(stdtrit(prompts - 1, 1 - ALPHA / len(LOOKS))) * standard_error
    return Look(pairs, prompts, mean, standard_error, half)
