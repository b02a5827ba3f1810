"""Two sides of one domain beside each other, prompt by prompt: single runs, pools of runs, or baselines. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from monitor.core.statistics import (
    RUN_SIGMA_UNKNOWN,
    PairedEstimate,
    baseline_values,
    geometric_mean,
    paired_estimate,
    pooled_differences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.judge import Comparability
    from monitor.core.statistics import BaselineValues

RUNS_THAT_TELL = 5
"""From fewer the spread of whole runs is not taken from the side itself, but assumed."""


class SideKind(enum.StrEnum):
    """What a side of a comparison is named by."""

    RUN = "run"
    BASELINE = "baseline"
    GENERATION = "generation"
    IDENTITY = "identity"
    FINGERPRINT = "fingerprint"
    DATES = "dates"


@dataclass(frozen=True)
class SideName:
    """One side as it was asked.

    `number`: of the run, baseline, generation or identity; a generation without one is that in force. `prefix`: of the
    fingerprint. From `since` until before `until`, where they are not None.
    """

    text: str
    kind: SideKind
    number: int | None = None
    prefix: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of what was asked (docs/json.md)."""
        return {
            "asked": self.text,
            "kind": self.kind.value,
            "since": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
        }


@dataclass(frozen=True)
class Pool:
    """Runs of one domain that are comparable with each other; `conditions`, method and drafter, tell runs apart too.

    `run_ids`: newest first. `invalid_reason`: of a single run that was asked for by its number.
    """

    comparability: Comparability
    run_ids: tuple[int, ...]
    conditions: tuple[tuple[str, str | None], ...] = ()
    invalid_reason: str | None = None

    def left_out_because(self, kept: Pool) -> str:
        """What tells these runs from those that were kept."""
        told = [
            sentence.replace("the baseline's ", "") for sentence in kept.comparability.differences(self.comparability)
        ]
        mine = dict(self.conditions)
        told += [f"{name} {mine[name]} is not {value}" for name, value in kept.conditions if mine[name] != value]
        return "; ".join(told)


def alike(before: Sequence[Pool], now: Sequence[Pool]) -> tuple[Pool, Pool]:
    """Of each side the pool that is compared: the comparable pair with most runs on its smaller side, the newest first.

    Where none is comparable, the pools of most runs. Neither side is empty.
    """
    pairs = [(one, other) for one in before for other in now]
    comparable = [pair for pair in pairs if not pair[0].comparability.differences(pair[1].comparability)]
    return max(comparable or pairs, key=lambda pair: (_fewest(pair), _newest(pair)))


def _fewest(pair: tuple[Pool, Pool]) -> int:
    return min(len(pool.run_ids) for pool in pair)


def _newest(pair: tuple[Pool, Pool]) -> int:
    return sum(pool.run_ids[0] for pool in pair)


def pooled_values(runs: Sequence[Mapping[str, float]]) -> BaselineValues:
    """Geometric means per prompt, of which spread_known holds. Raises ValueError for no runs."""
    return spread_known(baseline_values(runs))


def spread_known(found: BaselineValues) -> BaselineValues:
    """The same values; the spread of too few runs to know it is assumed."""
    return found if found.runs >= RUNS_THAT_TELL else replace(found, run_sigma=RUN_SIGMA_UNKNOWN)


@dataclass(frozen=True)
class Side:
    """One side of one domain. `label`: how a sentence names it. `values`: None where no run has any."""

    label: str
    pool: Pool
    values: BaselineValues | None


@dataclass(frozen=True)
class PromptChange:
    """One prompt on both sides; `change` is a fraction."""

    question_id: str
    before: float
    now: float

    @property
    def change(self) -> float:
        return self.now / self.before - 1

    def as_dict(self) -> dict[str, Any]:
        return {"question_id": self.question_id, "before": self.before, "now": self.now, "change": self.change}


@dataclass(frozen=True)
class Comparison:
    """How the later side of a domain stands against the earlier one.

    `differences`: why they are not comparable, one sentence each; then there is no estimate and no change of a prompt.
    """

    differences: tuple[str, ...]
    estimate: PairedEstimate | None = None
    prompts: tuple[PromptChange, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of a comparison (docs/json.md)."""
        estimate = self.estimate
        return {
            "comparable": not self.differences,
            "differences": list(self.differences),
            "prompts": len(self.prompts),
            "value_before": geometric_mean(prompt.before for prompt in self.prompts),
            "value": geometric_mean(prompt.now for prompt in self.prompts),
            "change": None if estimate is None else estimate.change,
            "change_interval": None if estimate is None else list(estimate.change_interval),
            "per_prompt": [prompt.as_dict() for prompt in sorted(self.prompts, key=lambda prompt: prompt.change)],
        }


def compare(before: Side, now: Side) -> Comparison:
    """Paired by prompt; the interval holds the spread of whole runs, known from the side of more runs or assumed."""
    differences = [
        f"{side.label} is invalid: {side.pool.invalid_reason}" for side in (before, now) if side.pool.invalid_reason
    ]
    differences += [
        sentence.replace("the baseline's", f"{before.label}'s")
        for sentence in before.pool.comparability.differences(now.pool.comparability)
    ]
    if differences:
        return Comparison(tuple(differences))
    without = [side.label for side in (before, now) if side.values is None]
    if before.values is None or now.values is None:
        return Comparison((f"no prompt of {' and '.join(without)} has a value; its samples may have been removed",))
    shared = sorted(before.values.values.keys() & now.values.values.keys())
    if len(shared) < 2:
        return Comparison((f"they share {len(shared)} prompts with a value, 2 are needed",))
    logs = pooled_differences([now.values.values], before.values.values)
    known = max(before.values, now.values, key=lambda side: side.runs)
    estimate = paired_estimate(logs, known.run_sigma, before.values.runs, now.values.runs)
    changes = (PromptChange(name, before.values.values[name], now.values.values[name]) for name in shared)
    return Comparison((), estimate, tuple(changes))
