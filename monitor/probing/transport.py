"""What errors of the HTTP libraries mean. Their own messages differ between versions and say less."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import httpx

from monitor.engines.failures import failure, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.errors import TargetError

_CERTIFICATE = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed",
    19: "its certificate is signed by an unknown authority",
    20: "its certificate is signed by an unknown authority",
    21: "its certificate is signed by an unknown authority",
    62: "its certificate is for another host name",
    64: "its certificate is for another address",
}
"""By OpenSSL's X509_V_ERR_ codes."""


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turns every error of the transport inside into the TargetError that it means.

    The chain of causes is dropped: it holds the request, and with it the key.
    """
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, aiohttp.ClientError, OSError) as error:
        raise _meaning(url, error) from None


def _meaning(url: str, error: Exception) -> TargetError:
    # httpx-aiohttp turns several errors of aiohttp into ConnectTimeout; only the cause tells them apart.
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    if isinstance(cause, aiohttp.ClientConnectorCertificateError):
        return failure("tls", url, _certificate_fault(cause.certificate_error))
    if isinstance(cause, aiohttp.ClientSSLError):
        return failure("tls", url, "no TLS connection; perhaps the server speaks plain http://")
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return failure("connect_timeout", url, "no connection within the time allowed")
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return failure("unreachable", url, "the host name cannot be resolved")
    if isinstance(cause, aiohttp.ClientConnectorError):
        return failure("unreachable", url, f"no connection ({_system_text(cause.os_error)})")
    if isinstance(cause, aiohttp.ServerDisconnectedError):
        return failure("cut_off", url, "the connection was closed before an answer")
    if isinstance(cause, aiohttp.ClientPayloadError | aiohttp.ClientOSError | httpx.ReadError):
        return failure("cut_off", url, "the connection broke in mid-answer")
    if isinstance(cause, aiohttp.ClientResponseError):
        return failure("not_openai", url, "what answers here does not speak HTTP")
    if isinstance(cause, httpx.DecodingError):
        return failure("not_openai", url, "the answer cannot be decompressed")
    if isinstance(cause, aiohttp.InvalidURL | httpx.InvalidURL | httpx.UnsupportedProtocol):
        return failure("unreachable", url, "this is not an address")
    return failure("unreachable", url, f"the request failed ({one_line(type(cause).__name__)})")


def _system_text(error: OSError) -> str:
    """The system's words for the error; asyncio puts addresses of its own into `strerror`."""
    return os.strerror(error.errno).lower() if error.errno else "refused"


def _certificate_fault(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code, f"its certificate is refused ({error.verify_message})")
    return "its certificate is refused"
