"""A count by labels. Pure."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Tally:
    """Counts by one value of each label; what is `known` beforehand is there from the start, at zero.

    A counter that first appears at 1 has no increase that anybody could see.
    """

    def __init__(self, known: Mapping[str, Collection[str]]) -> None:
        self.labels = tuple(known)
        self.counts = dict.fromkeys(product(*known.values()), 0)

    def add(self, *values: str) -> None:
        """One more of these, known or not; a value for each label, in their order."""
        self.counts[values] = self.counts.get(values, 0) + 1

    def with_counts(self, other: Tally) -> Tally:
        """Both in one; they have the same labels and no values in common."""
        found = Tally(dict.fromkeys(self.labels, ()))
        found.counts = {**self.counts, **other.counts}
        return found

    @property
    def total(self) -> int:
        return sum(self.counts.values())
