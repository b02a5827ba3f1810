"""What every model of a configuration file shares: unknown keys are refused, values cannot change after loading."""

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)
LONGEST_URL = 2_000


class StrictModel(BaseModel):
    """A mapping in YAML of which every key is known and documented beside its field."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def own_keys_first(model: type[BaseModel]) -> list[str]:
    """The keys of a model, those of its own class before the inherited ones, as people look for them."""
    own = [key for key in model.model_fields if key in vars(model).get("__annotations__", {})]
    return own + [key for key in model.model_fields if key not in own]


def plain_name(name: str) -> str:
    """The name itself. Raises ValueError for one that a route or receiver cannot have."""
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise ValueError(f"{name!r} is not a name; use a-z, 0-9, - and _, a letter or digit first, 63 at most")
    return name


def _labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    for label in labels:
        if not _LABEL.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"{label!r} is not a label name; use letters, digits and _, no digit or __ first")
    return labels


def _unique(items: tuple[Any, ...]) -> tuple[Any, ...]:
    for position, item in enumerate(items):
        if item in items[:position]:
            raise ValueError(f"{item!r} is listed twice")
    return items


def at_least_one(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """For AfterValidator: unlike `min_length`, it is silent when the items themselves are wrong already."""
    if not items:
        raise ValueError("is empty; give at least one")
    return items


def _told(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if "\0" in text:
        raise ValueError("has a NUL character in it")
    return text


def _one_line(text: str) -> str:
    said = " ".join(text.split())
    if not said.isprintable():
        raise ValueError("has a character that cannot be printed")
    return said


def web_link(url: str) -> str:
    """The URL itself, for people to follow. Raises ValueError for what is none of HTTP, or has credentials in it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its text repeats a part of the URL
        raise ValueError("is not a URL; write for example https://ci.example.com/42") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(letter.isspace() for letter in url):
        raise ValueError("is not a link; write for example https://ci.example.com/42")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user or password in it, which would be shown to everybody; leave it out")
    if len(url) > LONGEST_URL:
        raise ValueError(f"is longer than {LONGEST_URL} characters")
    return url


Text = Annotated[StrictStr, AfterValidator(_told)]
Line = Annotated[Text, AfterValidator(_one_line)]
Link = Annotated[Line, AfterValidator(web_link)]
Name = Annotated[StrictStr, AfterValidator(plain_name)]
Names = Annotated[tuple[Text, ...], AfterValidator(at_least_one), AfterValidator(_unique)]
Labels = Annotated[Mapping[StrictStr, StrictStr], AfterValidator(_labels)]
Whole = Annotated[StrictInt, Field(ge=1)]
WholeOrZero = Annotated[StrictInt, Field(ge=0)]
Switch = StrictBool
Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
