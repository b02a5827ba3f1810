"""A server of paced streams, written on sockets so that it costs little beside the clients it is measured with.

    python benchmarks/stage/paced.py PORT INTERVAL_SECONDS

Answers chat and completion requests as vLLM would, one token a chunk, `max_tokens` chunks, one every INTERVAL_SECONDS,
which is rendered before the first is due. The phases of the streams are spread evenly over the interval, in whatever
order and however fast a client sends its requests: otherwise each client would make a load of its own, and one that
sends them all at once would find many chunks in every look at its sockets. `/lateness` tells how late the server itself
was with each chunk since it was last asked, in seconds.
"""

import asyncio
import json
import sys
from functools import lru_cache

from monitor.sim.model import VOCABULARY
from monitor.sim.requests import GenerationRequest, Kind, Limits, Refusal, read
from monitor.sim.wire import DONE, StreamWriter, usage_of, whole_answer

MODEL = "tiny"
LIMITS = Limits(model=MODEL, max_model_len=100_000, speculative=False)
GENERATES: dict[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completion"}
CREATED_SECONDS = 1_767_225_600
GOLDEN_RATIO = 0.618_033_988_75
"""Multiples of it, less their whole part, lie evenly however many there are."""
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"connection: close\r\n\r\n"
)
PAGES = {
    "/health": b"{}",
    "/version": b'{"version":"0.32.0"}',
    "/v1/models": json.dumps(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL}]}
    ).encode(),
}


class Pace:
    """When chunks go out, and how late they were."""

    def __init__(self, interval_seconds: float) -> None:
        self.interval_seconds = interval_seconds
        self.late_seconds: list[float] = []
        self._streams = 0

    def start(self, now: float) -> float:
        """When the next stream's interval begins, counted from a common zero; at most an interval from now."""
        self._streams += 1
        phase = self._streams * GOLDEN_RATIO % 1 * self.interval_seconds
        return now + (phase - now) % self.interval_seconds

    def taken(self) -> bytes:
        late, self.late_seconds = self.late_seconds, []
        return json.dumps(late).encode()


@lru_cache
def events_of(request: GenerationRequest) -> tuple[bytes, ...]:
    """Every piece of the answer as it goes out, each an HTTP chunk of its own as with uvicorn."""
    writer = StreamWriter(request, MODEL, "fp", CREATED_SECONDS)
    ids = [n % 1000 + 100 for n in range(request.max_tokens)]
    last = request.max_tokens
    pieces = [writer.tokens([token], n, "length" if n == last else None) for n, token in enumerate(ids, 1)]
    closing = writer.closing(usage_of(len(request.token_ids), last, None), None) if request.include_usage else b""
    pieces[-1] = b"".join(map(http_chunk, filter(None, [pieces[-1], closing, DONE]))) + b"0\r\n\r\n"
    pieces[:-1] = map(http_chunk, pieces[:-1])
    opening = writer.opening()
    return (http_chunk(opening) if opening else b"", *pieces)


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """One connection: a page, or one stream and its end."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, ended, body = self._received.partition(b"\r\n\r\n")
        if not ended or len(body) < _length(head):
            return
        self._received = b""
        path = head.split(b" ", 2)[1].decode().partition("?")[0]
        if kind := GENERATES.get(path):
            self._answer(read(kind, body, LIMITS))
        else:
            page = self._pace.taken() if path == "/lateness" else PAGES.get(path)
            self._page(200 if page else 404, page or b"{}")

    def _answer(self, request: GenerationRequest | Refusal) -> None:
        if isinstance(request, Refusal):
            self._page(request.status, json.dumps(request.document).encode())
        elif not request.stream:
            self._page(200, _whole(request))
        else:
            opening, *self._pieces = events_of(request)
            self._transport.write(STREAM_HEAD + opening)
            self._next, self._due = 0, self._pace.start(self._loop.time())
            self._wait()

    def _page(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _wait(self) -> None:
        self._due += self._pace.interval_seconds
        self._timer = self._loop.call_at(self._due, self._send)

    def _send(self) -> None:
        self._pace.late_seconds.append(self._loop.time() - self._due)
        self._transport.write(self._pieces[self._next])
        self._next += 1
        if self._next < len(self._pieces):
            self._wait()
        else:
            self._transport.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _whole(request: GenerationRequest) -> bytes:
    ids, tokens = [100] * request.max_tokens, len(request.token_ids)
    answer = whole_answer(
        request,
        ids,
        "length",
        model=MODEL,
        fingerprint="fp",
        created_seconds=CREATED_SECONDS,
        usage=usage_of(tokens, request.max_tokens, None),
    )
    return json.dumps(answer).encode()


async def serve(port: int, interval_seconds: float) -> None:
    pace = Pace(interval_seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(pace), "127.0.0.1", port, backlog=512)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    assert len(VOCABULARY) > 1100
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
