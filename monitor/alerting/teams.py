"""The body of a message for a Microsoft Teams workflow (“when a webhook request is received”): an adaptive card. Pure.

Source: https://learn.microsoft.com/en-us/connectors/teams/ (shape, 28 KB at most), https://adaptivecards.io/explorer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import links
from monitor.core.bumps import NOTE
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

COLOURS = {"page": "Attention", "warning": "Warning"}
MAX_LINES = 60
"""Far from Teams' 28 KB at a hundred columns a line."""


def card_body(document: Mapping[str, Any]) -> dict[str, Any]:
    """First line large and coloured, the rest line by line in one width; text runs, since text blocks are Markdown."""
    summary, *lines = document["text"].splitlines()
    head = _line(summary, weight="Bolder", size="Medium", color=_colour(document))
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "fallbackText": summary,
        "body": [head, *(_line(line, fontType="Monospace") for line in lines[:MAX_LINES])],
        "actions": [{"type": "Action.OpenUrl", "title": title, "url": url} for title, url in links(document)],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _colour(document: Mapping[str, Any]) -> str:
    if document["transition"] == Transition.RESOLVED.value:
        return "Good"
    return "Accent" if document["transition"] == NOTE else COLOURS[document["severity"]]


def _line(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "spacing": "None", "inlines": [{"type": "TextRun", "text": text, **style}]}
