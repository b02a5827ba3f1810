"""Says in the words of this project what pydantic found wrong."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from monitor.config.document import Document, Problem, Where
from monitor.config.routes import Defaults, Route, RoutesFile
from monitor.config.strict import own_keys_first
from monitor.core.address import shown_url

_NOT_A = {
    "bool_type": "true or false",
    "dict_type": "a mapping, such as {key: value}",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "mapping_type": "a mapping, such as {key: value}",
    "model_type": "a mapping, such as {key: value}",
    "path_type": "the path of a file",
    "string_type": "text; put it in quotes",
    "tuple_type": "a list, such as [a, b]",
}
# Under these keys a wrong value may be a secret that was meant for another place.
_NEVER_SHOWN = frozenset({"api_key", "headers", "http_sd", "url"})


def explain(error: ValidationError, model: type[BaseModel], document: Document) -> list[Problem]:
    """One problem for each of pydantic's, at the key the user wrote."""
    problems = []
    for details in error.errors(include_url=False):
        where = tuple(part for part in details["loc"] if not str(part).startswith("<"))
        if not _inherited(where, document.data):
            problems.append(document.problem(where, _message(details, where, model)))
    return problems


def _inherited(where: Where, data: Any) -> bool:
    """A value that a route took over from `defaults` is reported there, once."""
    in_route = len(where) > 2 and where[0] == "routes"
    return in_route and _holds(data.get("defaults"), where[2:]) and not _holds(data, where)


def _holds(value: Any, where: Where) -> bool:
    for part in where:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _message(details: ErrorDetails, where: Where, model: type[BaseModel]) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    shown = "the value" if _NEVER_SHOWN.intersection(where) else _shown(value)
    if kind == "missing":
        return "missing; it is required"
    if kind == "extra_forbidden":
        return _unknown_key(where, model)
    if value is None:
        return "has no value; give one or leave the key out"
    if kind == "value_error":
        return str(context["error"])
    if kind in _NOT_A:
        return f"{shown} is not {_NOT_A[kind]}"
    if kind == "literal_error":
        return f"{shown} is not one of: {context['expected'].replace(' or ', ', ')}"
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = f"below {_number(context['ge'])}" if "ge" in context else f"above {_number(context['le'])}"
        return f"{shown} is {limit}{_allowed(where, model)}"
    return f"{shown}: {details['msg']}"


def _allowed(where: Where, model: type[BaseModel]) -> str:
    """The range of a number, where it has both ends."""
    schema = _model_at(model, where[:-1]).model_json_schema()["properties"].get(where[-1], {})
    for kind in (schema, *schema.get("anyOf", ())):
        if "minimum" in kind and "maximum" in kind:
            return f"; allowed: {_number(kind['minimum'])} to {_number(kind['maximum'])}"
    return ""


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if isinstance(value, str):
        return repr(shown_url(value) if "://" in value else value)
    return repr(value) if isinstance(value, int | float) else f"{value} (a {type(value).__name__})"


def _unknown_key(where: Where, model: type[BaseModel]) -> str:
    key, owner = str(where[-1]), _model_at(model, where[:-1])
    if owner is Defaults and key in Route.model_fields:
        return "unknown key; it belongs to each route, not to defaults"
    if owner is RoutesFile and key in Defaults.model_fields:
        return "unknown key; it belongs under defaults or a route"
    allowed = own_keys_first(owner)
    close = difflib.get_close_matches(key, allowed, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown key; allowed: {', '.join(allowed)}{hint}" if allowed else "unknown key; none is allowed here"


def _model_at(model: type[BaseModel], where: Where) -> type[BaseModel]:
    for part in where:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[str(part)].annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
