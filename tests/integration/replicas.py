"""What the probing tests share: prompts, short time-outs, certificates, and a server that sends what it is told."""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from monitor.core.records import Run, Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing import watch
from monitor.probing.client import Client
from monitor.probing.replay import replay
from monitor.probing.target import Target, Timeouts
from monitor.prompts.sets import Prompt, PromptSet, content_hash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

QUICK = Timeouts(connect_seconds=5.0, first_token_seconds=5.0, stall_seconds=1.0, total_seconds=15.0)


def prompt_set(count: int = 6, turns: int = 1) -> PromptSet:
    prompts = tuple(
        Prompt(f"q{n}", "coding", "", tuple(f"Prompt {n}, turn {turn}" for turn in range(turns))) for n in range(count)
    )
    return PromptSet("coding", prompts, content_hash(prompts))


def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the pages that are asked for from now on, but for the look once a second."""
    asked: list[str] = []
    get_text = Client.get_text

    async def listed(client: Client, path: str) -> str:
        asked.append(path)
        return await get_text(client, path)

    monkeypatch.setattr(Client, "get_text", listed)
    monkeypatch.setattr(watch, "LOAD_EVERY_SECONDS", 60.0)
    return asked


async def run_of(target: Target | str, prompts: PromptSet | None = None, **options: object) -> Run:
    """A run against the target, with what its replay is given."""
    if isinstance(target, str):
        target = Target(target, timeouts=QUICK)
    settings = {"route": "r", "sampling": Sampling(max_tokens=40), **options}
    run = await replay(target, VllmEngine(), prompts or prompt_set(), **settings)  # type: ignore[arg-type]
    assert isinstance(run, Run)
    return run


@asynccontextmanager
async def sends(*answers: bytes) -> AsyncIterator[str]:
    """A server that sends the next answer to each connection, the last one for ever, and closes it."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def response(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP/1.1 response whose end is the end of the connection."""
    lines = [f"HTTP/1.1 {status}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def certificate(directory: Path, *, name: str = "127.0.0.1", days: int = 1) -> tuple[Path, Path]:
    """A self-signed certificate and its key, valid until `days` from now; as its own authority it can be trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    until = datetime.now(UTC) + timedelta(days=days)
    try:
        host: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        host = x509.DNSName(name)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - timedelta(days=30))
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certfile, keyfile = directory / "server.pem", directory / "server.key"
    certfile.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    keyfile.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certfile, keyfile
