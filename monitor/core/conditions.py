"""What tells apart the rows of a history that are not comparable. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from monitor.core.format import NOTHING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

HASH_SHOWN = 12
"""As many characters of a prompt set's hash tell it from any other."""


def telling_conditions(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Domain → names of the conditions that are not the same in all of its rows; only domains that have such.

    Source and K are not among them: every surface has these in columns of their own.
    """
    seen: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        of_domain = seen.setdefault(row["domain"], {})
        for name, value in _conditions(row).items():
            of_domain.setdefault(name, set()).add(value)
    found = {domain: [name for name in values if len(values[name]) > 1] for domain, values in seen.items()}
    return {domain: names for domain, names in found.items() if names}


def conditions_text(row: Mapping[str, Any], names: Collection[str]) -> str:
    """The conditions of these names: `cache warm, concurrency 8`."""
    return ", ".join(f"{name} {value}" for name, value in _conditions(row).items() if name in names)


def _conditions(row: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "method": row["method"],
        "drafter": row["drafter"],
        "prompt set": row["prompt_set_hash"][:HASH_SHOWN],
        "concurrency": row["concurrency"],
        "prompt_keys": None,  # which a sampling without any leaves out
        **row["sampling"],
    }
    return {name: _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
