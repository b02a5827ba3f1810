"""An SMTP server that takes mail and refuses it as it is told. No TLS and no login: those are the library's."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from email import message_from_bytes, policy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage


class Mailbox:
    """What arrived in `messages`; `replies` gives a command (`RCPT`, `DATA`, `.`, `QUIT`, `MAIL`) another reply.

    A reply of None cuts the connection at that command; `.` is the end of a message, after which it has arrived.
    """

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.replies: dict[str, str | None] = {}
        self.port = 0

    @contextmanager
    def running(self) -> Iterator[Mailbox]:
        """Listens on loopback while the block runs."""
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="smtp")
        thread.start()
        self.port = int(server.server_address[1])
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def reply(self, command: str, usual: str) -> str | None:
        return self.replies.get(command, usual)


def _handler(mailbox: Mailbox) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 mailbox")
            while line := self.rfile.readline():
                command = line.split()[0].decode().upper()
                reply = mailbox.reply(command, {"DATA": "354 go on", "QUIT": "221 bye"}.get(command, "250 fine"))
                if reply is None:
                    return
                self._say(reply)
                if command == "QUIT" or (reply.startswith("354") and not self._taken()):
                    return

        def _taken(self) -> bool:
            body = b""
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                body += line
            reply = mailbox.reply(".", "250 taken")
            if reply is None or reply.startswith("250"):
                mailbox.messages.append(message_from_bytes(body, policy=policy.default))
            if reply is None:
                return False
            self._say(reply)
            return True

        def _say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

    return Handler
