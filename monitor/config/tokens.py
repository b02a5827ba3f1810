"""Tokens of the HTTP API: who may ask for what."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from monitor.config.secrets import Secret
from monitor.config.strict import Name, StrictModel, at_least_one

Scope = Literal["bump", "gates:read", "gates:write"]
"""What a token may ask for."""


class ApiToken(StrictModel):
    """A caller of the HTTP API, known by the bearer token that it sends."""

    name: Name = Field(examples=["ci"], description="Who it is, in records of what was asked for; unique.")
    token: Secret = Field(
        examples=[{"env": "SPECWATCH_CI_TOKEN"}],
        description="What it sends as `Authorization: Bearer`, named by `{env: NAME}` or `{file: PATH}`.",
    )
    scopes: Annotated[tuple[Scope, ...], AfterValidator(at_least_one)] = Field(
        examples=[["bump"]],
        description="What it may ask for: `bump`, to announce bumps; `gates:write`, to have gates measured and to "
        "cancel them; `gates:read`, to read them.",
    )


def distinct_tokens(tokens: tuple[ApiToken, ...]) -> tuple[ApiToken, ...]:
    """The tokens themselves. Raises ValueError for a name given twice."""
    names = [token.name for token in tokens]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ValueError(f"two tokens are named {name!r}; a name is given once")
    return tokens
