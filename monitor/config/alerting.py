"""`alerting.yaml`: what is worth a message, and who gets it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from monitor.config.limits import MAX_RUNS
from monitor.config.secrets import Secret
from monitor.config.settings import Headers, TextOrSecret
from monitor.config.strict import Labels, Name, Names, StrictModel, Text, Whole, at_least_one
from monitor.config.units import Duration, Ratio
from monitor.core.address import shown_url

Severity = Literal["page", "warning"]
Metric = Literal["acceptance_length", "tokens_per_step"]


class Rule(StrictModel):
    """A drop below the baseline that opens an incident."""

    name: Name = Field(examples=["acceptance-drop"], description="Name of the rule in incidents and alerts; unique.")
    metric: Metric = Field(
        default="acceptance_length",
        description="What is compared with the baseline, prompt by prompt. `tokens_per_step` also sees steps without a "
        "draft, which acceptance length does not.",
    )
    drop: Ratio = Field(
        examples=["15%"],
        description="How far below the baseline. A run trips the rule from 11/15 of this on, when the fall is "
        "significant; the incident opens when two confirmation runs pool with it to the full drop.",
    )
    severity: Severity = Field(default="page", description="`page` wakes someone, `warning` waits for working hours.")
    routes: Names | None = Field(default=None, description="Names of the routes it judges. Unset: all of them.")
    domains: Names | None = Field(default=None, description="Domains it judges. Unset: all of them.")
    match: Labels = Field(
        default_factory=dict,
        examples=[{"tier": "interactive"}],
        description="Labels that a route must have, with these values, to be judged. Unset: any.",
    )


def _web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{shown_url(url)!r} is not a web address; write for example https://alerts.example.com/hook")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user or password in it is refused; name the whole URL as a secret")
    return url


class Webhook(StrictModel):
    """POSTs the body of Alertmanager's webhook, version 4."""

    url: TextOrSecret = Field(
        examples=["http://alerts:9000/hook"],
        description="Where to POST. When the address itself is secret, name it as `{env: NAME}` or `{file: PATH}`.",
    )
    headers: Headers = Field(
        default_factory=dict, description="Further HTTP headers, each a text or a secret. Unset: none."
    )
    timeout: Duration = Field(
        default=timedelta(seconds=10), description="For the whole request; a delivery that takes longer is tried again."
    )

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | Secret) -> str | Secret:
        return _web_address(url) if isinstance(url, str) else url


class Log(StrictModel):
    """Writes each message to the program's own log; has no keys: `log: {}`."""


class Receiver(StrictModel):
    """Someone, or something, that is told about incidents: exactly one of the kinds below is set."""

    name: Name = Field(examples=["hook"], description="Name of the receiver in `routing`; unique.")
    webhook: Webhook | None = Field(default=None, description="A web hook.")
    log: Log | None = Field(default=None, examples=[{}], description="The program's own log.")

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        kinds = [kind for kind in type(self).model_fields if kind != "name"]
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"give exactly one of {' and '.join(kinds)}")
        return self


class Routing(StrictModel):
    """Which incidents one receiver gets."""

    receiver: Text = Field(examples=["hook"], description="Name of the receiver.")
    severity: Annotated[tuple[Severity, ...], AfterValidator(at_least_one)] = Field(
        default=("page", "warning"), description="Severities it gets. Unset: all of them."
    )
    routes: Names | None = Field(default=None, description="Names of the routes it hears of. Unset: all of them.")
    match: Labels = Field(
        default_factory=dict, description="Labels that a route must have, with these values. Unset: any."
    )


class Resolve(StrictModel):
    """When an incident is over."""

    runs: Whole = Field(
        le=MAX_RUNS,
        default=2,
        description="Valid runs in a row above the resolve line, which is about half the rule's drop.",
    )


def _distinct_names(items: tuple[Rule, ...] | tuple[Receiver, ...]) -> tuple[Rule, ...] | tuple[Receiver, ...]:
    names = [item.name for item in items]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ValueError(f"{name!r} is given to two of them; a name is given once")
    return items


class Alerting(StrictModel):
    """The top level of `alerting.yaml`. After loading, `routing` is never empty."""

    rules: Annotated[tuple[Rule, ...], AfterValidator(at_least_one), AfterValidator(_distinct_names)] = Field(
        description="What opens an incident; at least one."
    )
    receivers: Annotated[tuple[Receiver, ...], AfterValidator(at_least_one), AfterValidator(_distinct_names)] = Field(
        description="Who can be told; at least one."
    )
    routing: Annotated[tuple[Routing, ...], AfterValidator(at_least_one)] = Field(
        default=(),
        description="Who gets what; a receiver named by several entries gets what any of them selects, once. "
        "Unset: every receiver gets everything.",
    )
    resolve: Resolve = Field(default=Resolve(), description="When an incident is over.")
    external_url: Text | None = Field(
        default=None,
        examples=["https://specwatch.example.com"],
        description="Address of this service as people reach it, for links in messages. Unset: messages have no links.",
    )

    runbook_url: Text | None = Field(
        default=None,
        examples=["https://wiki.example.com/specwatch"],
        description="What your on-call reads, named in every alert that fires. Unset: docs/alerts.md is named.",
    )

    @field_validator("external_url", "runbook_url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        return None if url is None else _web_address(url).rstrip("/")

    @model_validator(mode="before")
    @classmethod
    def _everyone_gets_everything(cls, value: object) -> object:
        if isinstance(value, Mapping) and "routing" not in value and isinstance(value.get("receivers"), list | tuple):
            receivers = [item for item in value["receivers"] if isinstance(item, Mapping) and "name" in item]
            return {**value, "routing": [{"receiver": item["name"]} for item in receivers]}
        return value

    @field_validator("routing")
    @classmethod
    def _known_receivers(cls, routing: tuple[Routing, ...], info: ValidationInfo) -> tuple[Routing, ...]:
        known = [receiver.name for receiver in info.data.get("receivers", ())]
        for entry in routing:
            if known and entry.receiver not in known:
                raise ValueError(f"there is no receiver {entry.receiver!r}; there are: {', '.join(known)}")
        return routing
