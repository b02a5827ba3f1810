"""What a gate that passed promotes: the bump announced, and the baselines proposed from its runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.bumps import Announced
from monitor.core.format import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Identity

NOTHING_YET = "nothing: only a gate that passed and is kept promotes"
MODEL_FIELDS = ("root", "target", "model")
"""What names the model of an identity, best first: the name that it is served by is the candidate's own."""


@dataclass(frozen=True)
class Promotion:
    """Asked for together with a gate. `by`: who promotes; `link`: the pipeline or change request."""

    by: str
    link: str | None = None

    def pending(self) -> dict[str, Any]:
        """The JSON shape of it (docs/json.md) until the gate has passed and is kept, and for good where it does not."""
        return self._document(None, [], NOTHING_YET)

    def done(
        self, announcement: Mapping[str, Any], proposed: Sequence[Mapping[str, Any]], left_out: Sequence[str]
    ) -> dict[str, Any]:
        """`proposed`: `domain`, `id` and `run_ids` of each baseline. `left_out`: why another domain has none."""
        ids = " ".join(str(one["id"]) for one in proposed)
        follow = f"'specwatch bumps --route {announcement['route']}' follows it"
        told = [f"the bump is announced ({follow}), and {count(len(proposed), 'baseline')} proposed"]
        if proposed:
            told.append(f"'specwatch baseline approve {ids}' approves them once the candidate serves")
        return self._document(announcement, proposed, "; ".join([*told, *left_out]))

    def _document(
        self, announcement: Mapping[str, Any] | None, proposed: Sequence[Mapping[str, Any]], text: str
    ) -> dict[str, Any]:
        return {
            "by": self.by,
            "link": self.link,
            "done": announcement is not None,
            "text": text,
            "announcement": None if announcement is None else dict(announcement),
            "baselines": [dict(one) for one in proposed],
        }


def announced(before: Identity | None, now: Identity) -> Announced:
    """The change from production to the candidate, as an announcement says it: what both show and differ in.

    The candidate's identity goes with it: what passed is this one, and no other.
    """
    changes = {} if before is None else now.changes_from(before)
    model = next((changes[name][1] for name in MODEL_FIELDS if name in changes), None)
    if before is not None and before.root is not None and before.root == now.root:
        model = None  # the same weights under another name
    return Announced(
        model=model,
        drafter=changes["drafter"][1] if "drafter" in changes else None,
        engine_version=changes["version"][1] if "version" in changes else None,
        candidate=now,
    )
