"""`alerting.yaml`: what is worth a message, and who gets it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from monitor.config.limits import MAX_RUNS
from monitor.config.maintenance import Maintenance
from monitor.config.receivers import Receiver, WebAddress
from monitor.config.routes import Route
from monitor.config.secrets import Secret
from monitor.config.strict import Labels, Name, Names, StrictModel, Switch, Text, Whole, at_least_one
from monitor.config.units import Duration, DurationOrOff, Floor, Ratio
from monitor.core.break_even import BREAK_EVEN

LONGEST_GATHERING = timedelta(hours=1)
SHORTEST_REMINDER = timedelta(minutes=5)
LONGEST_COOL_DOWN = timedelta(days=1)
LONGEST_NOTICE = timedelta(days=1)
SHORTEST_BEAT, LONGEST_BEAT = timedelta(seconds=10), timedelta(hours=1)
MOST_PERIODS = 100

Severity = Literal["page", "warning"]
Metric = Literal[
    "acceptance_length",
    "tokens_per_step",
    "accepted_per_step",
    "acceptance_rate",
    "throughput",
    "first_position_survival",
    "speedup",
]
ABSOLUTE = ("first_position_survival", "speedup")
"""Metrics that `below` may hold against a number."""
HAS_BREAK_EVEN = ("acceptance_length", "tokens_per_step")
"""Metrics that `below` may hold against the break-even."""


class Rule(StrictModel):
    """What opens an incident: a drop below the baseline, a floor whatever the baseline, or a slow leak. One of them."""

    name: Name = Field(examples=["acceptance-drop"], description="Name of the rule in incidents and alerts; unique.")
    metric: Metric = Field(
        default="acceptance_length",
        description="What is compared with the baseline, prompt by prompt. `tokens_per_step` also sees steps without a "
        "draft, which acceptance length does not. `accepted_per_step` is acceptance length less 1. `acceptance_rate`, "
        "of drafted tokens, is compared within one K only. `throughput`, tokens per second of one prompt, moves with "
        "the load too: rather a warning. `first_position_survival`, the share of steps whose first draft "
        "token is accepted, is held against `below` instead. `speedup` is measured beside the route's `plain_twin`.",
    )
    drop: Ratio | None = Field(
        default=None,
        examples=["15%"],
        description="How far below the baseline. A run trips the rule from 11/15 of this on, when the fall is "
        "significant; the incident opens when two confirmation runs pool with it to the full drop. "
        "Unset: `below` or `leak` is given.",
    )
    below: Floor | None = Field(
        default=None,
        examples=["5%"],
        description="An absolute rule, for `first_position_survival` and `speedup`: a run below it trips, whatever the "
        "baseline and without one. The incident opens when two confirmation runs are below it too, and is over from "
        "twice this on. It sees a dead drafter also where acceptance length is under 1.18 and cannot lose 15 percent. "
        "Of `speedup` (`1.0`): when three measurements in a row have their whole interval below it. "
        "`break_even`, for `acceptance_length` and `tokens_per_step`: the break-even acceptance length, modelled from "
        "the newest sweep saved for the route of the same model, K, engine and GPUs, at the run's load. A run trips "
        "below its whole interval; it is over from the break-even on. Without such a sweep the verdict is `invalid`, "
        "`no sweep`. "
        "Unset: `drop` or `leak` is given.",
    )
    leak: Switch = Field(
        default=False,
        description="`true`: drift too slow for any one run, accumulated over runs against the pinned baseline "
        "(docs/statistics.md). Only as a `warning`. The domain is well when what has accumulated is gone.",
    )
    severity: Severity = Field(default="page", description="`page` wakes someone, `warning` waits for working hours.")
    routes: Names | None = Field(default=None, description="Names of the routes it judges. Unset: all of them.")
    domains: Names | None = Field(default=None, description="Domains it judges. Unset: all of them.")
    match: Labels = Field(
        default_factory=dict,
        examples=[{"tier": "interactive"}],
        description="Labels that a route must have, with these values, to be judged. Unset: any.",
    )
    runbook_url: WebAddress | None = Field(
        default=None,
        examples=["https://wiki.example.com/dead-drafter"],
        description="What your on-call reads when this rule speaks. Unset: the route's, else that of alerting.yaml.",
    )

    @model_validator(mode="after")
    def _a_drop_or_a_floor(self) -> Self:
        if [self.drop is not None, self.below is not None, self.leak].count(True) != 1:
            raise ValueError("give exactly one of drop, below and leak")
        if self.metric == "first_position_survival" and self.below is None:
            raise ValueError("first_position_survival has no baseline to drop from; give below, for example 5%")
        if self.below == BREAK_EVEN and self.metric not in HAS_BREAK_EVEN:
            raise ValueError(f"below: {BREAK_EVEN} is for metric {' or '.join(HAS_BREAK_EVEN)}, not for {self.metric}")
        if isinstance(self.below, float) and self.metric not in ABSOLUTE:
            raise ValueError(
                f"a number below is for metric {' or '.join(ABSOLUTE)}; "
                f"{self.metric} is given a drop, or below: {BREAK_EVEN}"
            )
        if self.metric == "first_position_survival" and isinstance(self.below, float) and self.below >= 1:
            raise ValueError(f"below {self.below:g} is not between 0% and 100%; did you mean {self.below:g}%?")
        if self.leak and self.metric == "speedup":
            raise ValueError("speedup is measured too rarely for a leak to accumulate; give drop or below")
        if self.leak and self.severity != "warning":
            raise ValueError("a slow leak wakes nobody; write severity: warning")
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


class Stale(StrictModel):
    """When a route that is not measured has an incident of its own. It cannot be switched off, only routed."""

    after: Whole = Field(
        default=2,
        le=MOST_PERIODS,
        description="Periods (`every` of the route) without a valid run of a domain; never sooner than two minutes, "
        "nor within the first period after a start of `serve`. The first valid run ends it.",
    )
    severity: Severity = Field(
        default="warning", description="No drop is known, so nobody is woken unless this is `page`."
    )


class Heartbeat(StrictModel):
    """A dead-man's switch that is called while all is well: it alerts when the calls stay away."""

    url: Secret = Field(
        examples=[{"env": "HEARTBEAT_URL"}],
        description="Where to POST; whoever knows the address can keep the switch quiet, so it is itself a secret.",
    )
    every: Duration = Field(
        default=timedelta(minutes=1), description="Time between two calls, from ten seconds to an hour."
    )

    @field_validator("every")
    @classmethod
    def _a_beat(cls, duration: timedelta) -> timedelta:
        if not SHORTEST_BEAT <= duration <= LONGEST_BEAT:
            raise ValueError("a heartbeat is called every ten seconds to once an hour; write for example 1m")
        return duration


