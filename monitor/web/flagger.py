"""`/api/v1/flagger`: Flagger's web hooks ask for a gate of the canary, and again until it lets it go on.

Flagger posts name, namespace, phase, checksum and the hook's own metadata; 2xx lets the canary go on, anything else
halts it, and the body is shown in its events.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.core.gate import Decision
from monitor.core.gate_status import OPEN
from monitor.web.gates import body_of, gate_of
from monitor.web.tokens import authorised, problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from monitor.config.tokens import ApiToken
    from monitor.store.database import Database
    from monitor.web.gates import Ask

PATH = "/api/v1/flagger"
ROLLBACK_PATH = f"{PATH}/rollback"
OF_THE_CANARY = ("name", "namespace", "checksum")
NOT_YET, NOT_PASSED = 409, 412


def flagger_api(database: Database, tokens: Sequence[ApiToken], ask: Ask) -> list[Route]:
    """Every hook of one canary's revision asks for one gate: name, namespace and checksum are its key."""

    async def gate(request: Request) -> dict[str, Any] | Response:
        token = authorised(request, tokens, "gates:write")
        if isinstance(token, Response):
            return token
        sent = await body_of(request)
        if isinstance(sent, Response):
            return sent
        missing = [name for name in OF_THE_CANARY if not isinstance(sent.get(name), str) or not sent[name]]
        metadata = sent.get("metadata")
        if missing or not isinstance(metadata, dict):
            said = f"without {', '.join(missing or ['metadata'])} this is no web hook of Flagger's"
            return problem(400, f"{said}; its metadata has route and candidate")
        key = "flagger {namespace}/{name} {checksum}".format(**sent)
        return await gate_of(database, ask, _options(metadata), token, key)

    async def advance(request: Request) -> Response:
        found = await gate(request)
        if isinstance(found, Response):
            return found
        return _told(found, passed=found["status"] == "done" and found["verdict"] == Decision.PASS)

    async def rollback(request: Request) -> Response:
        found = await gate(request)
        if isinstance(found, Response):
            return found
        return _told(found, passed=found["status"] == "done" and found["verdict"] == Decision.FAIL)

    return [Route(PATH, advance, methods=["POST"]), Route(ROLLBACK_PATH, rollback, methods=["POST"])]


def _options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Flagger's metadata are texts: numbers, lists and yes or no are read from them."""
    asked = dict(metadata)
    for name in ("prompts", "min_prompts"):
        if isinstance(text := asked.get(name), str) and text.isdecimal():
            asked[name] = int(text[:9])
    if isinstance(text := asked.get("min_speedup"), str):
        with suppress(ValueError):  # whoever reads the request says what is wrong with it
            asked["min_speedup"] = float(text)
    if (text := asked.get("promote")) in ("true", "false"):
        asked["promote"] = text == "true"
    if isinstance(domains := asked.get("domains"), str):
        asked["domains"] = [domain.strip() for domain in domains.split(",")]
    return asked


def _told(gate: Mapping[str, Any], *, passed: bool) -> Response:
    state = gate["status"] if gate["verdict"] is None else gate["verdict"]
    status = 200 if passed else NOT_YET if gate["status"] in OPEN else NOT_PASSED
    return PlainTextResponse(f"gate {gate['id']} {state}: {gate['text']}\n", status_code=status)
