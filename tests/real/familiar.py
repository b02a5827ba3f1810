"""Prompt sets in the words the tiny models were trained on: acceptance high enough for a worse drafter to show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from monitor.prompts.sets import PromptSet, load_prompt_sets

if TYPE_CHECKING:
    from pathlib import Path

FUNCTIONS = (
    "close __init__ parse_args get_value read test_main write __repr__ main open update remove add _check send get "
    "set_name __eq__ run copy _parse format find connect"
)
TEXTS = (
    "The license grants you the right to",
    "This module provides a simple way of",
    "You may copy and distribute",
    "The following table shows the list of",
    "If you modify this program, you",
    "Returns a new object that",
    "This function returns the number of",
    "The copyright holder may",
    "By default, the value of this option",
    "Each version of the license is given",
    "A string that describes the name of",
    "When the file is opened, the",
)
MATH = [
    *(f"Write the times table of {factor}." for factor in range(2, 10)),
    *(f"Continue the sequence: {first}, {first + step}, {first + 2 * step}" for first, step in zip(
        range(1, 17), [7, 3, 2, 5, 9, 4, 6, 1, 8, 2, 3, 7, 5, 4, 9, 6], strict=True
    )),
]  # fmt: skip
TURNS: dict[str, list[list[str]]] = {
    "coding": [[f"Write a Python function named {name}."] for name in FUNCTIONS.split()],
    "math": [[question] for question in MATH],
    # Two turns each: what is left out of a stream is left out once in every turn.
    "prose": [[f"Continue the text: {text}", f"Continue the text: {again}"] for text, again in zip(
        TEXTS, TEXTS[1:] + TEXTS[:1], strict=True
    )],
}  # fmt: skip


def write_familiar_sets(directory: Path, *domains: str) -> Path:
    """Writes the sets of these domains, all without any, as DOMAIN.jsonl into the directory and returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    for domain in domains or TURNS:
        prompts = [
            {"question_id": f"{domain}-{number:02}", "category": domain, "sub_category": domain, "turns": turns}
            for number, turns in enumerate(TURNS[domain])
        ]
        (directory / f"{domain}.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    return directory


def familiar_sets(directory: Path) -> list[PromptSet]:
    """All of them, by way of files: 24 prompts of one turn for coding and for math, 12 of two turns for prose."""
    return list(load_prompt_sets(write_familiar_sets(directory)).values())
