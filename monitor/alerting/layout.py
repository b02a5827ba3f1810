"""How the text of a message is set: labelled lines no wider than a terminal, times, durations, ids. Pure."""

from __future__ import annotations

import textwrap
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

WIDTH = 100
"""Columns of the text: what a terminal, a mail and a chat show without wrapping it themselves."""
LABEL = 13
"""Columns of the label and what is before and after it."""


def labelled(label: str, text: str) -> list[str]:
    """The text beside its label, its further lines under its first; a longer word, such as an address, stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<{LABEL - 2}}",
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def listed(label: str, texts: Sequence[str]) -> list[str]:
    """Each text begins a line, its further lines under its first; the label is beside the first text alone."""
    return [line for number, text in enumerate(texts) for line in labelled("" if number else label, text)]


def verbatim(label: str, texts: Sequence[str]) -> list[str]:
    """Each text on a line of its own, however long: what is to be copied."""
    return [f"  {label if number == 0 else '':<{LABEL - 2}}{text}" for number, text in enumerate(texts)]


def clock(value: str) -> str:
    """An ISO time to the second, with its zone."""
    return datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M:%S %Z")


def duration(start: str, end: str) -> str:
    """Between two ISO times, in two units."""
    seconds = round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def subject(summary: str) -> str:
    """What a first line is about, without its figures: `PAGE chat-prod · coding`."""
    return summary.partition(": ")[0]


def figures_of(summary: str) -> str:
    """The rest of a first line: what it says of its subject, without what to run."""
    return summary.partition(": ")[2].partition("; next: ")[0]


def links(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(title, address) of where a message leads, those of them that there are.

    The incident's page, the change that a bump was announced with, the runbook.
    """
    change = document.get("change_link")
    found = {"Incident": document["link"], "Change": change, "Runbook": document.get("runbook_url")}
    return [(title, url) for title, url in found.items() if url]
