"""One POST of a message: sent, and its answer read as arrival, failure or refusal for good.

Says host and cause and never more of an address, whose path or query may be a secret.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NEVER_SUCCEEDS = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
"""Answers that the same message will get again: the delivery is parked as dead and shown, not repeated."""
TOO_MANY = 429
LONGEST_PAUSE_SECONDS = 86_400.0
"""A receiver that asks for a longer pause is tried again after a day all the same."""


@dataclass(frozen=True)
class Arrival:
    """A delivery was accepted; `answer` is where and how: `alerts.example:9000: HTTP 200`."""

    answer: str


class Why(StrEnum):
    """What failed deliveries are counted by; the few things that call for different acts."""

    UNREACHABLE = "unreachable"
    NO_ANSWER = "no_answer"
    THROTTLED = "throttled"
    ERROR = "error"
    REFUSED = "refused"
    SECRET = "secret"  # noqa: S105  (a word of the metrics, and none itself)
    MISTAKE = "mistake"
    REMOVED = "removed"


@dataclass(frozen=True)
class Failure:
    """Why a delivery did not arrive; `retry_after_seconds` when the receiver asked for a pause, `final` when never."""

    error: str
    final: bool = False
    retry_after_seconds: float | None = None
    why: Why = field(default=Why.UNREACHABLE, kw_only=True, compare=False)


@dataclass(frozen=True)
class Post:
    """What is sent where: a body in JSON, as bytes because a signature is of bytes."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


async def post(request: Post, timeout_seconds: float) -> Arrival | Failure:
    """Any 2xx is arrival; NEVER_SUCCEEDS is final; all else may be tried again. The time is for all of it."""
    host = host_of(request.url)
    headers = {"Content-Type": "application/json", **request.headers}
    try:
        # httpx limits each phase of a request; the whole of it must end within the setting.
        client = httpx.AsyncClient(timeout=timeout_seconds, verify=_tls())
        async with asyncio.timeout(timeout_seconds), client:
            response = await client.post(request.url, content=request.body, headers=headers)
    except TimeoutError:
        return Failure(f"{host}: no answer within {timeout_seconds:g} s", why=Why.NO_ANSWER)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        late = isinstance(error, httpx.TimeoutException)
        return Failure(f"{host}: {cause(error)}", why=Why.NO_ANSWER if late else Why.UNREACHABLE)
    answer = f"{host}: HTTP {response.status_code}"
    if response.is_success:
        return Arrival(answer)
    final = response.status_code in NEVER_SUCCEEDS
    why = Why.REFUSED if final else Why.THROTTLED if response.status_code == TOO_MANY else Why.ERROR
    return Failure(answer, final, retry_after(response.headers.get("Retry-After")), why=why)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The trusted certificates, read once: 20 ms of CPU, which every message would pay."""
    return httpx.create_ssl_context()


def host_of(url: str) -> str:
    """Host and port of an address: what may be shown of it, since its path or query may be a secret."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "its URL, which names no host"
    except ValueError:
        return "its URL, which is not one"


def cause(error: Exception) -> str:
    """What went wrong, in words that hold nothing of the request: the libraries' own may quote its address."""
    for inner in _causes(error):
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"its certificate is refused ({inner.verify_message})"
        if isinstance(inner, ssl.SSLError):
            return "no TLS connection; perhaps it speaks plain http://"
        if isinstance(inner, socket.gaierror):
            return "the host name cannot be resolved"
        if isinstance(inner, OSError) and inner.errno:
            return os.strerror(inner.errno).lower()
    known = [words for kind, words in _MEANINGS.items() if isinstance(error, kind)]
    return known[0] if known else f"the request failed ({type(error).__name__})"


_MEANINGS = {
    httpx.ConnectTimeout: "no connection within the time allowed",
    httpx.TimeoutException: "no answer within the time allowed",
    httpx.ConnectError: "no connection",
    httpx.NetworkError: "the connection broke before an answer",
    httpx.RemoteProtocolError: "it closed the connection without an answer, or does not speak HTTP",
    httpx.UnsupportedProtocol: "its URL does not begin with http:// or https://",
    httpx.InvalidURL: "its URL is not one",
}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from; of several attempts to connect, one per address of the host, each."""
    if error is None:
        return
    yield error
    for inner in getattr(error, "exceptions", ()):
        yield from _causes(inner)
    yield from _causes(error.__cause__ or error.__context__)


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds a Retry-After header asks for, from either of its forms; None when absent or unreadable.

    A date without a zone is UTC, as HTTP dates are. Never more than LONGEST_PAUSE_SECONDS.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = float(text) if text.isdecimal() else _seconds_until(text, now or datetime.now(UTC))
    return None if seconds is None else min(max(0.0, seconds), LONGEST_PAUSE_SECONDS)


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(http_date)
    except (ValueError, OverflowError):
        return None
    return (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
