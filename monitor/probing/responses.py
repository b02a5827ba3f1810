"""What a response that is not an answer means: status, headers and body as one TargetError. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from monitor.core.address import shown_url
from monitor.engines.failures import failure, one_line
from monitor.engines.lenient import section, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.errors import TargetError

RATE_LIMITED_RETRIES = 3
LONGEST_PAUSE_SECONDS = 30.0
_TOO_LONG = re.compile(r"maximum context length|max_model_len|context length|context window", re.IGNORECASE)
_NO_SUCH_MODEL = re.compile(r"model .{1,300} does not exist", re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """A response other than 200: its status, headers in lower case, and the beginning of its body."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def message(self) -> str:
        """What the server says about it, on one line."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return "" if self.looks_like_html else one_line(self.body)
        said = text(section(document, "error").get("message"))
        if said is None and isinstance(document, dict):
            said = next(
                (text(document[key]) for key in ("message", "detail", "error") if text(document.get(key))), None
            )
        return one_line(said or self.body)

    @property
    def looks_like_html(self) -> bool:
        return "html" in self.headers.get("content-type", "") or self.body.lstrip()[:1] == "<"

    def pause_seconds(self, attempt: int, now: datetime) -> float | None:
        """How long to wait before request number `attempt` (from 0) is made again; None when that is not done.

        After 429 three times, as long as the server asks if that is at most LONGEST_PAUSE_SECONDS; after a 5xx once.
        """
        if self.status >= 500:
            return 0.5 if attempt == 0 else None
        if self.status != 429 or attempt >= RATE_LIMITED_RETRIES:
            return None
        asked = self._retry_after_seconds(now)
        pause = 2.0**attempt if asked is None else asked
        return pause if pause <= LONGEST_PAUSE_SECONDS else None

    def _retry_after_seconds(self, now: datetime) -> float | None:
        """What the server asks for, given in seconds or as a date."""
        asked = self.headers.get("retry-after", "").strip()
        if asked.isdigit():
            return float(asked)
        try:
            when = parsedate_to_datetime(asked)
        except ValueError:
            return None
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds())

    def error(self) -> TargetError:
        """The failure that this response is."""
        said = f": {self.message}" if self.message else ""
        return failure(self._reason(), self.url, f"answered {self.status}{said}{self._where_to()}")

    def _where_to(self) -> str:
        return (
            f" to {shown_url(self.headers['location'])}"
            if 300 <= self.status < 400 and "location" in self.headers
            else ""
        )

    def _reason(self) -> str:
        if self.status in (401, 403, 407):
            return "unauthorized"
        if self.status == 429:
            return "rate_limited"
        if self.status >= 500:
            return "server_error"
        if self.status < 400:
            return "not_openai"
        if self.status in (404, 405):
            return "model_not_served" if _NO_SUCH_MODEL.search(self.message) else "not_found"
        return "context_too_long" if _TOO_LONG.search(self.message) else "bad_request"
