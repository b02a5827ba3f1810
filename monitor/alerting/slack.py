"""The body of a message for Slack's incoming web hook. Pure.

Source: https://docs.slack.dev/reference/block-kit/blocks (limits of blocks), and its page on formatting (escapes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import links

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HEADER = 150
MAX_SECTION = 3000
FENCE = "```"


def message_body(document: Mapping[str, Any]) -> dict[str, Any]:
    """First line as header and as the text of the notification, the rest as it stands, then the links.

    A web hook cannot change what it posted: the end of an incident is a message of its own.
    """
    summary, _, rest = document["text"].partition("\n")
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": shortened(summary, MAX_HEADER), "emoji": False}}
    ]
    if len(summary) > MAX_HEADER:
        blocks.append(_section(shortened(escaped(summary), MAX_SECTION)))
    if rest:
        blocks.append(_section(f"{FENCE}\n{shortened(escaped(rest), MAX_SECTION - 2 * len(FENCE) - 2)}\n{FENCE}"))
    if found := links(document):
        blocks.append(_section(" · ".join(f"<{escaped(url)}|{title}>" for title, url in found)))
    return {"text": escaped(document["summary"]), "blocks": blocks}


def escaped(text: str) -> str:
    """The three characters that Slack reads as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning with `…` at the end; what is cut is behind the link."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}
