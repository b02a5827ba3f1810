"""The server of the web pages and the API: the address it listens on, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING

import uvicorn

from monitor.core.address import is_loopback
from monitor.errors import UsageError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from monitor.config.load import Config

logger = logging.getLogger(__name__)

LAST_ANSWER_SECONDS = 2
"""How long open connections to the web pages may last after everything else has ended."""


def listener(host: str, port: int) -> socket.socket:
    """Bound before anything else is begun. Raises UsageError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise UsageError(
            f"--listen {host}:{port}: {error.strerror}; choose another, as in --listen {host}:8410"
        ) from None
    return sock


def web_server(app: Starlette) -> uvicorn.Server:
    """Ends by its `should_exit` alone: signals are the service's."""
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWER_SECONDS,
    )
    server = uvicorn.Server(settings)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    return server


def warn_of_any_candidate(config: Config, host: str) -> None:
    """Whoever holds one of these tokens could have any server called from here, with a route's key."""
    asking = [token.name for token in config.api_tokens if "gates:write" in token.scopes]
    if asking and config.gates.candidates is None and not is_loopback(host):
        logger.warning(
            "gates.candidates is unset in routes.yaml, and this listens on %s: with the token of %s a gate "
            "may call any server, with a route's key; name the candidates' hosts there",
            host,
            ", ".join(asking),
        )
