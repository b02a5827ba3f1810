"""`alerting.yaml`: what is worth a message, and who gets it."""

from collections.abc import Mapping
from datetime import timedelta
from email.utils import parseaddr
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from monitor.config.limits import MAX_RUNS
from monitor.config.secrets import Secret
from monitor.config.settings import Headers, TextOrSecret
from monitor.config.strict import Labels, Name, Names, StrictModel, Text, Whole, at_least_one
from monitor.config.units import Duration, Ratio
from monitor.core.address import shown_url

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


_TIMEOUT = Field(
    default=timedelta(seconds=10), description="For the whole of a delivery; one that takes longer is tried again."
)


class Webhook(StrictModel):
    """POSTs the body of Alertmanager's webhook, version 4."""

    url: TextOrSecret = Field(
        examples=["http://alerts:9000/hook"],
        description="Where to POST. When the address itself is secret, name it as `{env: NAME}` or `{file: PATH}`.",
    )
    headers: Headers = Field(
        default_factory=dict, description="Further HTTP headers, each a text or a secret. Unset: none."
    )
    signing_secret: Secret | None = Field(
        default=None,
        examples=[{"file": "/run/secrets/hook_signing"}],
        description="Key to sign each message with, after Standard Webhooks: `whsec_` and 24 bytes or more in base64. "
        "Unset: not signed.",
    )
    timeout: Duration = _TIMEOUT

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | Secret) -> str | Secret:
        return _web_address(url) if isinstance(url, str) else url


class Alertmanager(StrictModel):
    """Sends to Prometheus Alertmanager, by version 2 of its API, again every minute while an incident is open."""

    urls: Names = Field(
        examples=[["http://alertmanager-0:9093", "http://alertmanager-1:9093"]],
        description="Every peer of the cluster, as they are reached one by one: never a load balancer.",
    )
    headers: Headers = Field(
        default_factory=dict, description="Further HTTP headers, each a text or a secret. Unset: none."
    )
    timeout: Duration = _TIMEOUT

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_web_address(url).rstrip("/") for url in urls)


class PagerDuty(StrictModel):
    """Triggers and resolves an alert of PagerDuty, by its Events API version 2."""

    routing_key: Secret = Field(
        examples=[{"env": "PAGERDUTY_KEY"}],
        description="Integration key of a service. An alert resolves only under the key that triggered it: do not "
        "change it while an incident is open.",
    )
    url: Text = Field(
        default="https://events.pagerduty.com/v2/enqueue",
        examples=["https://events.eu.pagerduty.com/v2/enqueue"],
        description="Where to POST: another one for accounts in the EU, or a proxy.",
    )
    timeout: Duration = _TIMEOUT

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        return _web_address(url)


class Slack(StrictModel):
    """Posts to a channel of Slack by an incoming web hook."""

    url: Secret = Field(
        examples=[{"env": "SLACK_URL"}], description="Address of the incoming web hook, which is itself the secret."
    )
    timeout: Duration = _TIMEOUT


class Teams(StrictModel):
    """Posts a card to Microsoft Teams by a workflow that starts “when a Teams webhook request is received”."""

    url: Secret = Field(
        examples=[{"env": "TEAMS_URL"}], description="Address of the workflow, which is itself the secret."
    )
    timeout: Duration = _TIMEOUT


class Email(StrictModel):
    """Sends mail by an SMTP server."""

    host: Text = Field(examples=["smtp.example.com"], description="The SMTP server.")
    port: Annotated[Whole, Field(le=65535)] = Field(default=587, description="Its port; 465 is usual for `tls`.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="`starttls` encrypts after the greeting, `tls` from the start, `none` never. Certificates are "
        "verified.",
    )
    user: Text | None = Field(default=None, description="Name to log in with. Unset: no login.")
    password: Secret | None = Field(
        default=None, examples=[{"env": "SMTP_PASSWORD"}], description="Password of `user`. Unset: no login."
    )
    sender: Text = Field(examples=["specwatch@example.com"], description="Address in `From`.")
    to: Names = Field(examples=[["oncall@example.com"]], description="Addresses it goes to; at least one.")
    timeout: Duration = _TIMEOUT

    @field_validator("sender")
    @classmethod
    def _a_sender(cls, address: str) -> str:
        return _mail_address(address)

    @field_validator("to")
    @classmethod
    def _addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_mail_address(address) for address in addresses)

    @model_validator(mode="after")
    def _no_password_in_the_clear(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password are given together, or neither")
        if self.password is not None and self.security == "none":
            raise ValueError("a password is not sent without encryption; set security to starttls or tls")
        return self


def _mail_address(text: str) -> str:
    name, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    if not local or not domain or (not name and address != text) or "\n" in text or "\r" in text:
        raise ValueError(f"{text!r} is not a mail address; write for example oncall@example.com")
    return text


class Log(StrictModel):
    """Writes each message to the program's own log; has no keys: `log: {}`."""


class Receiver(StrictModel):
    """Someone, or something, that is told about incidents: exactly one of the kinds below is set."""

    name: Name = Field(examples=["hook"], description="Name of the receiver in `routing`; unique.")
    webhook: Webhook | None = Field(default=None, description="A web hook.")
    alertmanager: Alertmanager | None = Field(default=None, description="Prometheus Alertmanager.")
    pagerduty: PagerDuty | None = Field(default=None, description="PagerDuty.")
    slack: Slack | None = Field(default=None, description="Slack.")
    teams: Teams | None = Field(default=None, description="Microsoft Teams.")
    email: Email | None = Field(default=None, description="Mail.")
    log: Log | None = Field(default=None, examples=[{}], description="The program's own log.")

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(f"give exactly one of {', '.join(self._kinds())}")
        return self

    @property
    def kind(self) -> str:
        """The key that is set: `webhook`, `log` and so on."""
        return self._given()[0]

    @property
    def settings(self) -> StrictModel:
        """What is set under that key."""
        found: StrictModel = getattr(self, self.kind)
        return found

    def _given(self) -> list[str]:
        return [kind for kind in self._kinds() if getattr(self, kind) is not None]

    @classmethod
    def _kinds(cls) -> list[str]:
        return [kind for kind in cls.model_fields if kind != "name"]


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
