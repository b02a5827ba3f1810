"""An explanation as one document and as lines of text: what moved, or what was looked at in vain. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core.cause import LEVEL
from monitor.core.causes import causes, looked_at
from monitor.core.cost import lost_money

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.evidence import Evidence


def explained(evidence: Evidence, price_per_hour: float | None = None, gpus: int | None = None) -> dict[str, Any]:
    """The one JSON shape of an explanation (docs/json.md); `price_per_hour` is of one GPU."""
    seen, unseen = looked_at(evidence)
    return {
        "moved": evidence.change is None or abs(evidence.change) >= LEVEL,
        "causes": [cause.as_dict() for cause in causes(evidence)],
        "looked_at": seen,
        "not_known": unseen,
        "organic": None if evidence.organic is None else evidence.organic.as_dict(),
        "cost": lost_money(evidence, price_per_hour, gpus),
    }


def cause_texts(document: Mapping[str, Any]) -> list[str]:
    """A text per cause, the surest first; where none was found, what was looked at and what is not known."""
    texts = [
        f"{cause['kind'].replace('_', ' ')} ({cause['strength']}): {cause['sentence']}" for cause in document["causes"]
    ]
    if texts:
        return texts
    if not document.get("moved", True):
        return ["none looked for: nothing moved"]
    unseen = f"; not known: {', '.join(document['not_known'])}" if document["not_known"] else ""
    return [f"none found; looked at: {', '.join(document['looked_at']) or 'nothing'}{unseen}"]
