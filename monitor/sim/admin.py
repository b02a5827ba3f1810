"""The script of a simulated server as JSON: what `POST /_sim` understands."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from monitor.errors import UsageError
from monitor.sim.behaviour import Fault, FaultKind, from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.sim.model import Drafter
    from monitor.sim.server import SimulatedServer

Document = dict[str, Any]


def apply(server: SimulatedServer, document: object) -> None:
    """Apply the commands in `document` in the order they stand; UsageError names what is not understood.

    `drafter` {fields of Drafter, restart: bool} · `acceptance` {domain: [conditional by position]} · `restart` {fields
    of ServerConfig, target: name} · `reset` true: what it was started with · `behave` {fields of Behaviour} · `fault`
    {fields of Fault} · `clear_faults` true ·
    `traffic` {domain, requests, max_tokens}
    """
    if not isinstance(document, dict):
        raise UsageError("send a JSON object of commands")
    for command in document:
        if command not in _COMMANDS:
            raise UsageError(f"no command {command!r}; known are {', '.join(_COMMANDS)}")
    for command, argument in document.items():
        try:
            _COMMANDS[command](server, argument)
        except (TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"{command}: {error}") from error


def state(server: SimulatedServer) -> Document:
    """What the server is and has counted, for people and tests."""
    return {
        "model": server.config.model,
        "target": server.config.target.name,
        "version": server.config.version,
        "fingerprint": server.fingerprint,
        "drafter": asdict(server.drafter),
        "behaviour": asdict(server.behaviour),
        "running": sum(engine.running for engine in server.engines),
        "waiting": sum(engine.waiting for engine in server.engines),
        "finished": {reason: n for engine in server.engines for reason, n in engine.finished.items()},
        "started_seconds": server.started_seconds,
    }


def drafter_from(document: Document, base: Drafter) -> Drafter:
    """`base` with the fields of `document`; lists become tuples."""
    given = dict(document)
    if "acceptance" in given:
        given["acceptance"] = {domain: tuple(values) for domain, values in given["acceptance"].items()}
    if "default_acceptance" in given:
        given["default_acceptance"] = tuple(given["default_acceptance"])
    if unknown := sorted(given.keys() - {field.name for field in fields(base)}):
        raise UsageError(f"drafter has no {unknown[0]!r}; known are {', '.join(field.name for field in fields(base))}")
    return replace(base, **given)


def _swap_drafter(server: SimulatedServer, document: Document) -> None:
    given = dict(document)
    restart = given.pop("restart", True)
    server.swap_drafter(drafter_from(given, server.drafter), restart=restart)


def _set_acceptance(server: SimulatedServer, document: Document) -> None:
    for domain, conditionals in document.items():
        server.set_acceptance(domain, *conditionals)


def _restart(server: SimulatedServer, document: Document) -> None:
    given = dict(document)
    if "target" in given:
        given["target"] = replace(server.config.target, name=given["target"])
    if "drafter" in given:
        given["drafter"] = drafter_from(given["drafter"], server.drafter)
    server.restart(**given)


def _reset(server: SimulatedServer, _: object) -> None:
    """What it was started with, in another start of the server: the way back from every swap."""
    server.faults.clear()
    server.restart(drafter=server.first_config.drafter, target=server.first_config.target)


def _inject(server: SimulatedServer, document: Document) -> None:
    server.inject(from_json(Fault, {**document, "kind": FaultKind(str(document.get("kind")))}))


_COMMANDS: dict[str, Callable[[SimulatedServer, Any], None]] = {
    "drafter": _swap_drafter,
    "acceptance": _set_acceptance,
    "restart": _restart,
    "reset": _reset,
    "behave": lambda server, document: server.behave(**document),
    "fault": _inject,
    "clear_faults": lambda server, _: server.faults.clear(),
    "traffic": lambda server, document: server.traffic(**document),
}
