"""Serves a simulator with uvicorn: in a thread of this process, or as the process itself."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from starlette.types import ASGIApp

_START_SECONDS = 10.0
_STOP_SECONDS = 10.0
_SILENT = logging.Logger("simulator")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class _Protocol(H11Protocol):
    """A cut connection is what the script asked for, not an error to log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _SILENT


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()


def _server(app: ASGIApp, certfile: Path | None, keyfile: Path | None) -> _Server:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
        timeout_graceful_shutdown=1,
    )
    return _Server(config)


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket that says it is TCP: only then does asyncio send every chunk at once (TCP_NODELAY)."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2048)
    return listener


@contextlib.contextmanager
def in_thread(
    app: ASGIApp, stop: Callable[[], None], *, port: int, certfile: Path | None, keyfile: Path | None
) -> Iterator[str]:
    """Serve on loopback while the block runs; `stop` must end all open requests. Gives the base URL."""
    listener = _listener("127.0.0.1", port)
    server = _server(app, certfile, keyfile)
    thread = threading.Thread(target=server.run, args=([listener],), name="simulator", daemon=True)
    thread.start()
    try:
        if not server.ready.wait(_START_SECONDS):
            raise RuntimeError("the simulated server did not start")
        yield f"{'https' if certfile else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        stop()
        thread.join(_STOP_SECONDS)
        listener.close()


def serve_forever(app: ASGIApp, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the base URL once connections are accepted."""
    listener = _listener(host, port)
    ready(f"http://{host}:{listener.getsockname()[1]}")
    _server(app, None, None).run([listener])
