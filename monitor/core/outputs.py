"""Whether greedy answers to the same prompt are the same: losslessness, and what a change of them points at. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from monitor.core.records import Sample

UNCHANGED_LIMIT_RATIO = 0.4
"""Up to this share of changed outputs the target is taken to be the same: near-ties of 16-bit arithmetic flip some when
the batch has another shape. A real server flipped 5 of 18 between two batch sizes and 3 of 12 at another K; were that
the share of all prompts, of ten runs of 24 prompts nine would be under this."""
CHANGED_LIMIT_RATIO = 0.6
"""From this share on the target is taken to be another. A real target with 3 percent of noise on its weights changed 16
or 17 of 24 sums, and every other answer."""
MIN_PROMPTS = 8
"""With fewer prompts to compare, outputs point at nothing."""


@dataclass(frozen=True)
class Agreement:
    """How many of the prompts compared were answered the same twice, and where the others part.

    `first_differences`: token positions, from 0, of the first difference of each other pair, sorted; of those pairs
    only whose token ids are both known. `by_prompt`: of each prompt how often the same, of how often compared.
    """

    same: int
    compared: int
    first_differences: tuple[int, ...] = ()
    by_prompt: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of an agreement (docs/json.md)."""
        return {
            "same": self.same,
            "compared": self.compared,
            "share": self.same / self.compared if self.compared else None,
            "first_differences": list(self.first_differences),
        }


def agreement(pairs: Iterable[tuple[Sequence[Sample], Sequence[Sample]]]) -> Agreement:
    """Over pairs of passes, prompt by prompt; prompts without a hash on either side are not compared."""
    by_prompt: dict[str, tuple[int, int]] = {}
    differences = []
    for one, other in pairs:
        theirs = {sample.question_id: sample for sample in other if sample.output_hash is not None}
        for ours in one:
            found = theirs.get(ours.question_id)
            if ours.output_hash is None or found is None:
                continue
            same, compared = by_prompt.get(ours.question_id, (0, 0))
            is_same = ours.output_hash == found.output_hash
            by_prompt[ours.question_id] = (same + is_same, compared + 1)
            if not is_same and ours.output_ids is not None and found.output_ids is not None:
                differences.append(_first_difference(ours.output_ids, found.output_ids))
    same, compared = (sum(counts) for counts in zip(*by_prompt.values(), strict=True)) if by_prompt else (0, 0)
    return Agreement(same, compared, tuple(sorted(differences)), by_prompt)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The end of the shorter one when that is how the other begins."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (ours, theirs) in pairs if ours != theirs), min(len(one), len(other)))


@dataclass(frozen=True)
class Outputs:
    """Greedy outputs of the replica beside those of its plain twin, and of the twin beside the twin's own, repeated.

    Speculation is lossless as far as the first is no lower than the second: near-ties flip outputs of both.
    """

    replica_and_twin: Agreement
    twin_and_itself: Agreement

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of it (docs/json.md)."""
        return {
            "replica_and_twin": self.replica_and_twin.as_dict(),
            "twin_and_itself": self.twin_and_itself.as_dict(),
        }


@dataclass(frozen=True)
class Changes:
    """Prompts whose output is none of those that the baseline's runs gave, of all that can be compared.

    `varying`: share of the outputs of the baseline's runs that only one of them gave, which is how many another run of
    the same target is expected to change (Good and Turing's estimate); 0 where the baseline has one run.
    """

    changed: int
    compared: int
    varying: float = 0.0

    @property
    def points_at(self) -> str | None:
        """`drafter`, `target`, or None when the share is not clear, outputs vary by themselves, or prompts are few."""
        if self.compared < MIN_PROMPTS or self.varying > UNCHANGED_LIMIT_RATIO:
            return None
        share = self.changed / self.compared
        if share <= UNCHANGED_LIMIT_RATIO:
            return "drafter"
        return "target" if share >= CHANGED_LIMIT_RATIO else None

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of it (docs/json.md)."""
        return {
            "changed": self.changed,
            "compared": self.compared,
            "varying": self.varying,
            "points_at": self.points_at,
        }


def changes(runs: Iterable[Iterable[Sample]], before: Mapping[str, Mapping[str, int]]) -> Changes | None:
    """Of the runs' valid samples against how often each hash was seen before, by question; None with none to compare.

    A prompt of several runs has changed where most of its outputs have: the same flips of near-ties are not counted
    once for every run.
    """
    found: dict[str, list[bool]] = {}
    for samples in runs:
        for sample in samples:
            if sample.valid and sample.output_hash is not None and (known := before.get(sample.question_id)):
                found.setdefault(sample.question_id, []).append(sample.output_hash not in known)
    if not found:
        return None
    changed = sum(2 * sum(other) > len(other) for other in found.values())
    return Changes(changed, len(found), _varying([before[question] for question in found]))


def _varying(seen: Iterable[Mapping[str, int]]) -> float:
    """Share of outputs that were seen once, of the questions that were asked more than once."""
    repeated = [times for one in seen for times in one.values() if sum(one.values()) > 1]
    return repeated.count(1) / sum(repeated) if repeated else 0.0
