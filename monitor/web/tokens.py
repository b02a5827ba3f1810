"""Who asks, by the bearer token of a request, and whether they may."""

from __future__ import annotations

import base64
import hmac
import logging
import os
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from monitor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from monitor.config.tokens import ApiToken, Scope

logger = logging.getLogger(__name__)


def authorised(request: Request, tokens: Sequence[ApiToken], scope: Scope) -> ApiToken | JSONResponse:
    """The token that may ask for this, or the answer that says why not: 401 who are you, 403 not this.

    Every token is compared, each in constant time, so that the time of an answer says nothing of one.
    """
    if not tokens:
        example = f"api_tokens: [{{name: ci, token: {{env: SPECWATCH_CI_TOKEN}}, scopes: [{scope}]}}]"
        return problem(403, f"nobody may ask for this: routes.yaml has no api_tokens; set for example {example}")
    sent = _sent(request.headers.get("authorization", ""))
    if not sent:
        said = f"send the header 'Authorization: Bearer TOKEN' with a token of api_tokens that has the scope {scope}"
        return problem(401, said, **{"WWW-Authenticate": "Bearer"})
    found = [token for token in tokens if _is(token, sent)]
    if not found:
        said = f"this token is none of api_tokens in routes.yaml; one with the scope {scope} is needed"
        return problem(401, said, **{"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return found[0] if scope in found[0].scopes else lacking(found[0], scope)


def lacking(token: ApiToken, scope: Scope) -> JSONResponse:
    """The answer to a token that may not ask for this."""
    has = ", ".join(token.scopes)
    return problem(403, f"token {token.name} lacks the scope {scope}, it has {has}; add it under api_tokens")


def asked_route(request: Request) -> str | None:
    """The route that a listing is asked for; NUL, which Postgres has no text with, is replaced: no route has either."""
    name = request.query_params.get("route")
    return None if name is None else name.replace("\0", "\ufffd")


def problem(status: int, error: str, **headers: str) -> JSONResponse:
    """An answer that says what is wrong and what to do."""
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def _sent(header: str) -> str:
    """The bearer token, or the password of callers that know only http://NAME:TOKEN@…, as Flagger."""
    kind, _, sent = header.partition(" ")
    if kind.lower() == "bearer":
        return sent.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(sent.strip(), validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def _is(token: ApiToken, sent: str) -> bool:
    """Read anew at each request, so that a rotated file is followed; one that cannot be had fits nobody."""
    try:
        secret = token.token.reveal(os.environ)
    except ConfigError as error:
        logger.warning("api_tokens: %s cannot be used: %s", token.name, error)
        return False
    return hmac.compare_digest(secret.encode(), sent.encode("latin-1"))  # as headers are
