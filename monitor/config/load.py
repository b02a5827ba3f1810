"""Finds, reads and checks the two configuration files; every problem is told at once."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from monitor.config.alerting import Alerting, Heartbeat
from monitor.config.document import Document, Where, read_document, spelled
from monitor.config.explain import explain
from monitor.config.gates import Gates
from monitor.config.receivers import Receiver
from monitor.config.references import unmatched, written_routes
from monitor.config.retention import Retention
from monitor.config.routes import Route, RoutesFile
from monitor.config.secrets import Secret
from monitor.config.settings import Settings
from monitor.config.tokens import ApiToken
from monitor.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
Found = tuple[str, Where, Secret | Path]
"""A secret or certificate file: the file that names it, and at which key."""

_HOLDERS: Mapping[str, Mapping[str, type[BaseModel]]] = {
    "routes.yaml": {"routes": Route, "api_tokens": ApiToken},
    "alerting.yaml": {"receivers": Receiver, "heartbeat": Heartbeat},
}
"""The sections of each file that may name a secret."""

# Settings that are mappings: a route's keys are laid over those of `defaults` instead of replacing them all.
MERGED_BY_KEY = frozenset({"chat_template_kwargs", "extra_body", "headers", "identity", "stand_aside", "timeouts"})


@dataclass(frozen=True)
class Config:
    """Both files, checked, with every default in place.

    `prompts` is the user's own directory of prompt sets, or None for those that come with Specwatch.
    """

    directory: Path
    routes: tuple[Route, ...]
    alerting: Alerting
    prompts: Path | None
    api_tokens: tuple[ApiToken, ...] = ()
    gates: Gates = field(default_factory=Gates)
    retention: Retention = field(default_factory=Retention)


def config_directory(option: str | None, environment: Mapping[str, str]) -> Path:
    """Where the files are: `--config`, else SPECWATCH_CONFIG, else the working directory.

    Raises ConfigError when that is not a directory.
    """
    named_by = "--config" if option else "SPECWATCH_CONFIG"
    directory = Path(option or environment.get("SPECWATCH_CONFIG") or ".").expanduser()
    if directory.is_dir():
        return directory.resolve()
    reason = "is a file; give the directory that holds it" if directory.exists() else "is not there"
    raise ConfigError(f"{named_by}: the configuration directory {directory} {reason}")


def load_config(
    directory: Path, known_domains: Collection[str], environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration in `directory`; `known_domains` are the prompt sets that come with Specwatch.

    When routes.yaml names a prompt directory of its own, the files there are the known domains instead. With an
    `environment` every secret and certificate file is read once, too. Raises ConfigError with one line for each
    problem in either file, and for each thing that could not be looked at before these are mended.
    """
    documents = [read_document(directory / name) for name in ("routes.yaml", "alerting.yaml")]
    routes_document, alerting_document = documents
    routes_data, known = _with_defaults(routes_document, directory, known_domains)
    context = {"directory": directory, "known_domains": known}
    routes = _validated(RoutesFile, routes_document, routes_data, context)
    alerting = _validated(Alerting, alerting_document, alerting_document.data, context)
    unchecked = _check_references(alerting_document, routes_data)
    if environment is not None:
        found, unread = _secrets_of(_secret_holders(documents, (routes_data, alerting_document.data), context))
        _check_secrets(found, environment, {document.file: document for document in documents})
        unchecked += unread
    problems = [*routes_document.problems, *alerting_document.problems]
    if problems or routes is None or alerting is None:
        raise ConfigError("\n".join([*map(str, problems), *(f"fix these first; {it}" for it in unchecked)]))
    return Config(directory, routes.routes, alerting, routes.prompts, routes.api_tokens, routes.gates, routes.retention)


def check_secrets(config: Config, environment: Mapping[str, str]) -> None:
    """As `load_config` with an environment, of a configuration that is loaded: its lines are no longer known."""
    documents = {name: Document(name) for name in ("routes.yaml", "alerting.yaml")}
    _check_secrets(_secrets(config), environment, documents)
    problems = [problem for document in documents.values() for problem in document.problems]
    if problems:
        raise ConfigError("\n".join(map(str, problems)))


def _check_secrets(secrets: Iterable[Found], environment: Mapping[str, str], documents: Mapping[str, Document]) -> None:
    """Adds a problem for each secret that cannot be had, where it is first named."""
    told = set[Secret | Path]()
    for file, where, secret in secrets:
        try:
            _read_once(secret, environment)
        except ConfigError as error:
            if secret not in told:
                documents[file].problems.append(documents[file].problem(_written(where, documents[file]), str(error)))
            told.add(secret)


def _written(where: Where, document: Document) -> Where:
    """Where the user wrote what a route may have from `defaults`."""
    default = ("defaults", *where[2:])
    inherited = where[0] == "routes" and where not in document.lines and default in document.lines
    return default if inherited else where


