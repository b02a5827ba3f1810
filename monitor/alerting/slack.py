"""The body of a message for Slack's incoming web hook. Pure.

Source: https://docs.slack.dev/reference/block-kit/blocks (limits of blocks), and its page on formatting (escapes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import links, subject

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HEADER = 150
MAX_SECTION = 3000
FENCE = "```"


def message_body(document: Mapping[str, Any]) -> dict[str, Any]:
    """First line as header and as the text of the notification, the rest as it stands, then the links.

    Of a line that is longer than a header may be, what it is about is the header, and the whole of it stands below.
    A web hook cannot change what it posted: the end of an incident is a message of its own.
    """
    summary, _, rest = document["text"].partition("\n")
    fits = len(summary) <= MAX_HEADER
    header = summary if fits else shortened(subject(summary), MAX_HEADER)
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": header, "emoji": False}}]
    if not fits:
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
