"""`alerting.yaml`: what is worth a message, and who gets it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from monitor.config.limits import MAX_RUNS
from monitor.config.receivers import Receiver, web_address
from monitor.config.strict import Labels, Name, Names, StrictModel, Switch, Text, Whole, at_least_one
from monitor.config.units import Duration, Ratio

LONGEST_GATHERING = timedelta(hours=1)

Severity = Literal["page", "warning"]
Metric = Literal["acceptance_length", "tokens_per_step", "first_position_survival"]


class Rule(StrictModel):
    """What opens an incident: a drop below the baseline, or a floor whatever the baseline. Exactly one of the two."""

    name: Name = Field(examples=["acceptance-drop"], description="Name of the rule in incidents and alerts; unique.")
    metric: Metric = Field(
        default="acceptance_length",
        description="What is compared with the baseline, prompt by prompt. `tokens_per_step` also sees steps without a "
        "draft, which acceptance length does not. `first_position_survival`, the share of steps whose first draft "
        "token is accepted, is held against `below` instead.",
    )
    drop: Ratio | None = Field(
        default=None,
        examples=["15%"],
        description="How far below the baseline. A run trips the rule from 11/15 of this on, when the fall is "
        "significant; the incident opens when two confirmation runs pool with it to the full drop. "
        "Unset: `below` is given.",
    )
    below: Ratio | None = Field(
        default=None,
        examples=["5%"],
        description="An absolute rule, only for `first_position_survival`: a run below it trips, whatever the "
        "baseline and without one. The incident opens when two confirmation runs are below it too, and is over from "
        "twice this on. It sees a dead drafter also where acceptance length is under 1.18 and cannot lose 15 percent. "
        "Unset: `drop` is given.",
    )
    severity: Severity = Field(default="page", description="`page` wakes someone, `warning` waits for working hours.")
    routes: Names | None = Field(default=None, description="Names of the routes it judges. Unset: all of them.")
    domains: Names | None = Field(default=None, description="Domains it judges. Unset: all of them.")
    match: Labels = Field(
        default_factory=dict,
        examples=[{"tier": "interactive"}],
        description="Labels that a route must have, with these values, to be judged. Unset: any.",
    )

    @model_validator(mode="after")
    def _a_drop_or_a_floor(self) -> Self:
        if (self.drop is None) == (self.below is None):
            raise ValueError("give exactly one of drop and below")
        absolute = self.metric == "first_position_survival"
        if absolute and self.below is None:
            raise ValueError("first_position_survival has no baseline to drop from; give below, for example 5%")
        if self.below is not None and not absolute:
            raise ValueError(f"below is for metric first_position_survival; {self.metric} is given a drop")
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
    bumps: Switch | None = Field(
        default=None,
        examples=[False],
        description="Whether it is told what became of a route after a bump. Unset: when it gets warnings.",
    )

    @property
    def hears_of_bumps(self) -> bool:
        return "warning" in self.severity if self.bumps is None else self.bumps


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
    gather_for: Duration = Field(
        default=timedelta(minutes=5),
        description="After a message of an incident, domains that break too are gathered for this long, an hour at "
        "most, and told together. An incident's opening, a higher severity and its end never wait.",
    )
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

    @field_validator("gather_for")
    @classmethod
    def _not_for_long(cls, duration: timedelta) -> timedelta:
        if duration > LONGEST_GATHERING:
            raise ValueError("what breaks may wait an hour at most to be told; write for example 5m")
        return duration

    @field_validator("external_url", "runbook_url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        return None if url is None else web_address(url).rstrip("/")

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