def _read_once(secret: Secret | Path, environment: Mapping[str, str]) -> None:
    if isinstance(secret, Secret):
        secret.reveal(environment)
    elif not os.access(secret, os.R_OK) or secret.is_dir():
        raise ConfigError(f"{secret} cannot be read")


def _secrets(config: Config) -> Iterator[Found]:
    for position, route in enumerate(config.routes):
        found = _walk(route, ("routes", position))
        yield from (("routes.yaml", where, value) for where, value in found)
    found = _walk(config.api_tokens, ("api_tokens",))
    yield from (("routes.yaml", where, value) for where, value in found)
    yield from (("alerting.yaml", where, value) for where, value in _walk(config.alerting, ()))


def _walk(value: Any, where: Where) -> Iterator[tuple[Where, Secret | Path]]:
    if isinstance(value, Secret | Path):
        yield where, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _walk(getattr(value, name), (*where, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, (*where, key))
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from _walk(item, (*where, position))


def _secret_holders(
    documents: list[Document], data: tuple[object, object], context: Mapping[str, Any]
) -> Iterator[tuple[str, Where, BaseModel | None]]:
    """Every part of both files that may name a secret; None in place of one with mistakes that hide what it names."""
    for document, content in zip(documents, data, strict=True):
        if not isinstance(content, Mapping):
            yield document.file, (), None
            continue
        for section, model in _HOLDERS[document.file].items():
            parts = content.get(section)
            for position, part in enumerate(parts if isinstance(parts, list) else [] if parts is None else [parts]):
                where = (section, position) if isinstance(parts, list) else (section,)
                yield document.file, where, _without_mistakes(model, part, context)


def _without_mistakes(model: type[BaseModel], part: object, context: Mapping[str, Any]) -> BaseModel | None:
    """The part, without those of its keys that are wrong; None where it is nothing without them."""
    try:
        return model.model_validate(part, context=dict(context))
    except ValidationError as error:
        wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
    if not isinstance(part, Mapping) or not wrong & part.keys():
        return None
    return _without_mistakes(model, {key: value for key, value in part.items() if key not in wrong}, context)


def _secrets_of(holders: Iterable[tuple[str, Where, BaseModel | None]]) -> tuple[list[Found], list[str]]:
    """The secrets that are named, and a sentence for each part of which they cannot be known."""
    found, unread = list[Found](), list[str]()
    for file, where, holder in holders:
        if holder is None:
            unread.append(f"the secrets of {': '.join(filter(None, (file, spelled(where))))} were not checked")
        else:
            found += [(file, place, secret) for place, secret in _walk(holder, where)]
    return found, unread


def _with_defaults(
    document: Document, directory: Path, bundled: Collection[str]
) -> tuple[Mapping[str, Any] | None, Collection[str]]:
    """The content of routes.yaml with `defaults` laid under every route, and the domains there are."""
    if not isinstance(document.data, Mapping):
        return None, bundled
    known = _known_domains(document, directory, bundled)
    data = {**document.data}
    routes, defaults = data.get("routes"), data.get("defaults")
    if isinstance(routes, list):
        inherited = _inherited(defaults) | {"domains": sorted(known)}
        data["routes"] = [_merged(inherited, route) if isinstance(route, Mapping) else route for route in routes]
    return data, known


def _known_domains(document: Document, directory: Path, bundled: Collection[str]) -> Collection[str]:
    own = document.data.get("prompts")
    if not isinstance(own, str):
        return bundled
    domains = {file.stem for file in (directory / Path(own).expanduser()).glob("*.jsonl")}
    if not domains:
        message = f"no prompt sets (files DOMAIN.jsonl) in {directory / own}"
        document.problems.append(document.problem(("prompts",), message))
    return domains or bundled


def _inherited(defaults: object) -> dict[str, Any]:
    if not isinstance(defaults, Mapping):
        return {}
    return {key: value for key, value in defaults.items() if key in Settings.model_fields}


def _merged(inherited: Mapping[str, Any], route: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**inherited, **route}
    for key in MERGED_BY_KEY & inherited.keys() & route.keys():
        if isinstance(inherited[key], Mapping) and isinstance(route[key], Mapping):
            merged[key] = {**inherited[key], **route[key]}
    return merged


def _validated(model: type[Model], document: Document, data: object, context: Mapping[str, Any]) -> Model | None:
    if not isinstance(data, Mapping):
        return None
    try:
        return model.model_validate(data, context=dict(context))
    except ValidationError as error:
        problems = explain(error, model, document)
        document.problems += sorted(problems, key=lambda problem: problem.line or 0)
        return None


def _check_references(alerting: Document, routes: Mapping[str, Any] | None) -> list[str]:
    """Adds a problem for each name that means nothing; or says that this cannot be known."""
    written = written_routes((routes or {}).get("routes"))
    if not written or not isinstance(alerting.data, Mapping):
        return ["references between the files were not checked"]
    unmatched(alerting, written)
    return []
