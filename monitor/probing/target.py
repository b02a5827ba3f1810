"""Who is asked: one replica's address, and what every request to it carries."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from monitor.core.address import RANK_HEADER, at_rank
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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
    def url(self) -> str:
        return self.base_url.rstrip("/")

    @property
    def replica(self) -> str:
        """Its name as a replica: the base URL, with the rank where there is one."""
        return at_rank(self.url, self.data_parallel_rank)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may hold."""
        return tuple(secret for secret in (self.api_key, *self.headers.values()) if secret)

    @property
    def tls_name(self) -> str | None:
        """Whom its certificate is for, where that is not the host of the URL."""
        if self.server_name is None:
            return None
        return urlsplit(f"//{self.server_name}").hostname or self.server_name

    def request_headers(self) -> dict[str, str]:
        """Those of every request. Raises UsageError for a value that a header cannot carry."""
        headers = dict(self.headers)
        if self.server_name is not None:
            headers.setdefault("Host", self.server_name)
        if self.data_parallel_rank is not None:
            headers[RANK_HEADER] = str(self.data_parallel_rank)
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise UsageError(
                    f"the value for header {name} has characters that a header cannot carry; check the secret"
                )
        return headers

    def tls_context(self) -> ssl.SSLContext:
        """The usual authorities and those of `ca_file`. Raises UsageError when that file is no use."""
        if not self.base_url.lower().startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; loading the authorities takes 20 ms
        context = httpx.create_ssl_context()
        if self.ca_file is not None:
            try:
                context.load_verify_locations(cafile=self.ca_file)
            except ssl.SSLError:
                raise UsageError(f"CA file {self.ca_file} holds no certificate in PEM form") from None
            except OSError as error:
                raise UsageError(f"CA file {self.ca_file} cannot be read: {error.strerror}") from None
        return context
