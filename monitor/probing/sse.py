"""Server-sent events out of bytes that arrive in any pieces, as the WHATWG standard frames them."""

from __future__ import annotations

import re

MAX_EVENT_BYTES = 16 * 2**20
"""More than any answer: the first chunk of vLLM repeats the prompt as token ids, about 8 bytes each."""
_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventReader:
    """Takes bytes, gives the data of the events they complete. Comments and other fields are left out.

    Works on bytes alone, so that a character cut in two is whole again. An event without its blank line at the end of
    the stream was cut off and is never given out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_return = False
        self._at_start = True

    def feed(self, received: bytes) -> list[bytes]:
        """Data of every event completed by these bytes. Raises ValueError when an event passes MAX_EVENT_BYTES."""
        if not received:
            return []
        if self._is_one_event(received):
            self._after_return = self._at_start = False
            return [received[6:-2]]
        if self._after_return and received.startswith(b"\n"):
            received = received[1:]  # the second half of a line end that was taken for a lone \r
        self._after_return = received.endswith(b"\r") if received else False
        lines = _LINE_END.split(self._rest + received)
        self._rest = lines.pop()
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return [event for line in lines if (event := self._take(line)) is not None]

    def _is_one_event(self, received: bytes) -> bool:
        """Whether the bytes are one event of one line and nothing is pending: nearly always, and told at once."""
        return (
            received.startswith(b"data: ")
            and received.find(b"\n") == len(received) - 2
            and received.endswith(b"\n")
            and not (self._rest or self._data or b"\r" in received)
        )

    def _take(self, line: bytes) -> bytes | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            data, self._data = self._data, []
            return b"\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
