"""Two runs of one domain beside each other, prompt by prompt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.statistics import RUN_SIGMA_UNKNOWN, PairedEstimate, paired_estimate, pooled_differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.core.judge import Candidate


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
    """How the later run stands against the earlier one.

    `differences`: why they are not comparable, one sentence each; then there is no estimate and no change of a prompt.
    """

    differences: tuple[str, ...]
    estimate: PairedEstimate | None
    prompts: tuple[PromptChange, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of a comparison (docs/json.md)."""
        estimate = self.estimate
        return {
            "comparable": not self.differences,
            "differences": list(self.differences),
            "prompts": len(self.prompts),
            "change": None if estimate is None else estimate.change,
            "change_interval": None if estimate is None else list(estimate.change_interval),
            "per_prompt": [prompt.as_dict() for prompt in sorted(self.prompts, key=lambda prompt: prompt.change)],
        }


def compare(before: Candidate, now: Candidate, domains: Sequence[str]) -> Comparison:
    """`domains`: of the run before and of the one now."""
    differences = [f"domain {domains[1]} is not {domains[0]}"] if domains[0] != domains[1] else []
    differences += [
        f"run {run.id} is invalid: {run.invalid_reason}" for run in (before, now) if run.invalid_reason is not None
    ]
    differences += [
        sentence.replace("the baseline's", f"run {before.id}'s")
        for sentence in before.comparability.differences(now.comparability)
    ]
    shared = sorted(before.values.keys() & now.values.keys())
    if not differences and len(shared) < 2:
        differences.append(f"they share {len(shared)} prompts with a value, 2 are needed")
    if differences:
        return Comparison(tuple(differences), None, ())
    logs = pooled_differences([now.values], before.values)
    estimate = paired_estimate(logs, RUN_SIGMA_UNKNOWN, baseline_runs=1)
    prompts = (PromptChange(question, before.values[question], now.values[question]) for question in shared)
    return Comparison((), estimate, tuple(prompts))
