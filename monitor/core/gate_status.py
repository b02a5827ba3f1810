"""How far a gate is that was asked for, and its document before it has a verdict of its own. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from monitor.core.gate import EXIT_CODES, GateReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class GateStatus(enum.StrEnum):
    """DONE and CANCELLED are for good; only DONE can have the verdict `pass`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


OPEN = (GateStatus.QUEUED, GateStatus.RUNNING)


def open_document(document: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A gate's document (docs/json.md) while there is no verdict: nothing in it could be read as one."""
    nothing = dict.fromkeys(("verdict", "exit_code", "reason", "finished_at"))
    return {**document, **nothing, "text": text}


def ended_document(document: Mapping[str, Any], reason: GateReason, text: str, at: datetime) -> dict[str, Any]:
    """The document of a gate that ended without being measured to its end."""
    decision = reason.decision
    return {
        **document,
        "verdict": decision.value,
        "exit_code": EXIT_CODES[decision],
        "reason": reason.value,
        "text": text,
        "finished_at": at.isoformat(),
    }