def runbook_url(alerting: "Alerting", route: Route, rule: Rule | None = None) -> str | None:
    """What is read on an alert of this route: the rule's, else the route's, else the one of alerting.yaml."""
    own = (None if rule is None else rule.runbook_url, route.runbook_url)
    return next((url for url in own if url is not None), alerting.general_runbook_url)


Named = tuple[Rule, ...] | tuple[Receiver, ...] | tuple[Maintenance, ...]


def _distinct_names(items: Named) -> Named:
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
    maintenance: Annotated[tuple[Maintenance, ...], AfterValidator(_distinct_names)] = Field(
        default=(), description="Windows by schedule in which messages are held as by a silence. Unset: none."
    )
    resolve: Resolve = Field(default=Resolve(), description="When an incident is over.")
    stale: Stale = Field(default=Stale(), description="When a route counts as not measured, which is an incident too.")
    gather_for: Duration = Field(
        default=timedelta(minutes=5),
        description="After a message of an incident, domains that break too are gathered for this long, an hour at "
        "most, and told together. An incident's opening, a higher severity and its end never wait.",
    )
    reopen_within: DurationOrOff = Field(
        default=timedelta(hours=2),
        description="What breaks again this soon after its incident was resolved, a day at most, and is no milder, "
        "reopens that incident: told as `again`, under the same number. Three runs come between an end and a new "
        "confirmed drop, so it is longer than `every` and `confirm_after` together. `off`: a new incident each time.",
    )
    remind_every: DurationOrOff = Field(
        default=timedelta(hours=4),
        description="An open page of which nobody was told anything for this long, five minutes at least, is told "
        "again with today's figures, until it is acknowledged or over. Warnings are not. `off`: told once.",
    )
    silence_notice: DurationOrOff = Field(
        default=timedelta(minutes=15),
        description="This long before a silence or a maintenance window ends, a day at most, whoever is routed is "
        "told of the incidents that still fire under it, so that it can be prolonged; once, and not where it lasts no "
        "longer than this. Nobody is woken: on PagerDuty it is a change event, and an Alertmanager gets nothing. "
        "`off`: not told.",
    )
    heartbeat: Heartbeat | None = Field(
        default=None,
        description="A dead-man's switch, called while probes run on time and messages leave. Unset: none is called.",
    )
    external_url: WebAddress | None = Field(
        default=None,
        examples=["https://specwatch.example.com"],
        description="Address of this service as people reach it, for links in messages. Unset: messages have no links.",
    )

    runbook_url: WebAddress | None = Field(
        default=None,
        examples=["https://wiki.example.com/specwatch"],
        description="What your on-call reads, named in every alert that fires; a rule and a route may have their own. "
        "Unset: the page `/runbook` of this service under `external_url`; without that, the command "
        "`specwatch runbook`.",
    )

    @property
    def general_runbook_url(self) -> str | None:
        """What is read on an alert that no rule or route has its own for; None where no page can be reached."""
        own_page = None if self.external_url is None else f"{self.external_url}/runbook"
        return self.runbook_url or own_page

    @field_validator("gather_for")
    @classmethod
    def _not_for_long(cls, duration: timedelta) -> timedelta:
        if duration > LONGEST_GATHERING:
            raise ValueError("what breaks may wait an hour at most to be told; write for example 5m")
        return duration

    @field_validator("reopen_within")
    @classmethod
    def _within_a_day(cls, duration: timedelta | None) -> timedelta | None:
        if duration is not None and duration > LONGEST_COOL_DOWN:
            raise ValueError("what was over for a day is another incident; write for example 2h, or off")
        return duration

    @field_validator("silence_notice")
    @classmethod
    def _not_days_ahead(cls, duration: timedelta | None) -> timedelta | None:
        if duration is not None and duration > LONGEST_NOTICE:
            raise ValueError("the end of a silence is told a day ahead at most; write for example 15m, or off")
        return duration

    @field_validator("remind_every")
    @classmethod
    def _not_all_the_time(cls, duration: timedelta | None) -> timedelta | None:
        if duration is not None and duration < SHORTEST_REMINDER:
            raise ValueError("reminders this often are noise; write for example 4h, or off")
        return duration

    @model_validator(mode="before")
    @classmethod
    def _everyone_gets_everything(cls, value: object) -> object:
        if isinstance(value, Mapping) and "routing" not in value and isinstance(value.get("receivers"), list | tuple):
            receivers = [item for item in value["receivers"] if isinstance(item, Mapping) and "name" in item]
            return {**value, "routing": [{"receiver": item["name"]} for item in receivers]}
        return value
