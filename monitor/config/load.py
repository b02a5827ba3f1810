"""Finds, reads and checks the two configuration files; every problem is told at once."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from monitor.config.alerting import Alerting, Routing, Rule
from monitor.config.document import Document, Where, read_document, spelled
from monitor.config.explain import explain
from monitor.config.gates import Gates
from monitor.config.maintenance import Maintenance
from monitor.config.retention import Retention
from monitor.config.routes import Route, RoutesFile
from monitor.config.secrets import Secret
from monitor.config.settings import Settings
from monitor.config.tokens import ApiToken
from monitor.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

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


def load_config(directory: Path, known_domains: Collection[str]) -> Config:
    """The configuration in `directory`; `known_domains` are the prompt sets that come with Specwatch.

    When routes.yaml names a prompt directory of its own, the files there are the known domains instead. Secrets are
    not read: see `check_secrets`. Raises ConfigError with one line for each problem in either file.
    """
    routes_document, alerting_document = (read_document(directory / name) for name in ("routes.yaml", "alerting.yaml"))
    routes = _load_routes(routes_document, directory, known_domains)
    alerting = _validated(Alerting, alerting_document, alerting_document.data, {"directory": directory})
    if routes is not None and alerting is not None:
        _check_references(alerting_document, alerting, routes.routes)
    problems = [*routes_document.problems, *alerting_document.problems]
    if problems or routes is None or alerting is None:
        raise ConfigError("\n".join(map(str, problems)))
    return Config(directory, routes.routes, alerting, routes.prompts, routes.api_tokens, routes.gates, routes.retention)


def check_secrets(config: Config, environment: Mapping[str, str]) -> None:
    """Reads every secret and certificate file once; raises ConfigError with one line for each that cannot be had."""
    problems: dict[Secret | Path, str] = {}
    for file, where, secret in _secrets(config):
        try:
            _read_once(secret, environment)
        except ConfigError as error:
            problems.setdefault(secret, f"{file}: {spelled(where)}: {error}")
    if problems:
        raise ConfigError("\n".join(problems.values()))


def _read_once(secret: Secret | Path, environment: Mapping[str, str]) -> None:
    if isinstance(secret, Secret):
        secret.reveal(environment)
    elif not os.access(secret, os.R_OK) or secret.is_dir():
        raise ConfigError(f"{secret} cannot be read")


def _secrets(config: Config) -> Iterator[tuple[str, Where, Secret | Path]]:
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


def _load_routes(document: Document, directory: Path, bundled: Collection[str]) -> RoutesFile | None:
    if not isinstance(document.data, Mapping):
        return None
    known = _known_domains(document, directory, bundled)
    data = {**document.data}
    routes, defaults = data.get("routes"), data.get("defaults")
    if isinstance(routes, list):
        inherited = _inherited(defaults) | {"domains": sorted(known)}
        data["routes"] = [_merged(inherited, route) if isinstance(route, Mapping) else route for route in routes]
    return _validated(RoutesFile, document, data, {"directory": directory, "known_domains": known})


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


def _check_references(document: Document, alerting: Alerting, routes: tuple[Route, ...]) -> None:
    selections: list[tuple[str, int, Rule | Routing | Maintenance]] = [
        *(("rules", position, rule) for position, rule in enumerate(alerting.rules)),
        *(("routing", position, entry) for position, entry in enumerate(alerting.routing)),
        *(("maintenance", position, window) for position, window in enumerate(alerting.maintenance)),
    ]
    for section, position, selection in selections:
        for key, message in _unmatched(selection, routes):
            document.problems.append(document.problem((section, position, key), message))


def _unmatched(selection: Rule | Routing | Maintenance, routes: tuple[Route, ...]) -> Iterator[tuple[str, str]]:
    """A name that means nothing would silence a rule or a receiver without anyone noticing."""
    names = [route.name for route in routes]
    for name in selection.routes or ():
        if name not in names:
            yield "routes", f"there is no route {name!r}; there are: {', '.join(names)}"
    domains = sorted({domain for route in routes for domain in route.domains})
    for domain in selection.domains or () if isinstance(selection, Rule) else ():
        if domain not in domains:
            yield "domains", f"no route replays {domain!r}; there are: {', '.join(domains)}"
    if not any(selection.match.items() <= route.labels.items() for route in routes):
        yield "match", "no route has these labels"
