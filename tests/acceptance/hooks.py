"""A web hook that records what it gets and misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Message:
    """What arrived: the delivery's key and Alertmanager's body."""

    key: str
    body: dict[str, Any]

    @property
    def transition(self) -> str:
        return str(self.body["alerts"][0]["annotations"]["transition"])


class Hook:
    """Takes messages; `answer` is the status it gives, None to keep the sender waiting until `let_go`.

    An answer takes `delay_seconds`. While `deaf` a request is not even read: it counts as reached, never as taken.
    """

    def __init__(self) -> None:
        self.answer: int | None = 200
        self.deaf = False
        self.delay_seconds = 0.0
        self.reached = threading.Event()
        self.messages: list[Message] = []
        self.url = ""
        self._go = threading.Event()

    def let_go(self) -> None:
        """Ends every wait, and takes messages from now on."""
        self.deaf, self.answer = False, 200
        self._go.set()

    def transitions(self) -> list[str]:
        """Of the messages in the order they first arrived."""
        return list(dict.fromkeys(message.transition for message in self.messages))

    def handle(self, request: BaseHTTPRequestHandler) -> int | None:
        """Reads a request as told; returns the status to answer, None to cut the connection."""
        if self.deaf:
            self.reached.set()
            self._go.wait()
            return None
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.messages.append(Message(request.headers.get("X-Specwatch-Delivery", ""), body))
        self.reached.set()
        time.sleep(self.delay_seconds)
        if self.answer is None:
            self._go.wait()
            return None
        return self.answer

    @contextmanager
    def running(self) -> Iterator[Hook]:
        """Listens on loopback while the block runs."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="hook")
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield self
        finally:
            self.let_go()
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(hook: Hook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status = hook.handle(self)
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
            return

    return Handler
