"""Recognises the domain of a prompt by how it begins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEY_CHARACTERS = 200


def domains_in(folder: Path) -> dict[str, str]:
    """First characters of every first turn in a folder of prompt sets, and its domain."""
    table = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                prompt = json.loads(line)
                table[prompt["turns"][0][:KEY_CHARACTERS]] = prompt.get("category", path.stem)
    return table
