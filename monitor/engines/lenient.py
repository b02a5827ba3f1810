"""Reading documents of other programs: what is absent or of another type is None, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def section(document: object, key: str) -> Mapping[str, Any]:
    """The object under `key`; empty when it is not one."""
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    """A whole number of at least 0; `True` is not one."""
    return value if type(value) is int and value >= 0 else None
