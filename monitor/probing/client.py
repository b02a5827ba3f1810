"""The one place that talks HTTP to a replica."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import httpx
from httpx_aiohttp import HttpxAiohttpClient

from monitor.core.address import RANK_HEADER, at_rank
from monitor.engines.failures import failure, one_line
from monitor.errors import TargetError, UsageError
from monitor.probing.patience import Patience
from monitor.probing.responses import Refusal
from monitor.probing.sse import EventReader
from monitor.probing.transport import explained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from pathlib import Path

LOOKUP_SECONDS = 10.0
"""Time for /metrics, /v1/models and their like; they need no model."""
KEEPALIVE_SECONDS = 2.0
"""Idle connections are closed before uvicorn closes them (5 s): a request on a dying one looks like a failure."""
ERROR_BYTES = 64 * 2**10
DONE = b"[DONE]"
PIECES_KEPT = 16
"""Network reads kept until they are looked at: reading many in a row costs half of what turning to each alone does."""

Piece = tuple[float, bytes]
"""Bytes of one network read, and when they arrived, in seconds since the request was sent."""


@dataclass(frozen=True)
class Timeouts:
    """How long each phase of a request may take: to connect; from sending to the first token; between two events of a
    stream; from sending to the last byte. Keep-alive comments are not events.
    """

    connect_seconds: float = 5.0
    first_token_seconds: float = 60.0
    stall_seconds: float = 20.0
    total_seconds: float = 300.0


@dataclass(frozen=True)
class Target:
    """One replica: its base URL without `/v1`, and what requests to it carry.

    `model` None: the only one it serves. `ca_file`: certificates (PEM) to trust besides the usual ones. `server_name`
    (`HOST` or `HOST:PORT`): whom requests and TLS are for, where the URL has only an address. `data_parallel_rank`: the
    engine behind the URL that answers, and whose counters count; None: whichever. The key and the headers may be
    secrets and stay out of repr().
    """

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    timeouts: Timeouts = Timeouts()
    server_name: str | None = None
    data_parallel_rank: int | None = None

    @property
    def replica(self) -> str:
        """Its name as a replica: the base URL, with the rank where there is one."""
        return at_rank(self.base_url.rstrip("/"), self.data_parallel_rank)


class Event(NamedTuple):
    """Data of one event, and when its last bytes arrived, in seconds since the request was sent."""

    seconds: float
    data: bytes


class Client:
    """Connections to one replica: `async with Client(target, connections=8) as client`.

    Raises TargetError, and nothing else, for what the replica or the way to it does wrong; no message holds the key or
    a header. A request is repeated only when nothing was generated: after 429 and, once, after a 5xx instead of a
    stream (see `Refusal.pause_seconds`). `monotonic` gives the time stamps.
    """

    def __init__(self, target: Target, connections: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.url = target.base_url.rstrip("/")
        self.replica = target.replica
        self.data_parallel_rank = target.data_parallel_rank
        self._timeouts = target.timeouts
        self._monotonic = monotonic
        self._extensions = {} if target.server_name is None else {"sni_hostname": _host(target.server_name)}
        self._secrets = [secret for secret in (target.api_key, *target.headers.values()) if secret]
        self._http = HttpxAiohttpClient(
            headers=_headers(target),
            verify=_tls_context(target),
            timeout=httpx.Timeout(None, connect=target.timeouts.connect_seconds),
            # The transport would hold 100 connections whatever we ask: more prompts than that would run in two waves.
            limits=httpx.Limits(max_connections=connections + 2, keepalive_expiry=KEEPALIVE_SECONDS),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get_text(self, path: str) -> str:
        """The text at `path`."""
        url = self.url + path
        timeouts = Timeouts(first_token_seconds=LOOKUP_SECONDS, total_seconds=LOOKUP_SECONDS)
        patience = Patience(url, timeouts, lookup=True)
        request = self._http.build_request("GET", url, extensions=self._extensions)
        async with self._answer(request, patience) as (response, _):
            patience.progressed()
            with explained(url):
                body = await patience.wait(response.aread())
        return self._without_secrets(body.decode(errors="replace"))

    async def get_json(self, path: str) -> Any:
        """The document at `path`. Raises `invalid_json`, or `not_openai` for a web page."""
        body = await self.get_text(path)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            reason = "not_openai" if body.lstrip().startswith("<") else "invalid_json"
            raise failure(reason, self.url + path, f"answers {one_line(body, 80)!r} where JSON belongs") from None

    async def stream(
        self, path: str, body: Mapping[str, Any], begins: Callable[[bytes], bool] = lambda _: True
    ) -> AsyncGenerator[Event, None]:
        """Every event of the answer, up to `[DONE]`; leave early only through `aclosing`.

        After the first token they are handed on some PIECES_KEPT at a time, each with the moment at which it came.
        `begins` recognises the event that ends the wait for the first token. Raises `cut_off` when the connection ends
        before `[DONE]`, `not_openai` when the answer is no stream.
        """
        url = self.url + path
        patience = Patience(url, self._timeouts)
        # Compression would hold events back until a block is full.
        request = self._http.build_request(
            "POST", url, json=dict(body), headers={"Accept-Encoding": "identity"}, extensions=self._extensions
        )
        async with self._answer(request, patience) as (response, sent_at):
            await self._require_stream(response, patience)
            arrivals = _Arrivals(response, patience, self._monotonic, sent_at)
            reader, waiting = EventReader(), True
            while True:
                pieces: list[Piece] = []
                failed = await arrivals.fill(pieces, 1 if waiting else PIECES_KEPT)
                for seconds, received in pieces:
                    for data in _split(reader, received, url):
                        if data == DONE:
                            return
                        if waiting and begins(data):
                            waiting = False
                            patience.progressed()
                        yield Event(seconds, self._cleaned(data))
                if failed is not None:
                    raise failed

    async def _next(self, pieces: AsyncIterator[bytes], patience: Patience) -> bytes:
        """The next bytes of a response, empty at its end."""
        with explained(patience.url):
            return await patience.wait(anext(pieces, b""))

    @asynccontextmanager
    async def _answer(self, request: httpx.Request, patience: Patience) -> AsyncIterator[tuple[httpx.Response, float]]:
        """The response with status 200, and when its request was sent."""
        with patience:
            for attempt in itertools.count():
                patience.sent()
                sent_at = self._monotonic()
                with explained(patience.url):
                    response = await patience.wait(self._http.send(request, stream=True))
                try:
                    if response.status_code == httpx.codes.OK:
                        yield response, sent_at
                        return
                    refusal = await self._refusal(response, patience)
                finally:
                    with suppress(httpx.HTTPError):
                        await response.aclose()
                pause_seconds = refusal.pause_seconds(attempt, datetime.now(UTC))
                if pause_seconds is None:
                    raise refusal.error()
                await asyncio.sleep(pause_seconds)

    async def _refusal(self, response: httpx.Response, patience: Patience) -> Refusal:
        body = b""
        pieces = response.aiter_bytes()
        try:
            while len(body) < ERROR_BYTES and (received := await self._next(pieces, patience)):
                body += received
        except TargetError:
            pass  # the status says more than a body that does not come
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Refusal(
            patience.url, response.status_code, headers, self._without_secrets(body.decode(errors="replace"))
        )

    async def _require_stream(self, response: httpx.Response, patience: Patience) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if kind == "text/event-stream":
            return
        refusal = await self._refusal(response, patience)
        what = f"answers with {kind or 'nothing'} instead of a stream"
        raise failure("not_openai", patience.url, f"{what}: {one_line(refusal.message, 120)}".rstrip(": "))

    def _cleaned(self, data: bytes) -> bytes:
        """Only an error could repeat a secret: answers are not searched."""
        if self._secrets and b'"error"' in data:
            return self._without_secrets(data.decode(errors="replace")).encode()
        return data

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class _Arrivals:
    """The bytes of one response as they arrive."""

    def __init__(
        self, response: httpx.Response, patience: Patience, monotonic: Callable[[], float], sent_at: float
    ) -> None:
        # Bytes that nobody compressed need no decoder, which every chunk would pass through.
        self._pieces = response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()
        self._patience = patience
        self._monotonic = monotonic
        self._sent_at = sent_at

    async def fill(self, pieces: list[Piece], count: int) -> TargetError | None:
        """Adds `count` pieces, or fewer at the end of the answer; what ended it too early, None where nothing did."""
        try:
            with explained(self._patience.url):
                await self._patience.wait(self._read(pieces, count))
        except TargetError as error:
            return error
        return None

    async def _read(self, pieces: list[Piece], count: int) -> None:
        """Every chunk comes through here alone, at the moment it arrives: what can wait is done elsewhere."""
        async for received in self._pieces:
            pieces.append((self._monotonic() - self._sent_at, received))
            if count > 1 and b"data:" in received:
                self._patience.progressed()
            if len(pieces) >= count or DONE in received:
                return
        raise failure("cut_off", self._patience.url, "the stream ended before [DONE]")


def _split(reader: EventReader, received: bytes, url: str) -> list[bytes]:
    try:
        return reader.feed(received)
    except ValueError as error:
        raise failure("not_openai", url, f"the stream has {error}") from None


def _host(server_name: str) -> str:
    return urlsplit(f"//{server_name}").hostname or server_name


def _headers(target: Target) -> dict[str, str]:
    headers = dict(target.headers)
    if target.server_name is not None:
        headers.setdefault("Host", target.server_name)
    if target.data_parallel_rank is not None:
        headers[RANK_HEADER] = str(target.data_parallel_rank)
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"the value for header {name} has characters that a header cannot carry; check the secret")
    return headers


def _tls_context(target: Target) -> ssl.SSLContext:
    """The usual authorities and those of `ca_file`. Raises UsageError when that file is no use."""
    if not target.base_url.lower().startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; loading the authorities takes 20 ms
    context = httpx.create_ssl_context()
    if target.ca_file is not None:
        try:
            context.load_verify_locations(cafile=target.ca_file)
        except ssl.SSLError:
            raise UsageError(f"CA file {target.ca_file} holds no certificate in PEM form") from None
        except OSError as error:
            raise UsageError(f"CA file {target.ca_file} cannot be read: {error.strerror}") from None
    return context
