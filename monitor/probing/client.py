"""The one place that talks HTTP to a replica."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import httpx
from httpx_aiohttp import HttpxAiohttpClient

from monitor.engines.failures import failure, one_line
from monitor.errors import TargetError
from monitor.probing.patience import Patience
from monitor.probing.responses import Refusal
from monitor.probing.stream import Stream
from monitor.probing.target import Timeouts
from monitor.probing.transport import explained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from monitor.probing.stream import Event
    from monitor.probing.target import Target

LOOKUP_SECONDS = 10.0
"""Time for /metrics, /v1/models and their like; they need no model."""
KEEPALIVE_SECONDS = 2.0
"""Idle connections are closed before uvicorn closes them (5 s): a request on a dying one looks like a failure."""
ERROR_BYTES = 64 * 2**10


class Client:
    """Connections to one replica: `async with Client(target, connections=8) as client`.

    Raises TargetError, and nothing else, for what the replica or the way to it does wrong; no message holds the key or
    a header. A request is repeated only when nothing was generated: after 429 and, once, after a 5xx instead of a
    stream (see `Refusal.pause_seconds`). `monotonic` gives the time stamps.
    """

    def __init__(self, target: Target, connections: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.url = target.url
        self.replica = target.replica
        self.data_parallel_rank = target.data_parallel_rank
        self._timeouts = target.timeouts
        self._monotonic = monotonic
        self._extensions = {} if target.tls_name is None else {"sni_hostname": target.tls_name}
        self._secrets = target.secrets
        self._http = HttpxAiohttpClient(
            headers=target.request_headers(),
            verify=target.tls_context(),
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

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, Any], begins: Callable[[bytes], bool] = lambda _: True
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Every event of the answer, up to `[DONE]`, each with the moment at which it came; leaving closes it.

        `begins` recognises the event that ends the wait for the first token. Iterating raises `cut_off` when the
        connection ends before `[DONE]`, entering `not_openai` when the answer is no stream.
        """
        url = self.url + path
        patience = Patience(url, self._timeouts)
        # Compression would hold events back until a block is full.
        request = self._http.build_request(
            "POST", url, json=dict(body), headers={"Accept-Encoding": "identity"}, extensions=self._extensions
        )
        async with self._answer(request, patience) as (response, sent_at):
            await self._require_stream(response, patience)
            stream = Stream(response, patience, self._monotonic, sent_at, self._cleaned)
            async with aclosing(stream.events(begins)) as events:
                yield events

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
