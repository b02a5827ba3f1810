"""The life of one generation request: queued, stepped, streamed, struck by a fault or given up by its client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from monitor.sim import wire
from monitor.sim.behaviour import FaultKind
from monitor.sim.engine import EngineStopped
from monitor.sim.model import END_OF_TEXT

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Receive, Send

    from monitor.sim.behaviour import Fault
    from monitor.sim.requests import GenerationRequest
    from monitor.sim.server import SimulatedServer

_KEEP_ALIVE_CHUNKS = 8


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, cancelled when the client goes away."""
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, listener), return_when=asyncio.FIRST_COMPLETED)
    finally:
        listener.cancel()
        task.cancel()
        outcome = (await asyncio.gather(task, listener, return_exceptions=True))[0]
    if isinstance(outcome, Exception):
        raise outcome


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answer:
    """Answers one request; returning before the last byte makes the web server cut the connection."""

    def __init__(self, server: SimulatedServer, request: GenerationRequest, fault: Fault | None, send: Send) -> None:
        self._server, self._request, self._fault, self._send = server, request, fault, send
        self._generation, self._cached_tokens = server.begin(request)
        self._fingerprint, self._created_seconds = server.fingerprint, int(time.time())
        self._ended = False

    async def run(self) -> None:
        """Answer; a request that does not reach its last token is counted as aborted."""
        if self._request.stream:
            await self._start(200, b"text/event-stream; charset=utf-8")
        with contextlib.suppress(EngineStopped):
            await self._generation.engine.admit()
            try:
                self._generation.admitted(self._cached_tokens)
                await asyncio.sleep(self._server.behaviour.latency_seconds)
                await (self._stream() if self._request.stream else self._whole())
            finally:
                self._end("abort")

    async def _stream(self) -> None:
        generation, request, output = self._generation, self._request, self._generation.output
        writer = wire.StreamWriter(request, self._server.config.model, self._fingerprint, self._created_seconds)
        sent = chunks = 0
        while sent < len(output):
            complete = await self._advance()
            if not chunks and (opening := writer.opening()):
                await self._write(opening)
            if chunks and not complete and self._holds(generation.sent_tokens - sent):
                continue
            ids, sent = output[sent : generation.sent_tokens], generation.sent_tokens
            chunks += 1
            ended = complete or self._aborts(chunks)
            await self._chunk(writer.tokens(ids, sent, self._finish_reason if ended else None), chunks, complete)
            if ended:
                self._end(self._finish_reason)
                break
        if request.include_usage and not self._struck(FaultKind.NO_USAGE):
            await self._write(writer.closing(self._usage(), self._metrics()))
        await self._write(wire.DONE, more=False)

    async def _advance(self) -> bool:
        """Wait for the next engine step and count it; once the answer is complete, before its last byte leaves."""
        engine, behaviour = self._generation.engine, self._server.behaviour
        await engine.step(behaviour.step_seconds(engine.running, engine.k))
        complete = self._generation.advance()
        if complete:
            self._end(self._finish_reason)
        return complete

    def _aborts(self, chunks: int) -> bool:
        """Whether this chunk is the last because the server gives up."""
        return self._fault is not None and self._fault.kind is FaultKind.ABORT and chunks > self._fault.after_chunks

    def _holds(self, pending_tokens: int) -> bool:
        """Whether the tokens at hand wait for the next chunk."""
        behaviour = self._server.behaviour
        if pending_tokens < max(behaviour.stream_interval, self._request.stream_interval):
            return True
        return behaviour.merge_probability > 0.0 and self._server.chance() < behaviour.merge_probability

    async def _chunk(self, event: bytes, chunks: int, complete: bool) -> None:
        if chunks % _KEEP_ALIVE_CHUNKS == 1 and self._server.behaviour.keep_alive_comments:
            await self._write(wire.KEEP_ALIVE)
        if self._fault is not None and (complete or chunks > self._fault.after_chunks):
            event = await self._strike(event)
        await self._write(event)

    async def _strike(self, event: bytes) -> bytes:
        """The event to send instead; raises EngineStopped where the fault ends the stream."""
        fault = self._fault
        if fault is None or fault.kind in (FaultKind.NO_USAGE, FaultKind.ABORT):
            return event
        self._fault = None
        if fault.kind is FaultKind.INVALID_JSON:
            return event[: len(event) // 2] + b"\n\n"
        if fault.kind is FaultKind.HANG:
            await self._generation.engine.stopped.wait()
        elif fault.kind is FaultKind.ERROR_IN_STREAM:
            self._end("error")
            await self._write(wire.error_event())
            await self._write(wire.DONE, more=False)
        else:
            await self._write(event[: len(event) // 2])
        raise EngineStopped

    async def _whole(self) -> None:
        while not await self._advance():
            pass
        if self._struck(FaultKind.HANG):
            await self._generation.engine.stopped.wait()
            raise EngineStopped
        if self._struck(FaultKind.ERROR_IN_STREAM):
            await self._body(500, wire.compact(wire.error_document()))
            return
        usage = None if self._struck(FaultKind.NO_USAGE) else self._usage()
        document = wire.whole_answer(
            self._request,
            self._generation.output,
            self._finish_reason,
            model=self._server.config.model,
            fingerprint=self._fingerprint,
            created_seconds=self._created_seconds,
            usage=usage,
            metrics=self._metrics(),
        )
        body = wire.compact(document)
        await self._body(200, body[: len(body) // 2] if self._struck(FaultKind.INVALID_JSON) else body)

    async def _body(self, status: int, text: str) -> None:
        body = text.encode()
        await self._start(status, b"application/json", (b"content-length", str(len(body)).encode()))
        if self._struck(FaultKind.CUT):
            await self._write(body[: len(body) // 2])
            return
        await self._write(body, more=False)

    @property
    def _finish_reason(self) -> str:
        if self._struck(FaultKind.ABORT):
            return "abort"
        return "stop" if self._generation.output[-1] == END_OF_TEXT else "length"

    def _struck(self, kind: FaultKind) -> bool:
        return self._fault is not None and self._fault.kind is kind

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._generation.engine.release()
            self._generation.finish(reason)

    def _usage(self) -> dict[str, Any]:
        cached = self._cached_tokens if self._server.config.prompt_tokens_details else None
        return wire.usage_of(len(self._request.token_ids), self._generation.sent_tokens, cached)

    def _metrics(self) -> dict[str, Any] | None:
        """Per-request metrics as configured; None where the server reports none."""
        config, metrics = self._server.config, dict[str, Any]()
        if config.per_request_timings:
            metrics |= self._generation.timings()
        if (
            self._generation.engine.k
            and not self._struck(FaultKind.ABORT)
            and config.per_request_counts != "none"
            and not self._server.behaviour.omit_request_counts
        ):
            metrics["speculative_decoding"] = self._generation.counts(detailed=config.per_request_counts == "detailed")
        return metrics or None

    async def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
        named = [(b"content-type", content_type), (b"vary", b"Origin"), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": named})

    async def _write(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
