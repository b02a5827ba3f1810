"""Steps told from running totals of drafts, as some servers send them with every token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from monitor.engines.base import DraftTotals, RequestCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

DOUBTFUL_LIMIT_RATIO = 0.05
"""Share of steps that may hide another one, above which there are no counts."""


class _Step(NamedTuple):
    """What the totals rose by at the first visible token of a step."""

    drafted: int
    accepted: int
    tokens: int


def counts_of(totals: Sequence[DraftTotals]) -> RequestCounts | None:
    """The counts of an answer that came with these totals; None without drafts, or where too many steps are in doubt.

    Drafted tokens rise once in each step that has a draft, and every token of the step is sent with the same totals. A
    step that may hide another is left out.
    """
    rises = [(a, b) for a, b in pairwise([DraftTotals(0, 0, 0), *totals]) if b.drafted > a.drafted]
    steps = [_Step(b.drafted - a.drafted, b.accepted - a.accepted, b.tokens - a.tokens) for a, b in rises]
    clear = _clear(steps)
    if not clear or len(steps) - len(clear) > DOUBTFUL_LIMIT_RATIO * len(steps):
        return None
    by_accepted = Counter(step.accepted for step in clear)
    begun_at = [before.tokens for before, _ in rises] + [totals[-1].tokens]
    return RequestCounts(
        steps=len(clear),
        accepted=sum(step.accepted for step in clear),
        drafted=sum(step.drafted for step in clear),
        histogram=tuple(by_accepted[j] for j in range(max(by_accepted) + 1)),
        decode_steps=len(steps) + _undrafted(steps, begun_at),
    )


def _clear(steps: Sequence[_Step]) -> list[_Step]:
    """Steps that begin right after the one before: no step in between had all of its text held back.

    Servers count tokens one by one, or those of a step at once.
    """
    one_by_one = any(step.accepted and step.tokens == 1 for step in steps)
    return [step for step in steps if step.tokens == (1 if one_by_one else step.accepted + 1)]


def _undrafted(steps: Sequence[_Step], begun_at: Sequence[int]) -> int:
    """Decode steps without a draft: each made one token that is neither the prefill's nor of a step with a draft.

    `begun_at`: the tokens there were when each step began, and at the end, which may have cut the last step short.
    """
    between = [end - begin - step.accepted - 1 for step, (begin, end) in zip(steps, pairwise(begun_at), strict=True)]
    return sum(max(0, tokens) for tokens in (begun_at[0] - 1, *between))
