"""Renders `docs/configuration.md` from what stands beside each field of the models.

`python -m monitor.config.reference > docs/configuration.md` writes it again.
"""

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from monitor.config.alerting import Alerting, Heartbeat, Resolve, Routing, Rule, Stale
from monitor.config.gates import Gates
from monitor.config.maintenance import Maintenance
from monitor.config.receivers import Alertmanager, Apprise, Email, Log, PagerDuty, Receiver, Slack, Teams, Webhook
from monitor.config.replicas import Discovery
from monitor.config.retention import Retention
from monitor.config.routes import BaselinePolicy, Route, RoutesFile
from monitor.config.secrets import Secret
from monitor.config.settings import DeclaredIdentity, Settings, StandAside, Timeouts
from monitor.config.tokens import ApiToken
from monitor.config.units import format_duration

_INTRODUCTION = """\
# Configuration

Made by `python -m monitor.config.reference` from the models that check the files; change the descriptions there.

Specwatch reads two files, `routes.yaml` and `alerting.yaml`, from the directory given by `--config DIR`, else by
`SPECWATCH_CONFIG`, else from the working directory. `specwatch config check` and `specwatch serve` check them alike:
an unknown key, a key given twice, a wrong unit or a name that means nothing is refused, with file, line and key.

- **Durations** are whole numbers with units, largest first: `250ms`, `90s`, `40m`, `1h30m`, `2d`.
- **Shares** are `15%` or `0.15`.
- **Names** of routes, rules and receivers are made of `a-z`, `0-9`, `-` and `_`.
- **Secrets** are never written in a file: name the place, [as below](#secrets).
- **Relative paths** start at the directory of the two files.
"""
_DEFAULTS = """\
Every key of this table may stand under `defaults`, for all routes, and under a route, for that route. A value that is
itself a mapping (`timeouts`, `stand_aside`, `headers`, `chat_template_kwargs`, `extra_body`, `identity`) is merged key
by key; any other value of a route replaces that of `defaults`.
"""
_ROUTE = "These keys stand under a route, beside any of those above."


def reference_markdown() -> str:
    """The text of `docs/configuration.md`."""
    routes, route_only = Settings.model_fields, Route.model_fields.keys() - Settings.model_fields.keys()
    parts = [
        _INTRODUCTION,
        "## routes.yaml\n",
        _table(RoutesFile.model_fields),
        "### defaults, and each route\n",
        _DEFAULTS,
        _table(routes),
        *(_section(model, key) for key, model in _NESTED_SETTINGS),
        "### routes\n",
        _ROUTE + "\n",
        _table({key: info for key, info in Route.model_fields.items() if key in route_only}),
        _section(Discovery, "replicas"),
        _section(BaselinePolicy, "baseline"),
        _section(ApiToken, "api_tokens"),
        _section(Gates, "gates"),
        _section(Retention, "retention"),
        "## alerting.yaml\n",
        _table(Alerting.model_fields),
        *(_section(model, key) for key, model in _ALERTING),
        "## Secrets\n",
        f"{_first_line(Secret)}\n",
        _table(Secret.model_fields),
    ]
    return "\n".join(parts)


_NESTED_SETTINGS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("timeouts", Timeouts),
    ("stand_aside", StandAside),
    ("identity", DeclaredIdentity),
    ("heartbeat", Heartbeat),
)
_ALERTING: tuple[tuple[str, type[BaseModel]], ...] = (
    ("rules", Rule),
    ("receivers", Receiver),
    ("webhook", Webhook),
    ("alertmanager", Alertmanager),
    ("pagerduty", PagerDuty),
    ("slack", Slack),
    ("teams", Teams),
    ("email", Email),
    ("apprise", Apprise),
    ("log", Log),
    ("routing", Routing),
    ("maintenance", Maintenance),
    ("resolve", Resolve),
    ("stale", Stale),
)


def _section(model: type[BaseModel], key: str) -> str:
    table = "\n" + _table(model.model_fields) if model.model_fields else ""
    return f"### {key}\n\n{_first_line(model)}\n{table}"


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = [_row(key, info) for key, info in fields.items()]
    return "\n".join(["| key | default | example | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _row(key: str, info: FieldInfo) -> str:
    example = f"`{as_yaml(info.examples[0])}`" if info.examples else ""
    return f"| `{key}` | {_default(key, info)} | {example} | {info.description} |"


def _default(key: str, info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True)
    if info.is_required():
        return "required"
    if isinstance(default, BaseModel):
        return f"[below](#{key})" if key != "defaults" else "none"
    return "unset" if default in (None, (), {}) else f"`{as_yaml(default)}`"


def as_yaml(value: Any) -> str:
    """The value in YAML's flow style, on one line, as the files would have it."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Mapping):
        return "{" + _joined(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + _joined(as_yaml(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(items: Iterable[str]) -> str:
    return ", ".join(items)


if __name__ == "__main__":
    sys.stdout.write(reference_markdown())
