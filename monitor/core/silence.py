"""A silence, as its document: what it covers, and when those are told of its end whom it holds messages from. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta


def covers(silence: Mapping[str, Any], route: str, labels: Mapping[str, str], severity: str) -> bool:
    """Whether it holds messages about an incident of this route and severity; what it does not name is any."""
    return (
        silence["route"] in (None, route)
        and silence["severity"] in (None, severity)
        and all(labels.get(name) == value for name, value in silence["labels"].items())
    )


def notice_at(silence: Mapping[str, Any], before: timedelta | None) -> datetime | None:
    """When its end is told ahead, `before` it; None where that is off, or the silence is no longer than that."""
    if before is None:
        return None
    at = datetime.fromisoformat(silence["ends_at"]) - before
    return at if at > datetime.fromisoformat(silence["created_at"]) else None
