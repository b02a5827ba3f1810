"""An explanation as one document and as lines of text: what moved, or what was looked at in vain. Pure.

Of domains that are told together the causes are told together too: each once, with the domains that it was found in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core.cause import Kind, Strength
from monitor.core.causes import causes, looked_at
from monitor.core.cost import lost_money, pace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.evidence import Evidence


def explained(evidence: Evidence, price_per_hour: float | None = None, gpus: int | None = None) -> dict[str, Any]:
    """The one JSON shape of an explanation (docs/json.md); `price_per_hour` is of one GPU."""
    seen, unseen = looked_at(evidence)
    return {
        "moved": evidence.moved,
        "causes": [cause.as_dict() for cause in causes(evidence)],
        "looked_at": seen,
        "not_known": unseen,
        "removed_beside": list(evidence.removed_beside),
        "organic": None if evidence.organic is None else evidence.organic.as_dict(),
        "pace": pace(evidence),
        "cost": lost_money(evidence, price_per_hour, gpus),
    }


def cause_texts(document: Mapping[str, Any]) -> list[str]:
    """A text per cause, the surest first; where none was found, what was looked at and what is not known."""
    texts = [
        f"{cause['kind'].replace('_', ' ')} ({cause['strength']} evidence): {cause['sentence']}"
        for cause in document["causes"]
    ]
    if texts:
        return texts
    if not document.get("moved", True):
        return ["none looked for: nothing moved"]
    unseen = f"; not known: {', '.join(document['not_known'])}" if document["not_known"] else ""
    return [f"none found; looked at: {', '.join(document['looked_at']) or 'nothing'}{unseen}"]


def joint_cause_texts(causes: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A text per kind of cause over several domains (domain → its causes), that of the most evidence first.

    Evidence adds up: weak is 1, moderate 2, strong 3. The strength told is the highest, and the sentence is of the
    first domain that has it.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for domain, its in causes.items():
        for cause in its:
            found.setdefault(cause["kind"], {})[domain] = cause
    order = list(Kind)
    ranked = sorted(found, key=lambda kind: (-sum(map(_strength, found[kind].values())), order.index(Kind(kind))))
    return [_joint_text(kind, found[kind], len(causes)) for kind in ranked]


def _joint_text(kind: str, found: Mapping[str, Mapping[str, Any]], domains: int) -> str:
    surest = max(found, key=lambda domain: _strength(found[domain]))
    where = f"all {domains} domains" if len(found) == domains else f"{len(found)} of {domains} domains"
    named = "" if len(found) == domains else f": {', '.join(found)}"
    alike = len({cause["sentence"] for cause in found.values()}) == 1
    in_which = f"in {surest}" if not alike else "in each" if len(found) > 1 else ""
    sentence = f"{in_which}, {found[surest]['sentence']}" if in_which else found[surest]["sentence"]
    return f"{kind.replace('_', ' ')} ({found[surest]['strength']} evidence, {where}{named}): {sentence}"


def _strength(cause: Mapping[str, Any]) -> int:
    return Strength[cause["strength"].upper()]
