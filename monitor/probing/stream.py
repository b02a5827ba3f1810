"""One streamed answer: its bytes as they arrive, and the events in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from monitor.engines.failures import failure
from monitor.errors import TargetError
from monitor.probing.sse import EventReader
from monitor.probing.transport import explained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import httpx

    from monitor.probing.patience import Patience

DONE = b"[DONE]"
PIECES_KEPT = 16
"""Network reads kept until they are looked at: reading many in a row costs half of what turning to each alone does."""

Piece = tuple[float, bytes]
"""Bytes of one network read, and when they arrived, in seconds since the request was sent."""


class Event(NamedTuple):
    """Data of one event, and when its last bytes arrived, in seconds since the request was sent."""

    seconds: float
    data: bytes


class Stream:
    """The answer to one request that was sent at `sent_at`, in the seconds of `monotonic`.

    `cleaned` takes out of an event what nobody may see.
    """

    def __init__(
        self,
        response: httpx.Response,
        patience: Patience,
        monotonic: Callable[[], float],
        sent_at: float,
        cleaned: Callable[[bytes], bytes],
    ) -> None:
        # Bytes that nobody compressed need no decoder, which every chunk would pass through.
        self._pieces = response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()
        self._patience = patience
        self._monotonic = monotonic
        self._sent_at = sent_at
        self._cleaned = cleaned

    async def events(self, begins: Callable[[bytes], bool]) -> AsyncGenerator[Event, None]:
        """Every event up to `[DONE]`; after the first token handed on some PIECES_KEPT reads at a time.

        `begins` recognises the event that ends the wait for the first token.
        """
        reader, waiting = EventReader(), True
        while True:
            pieces: list[Piece] = []
            failed = await self._fill(pieces, 1 if waiting else PIECES_KEPT)
            for seconds, received in pieces:
                for data in self._split(reader, received):
                    if data == DONE:
                        return
                    data = self._cleaned(data)
                    if waiting and begins(data):
                        waiting = False
                        self._patience.progressed()
                    yield Event(seconds, data)
            if failed is not None:
                raise failed

    async def _fill(self, pieces: list[Piece], count: int) -> TargetError | None:
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

    def _split(self, reader: EventReader, received: bytes) -> list[bytes]:
        try:
            return reader.feed(received)
        except ValueError as error:
            raise failure("not_openai", self._patience.url, f"the stream has {error}") from None
