"""Secrets are named in YAML, never written there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from monitor.config.strict import StrictModel, Text
from monitor.errors import ConfigError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
REFUSED = "a secret is not written in this file; name where it is: {env: NAME} or {file: PATH}"


class Secret(StrictModel):
    """Where a secret is kept: `{env: NAME}` or `{file: PATH}`, exactly one of them.

    Holds no secret itself, so that printing or logging a configuration reveals nothing.
    """

    env: Text | None = Field(
        default=None,
        examples=["VLLM_KEY"],
        description="Environment variable that holds the secret. When it is unset, `NAME_FILE` may hold the path of a "
        "file with the secret instead.",
    )
    file: Path | None = Field(
        default=None,
        examples=["/run/secrets/vllm_key"],
        description="File that holds the secret, and nothing else; a newline at its end is dropped. A relative path "
        "starts at the configuration directory.",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_a_literal(cls, value: Any) -> Any:
        if isinstance(value, str | int | float):
            # Not a TypeError: pydantic turns only ValueError into a line for the user.
            raise ValueError(REFUSED)  # noqa: TRY004
        return value

    @field_validator("env")
    @classmethod
    def _a_variable(cls, name: str | None) -> str | None:
        # The value is not shown: it may be the secret itself, put in the wrong place.
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("this is not the name of an environment variable; a secret itself is never written here")
        return name

    @field_validator("file")
    @classmethod
    def _from_the_directory(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return from_directory(path, info)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of env and file")
        return self

    def reveal(self, environment: Mapping[str, str]) -> str:
        """The secret's text now, read again at each call so that a rotated file is followed.

        Raises ConfigError naming the variable and file when it is unset, unreadable or empty; never with its content.
        """
        if self.file is not None:
            return _read(self.file, str(self.file))
        name = self.env or ""
        if environment.get(name):
            return environment[name]
        if path := environment.get(f"{name}_FILE"):
            return _read(Path(path), f"{path} (from {name}_FILE)")
        state = "is empty" if name in environment else "is not set"
        raise ConfigError(f"environment variable {name} {state}; set it, or set {name}_FILE to the path of a file")


def _read(path: Path, shown: str) -> str:
    try:
        secret = path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigError(f"secret file {shown} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"secret file {shown} is not text in UTF-8") from None
    if not secret.strip():
        raise ConfigError(f"secret file {shown} is empty")
    if "\n" in secret:
        raise ConfigError(f"secret file {shown} has more than one line")
    return secret


def from_directory(path: Path | None, info: ValidationInfo) -> Path | None:
    """A relative path of a configuration file, made to start at the directory given in the validation context."""
    directory = (info.context or {}).get("directory")
    return path if path is None or directory is None else Path(directory) / path.expanduser()
