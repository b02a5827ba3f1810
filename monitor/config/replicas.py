"""Where the replicas of a route are: listed, or found again and again by name, file or HTTP."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictStr,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from monitor.config.secrets import from_directory
from monitor.config.strict import LONGEST_URL, StrictModel, Text, at_least_one
from monitor.core.address import shown_url

_BEYOND_THE_ROOT = re.compile(r"/(v1|metrics|health|version)(/.*)?$")


def replica_url(url: str) -> str:
    """The base URL of a server as it is stored: scheme and host in lower case, no slash at the end.

    Raises ValueError for anything that is not the root (or a prefix) of an HTTP server, and for credentials in it.
    """
    shown = shown_url(url)
    if url != url.strip() or any(character.isspace() for character in url):
        raise ValueError(f"{shown!r} has white space in it")
    if len(url) > LONGEST_URL:
        raise ValueError(f"a URL of {len(url)} characters is refused; {LONGEST_URL} are allowed")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text repeats a part of the URL
        raise ValueError(
            f"{shown!r} is no URL, or its port is not one from 1 to 65535; write for example http://vllm-0:8000"
        ) from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user or password in it is refused; use api_key or headers with a secret")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{shown!r} is not a server's address; write for example http://vllm-0:8000")
    if parts.query or parts.fragment:
        raise ValueError(f"{shown!r} has a query or fragment; write only the server's address")
    path = parts.path.rstrip("/")
    if found := _BEYOND_THE_ROOT.search(path):
        raise ValueError(f"{shown!r} goes beyond the server's root; leave out {found[0]!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "") + path


Url = Annotated[StrictStr, AfterValidator(replica_url)]


def _web_address(url: str) -> str:
    """The URL itself. Raises ValueError unless it is one of HTTP without credentials, of which nothing is repeated."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(letter.isspace() for letter in url):
        raise ValueError("this is not an address; write for example http://inventory/vllm")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user or password in it is refused")
    return url


class Discovery(StrictModel):
    """Instead of a list: where the replicas are found, looked at again before each scheduled run and every minute."""

    dns: Url | None = Field(
        default=None,
        examples=["http://vllm.svc:8000"],
        description="Base URL whose host name stands for all its addresses, a replica each: a Kubernetes headless "
        "service is one. IPv4 where it has any, else IPv6. Requests go to the address and carry the name (Host header, "
        "and TLS checks the certificate for it). Unset: found otherwise.",
    )
    file_sd: Path | None = Field(
        default=None,
        examples=["vllm.json"],
        description="JSON or YAML file in the shape of Prometheus' `file_sd_configs`, read again when it has changed: "
        "a list of groups with `targets` (`HOST:PORT`, or base URLs) and optional `labels`, of which `__scheme__` "
        "counts. A relative path starts at the configuration directory. Unset: found otherwise.",
    )
    http_sd: Annotated[Text, AfterValidator(_web_address)] | None = Field(
        default=None,
        examples=["http://inventory/vllm"],
        description="URL that answers with the same list as JSON, as Prometheus' `http_sd_configs` have it. It is "
        "asked without the route's key and headers; `ca_file` counts. Unset: found otherwise.",
    )

    @field_validator("file_sd")
    @classmethod
    def _from_the_directory(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return from_directory(path, info)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(value is not None for value in (self.dns, self.file_sd, self.http_sd)) != 1:
            raise ValueError("give exactly one of dns, file_sd and http_sd")
        return self

    @property
    def key(self) -> str:
        """The one key that is given."""
        return "dns" if self.dns is not None else "file_sd" if self.file_sd is not None else "http_sd"

    @property
    def shown(self) -> str:
        """Where, without what may be secret."""
        return shown_url(self.http_sd) if self.http_sd is not None else str(self.dns or self.file_sd)


def _distinct(replicas: tuple[str, ...]) -> tuple[str, ...]:
    for position, replica in enumerate(replicas):
        if replica in replicas[:position]:
            raise ValueError(f"{replica!r} is listed twice")
    return replicas


Listed = Annotated[tuple[Url, ...], AfterValidator(at_least_one), AfterValidator(_distinct)]
# Tags of union members are in angle brackets so that `load` can leave them out of the path in a message.
LISTED, FOUND = "<listed>", "<found>"
ListedOrFound = Annotated[
    Annotated[Listed, Tag(LISTED)] | Annotated[Discovery, Tag(FOUND)],
    Discriminator(lambda value: FOUND if isinstance(value, Mapping | Discovery) else LISTED),
]


def targets_of(document: Any) -> tuple[str, ...]:
    """Base URLs named by a document in the shape of Prometheus' file_sd and http_sd, sorted, each once.

    Raises ValueError saying what was expected instead of what is there.
    """
    if not isinstance(document, list):
        raise ValueError("is not a list of groups, such as [{targets: [vllm-0:8000]}]")  # noqa: TRY004  (as all others)
    return tuple(sorted({url for position, group in enumerate(document) for url in _group(group, f"[{position}]")}))


def _group(group: Any, where: str) -> list[str]:
    targets = group.get("targets") if isinstance(group, Mapping) else None
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise ValueError(f"{where} has no list of texts named targets")
    labels = group.get("labels") or {}
    scheme = labels.get("__scheme__", "http") if isinstance(labels, Mapping) else "http"
    return [_target(target, scheme, f"{where}.targets") for target in targets]


def _target(target: str, scheme: object, where: str) -> str:
    try:
        return replica_url(target if "://" in target else f"{scheme}://{target}")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
