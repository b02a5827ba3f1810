"""The receivers of `alerting.yaml`: a model for each kind of them, and what every one of them has."""

from datetime import timedelta
from email.utils import parseaddr
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from monitor.config.secrets import Secret
from monitor.config.settings import Headers, TextOrSecret
from monitor.config.strict import Name, Names, StrictModel, Text, Whole
from monitor.config.units import Duration
from monitor.core.address import shown_url


def web_address(url: str) -> str:
    """The address itself. Raises ValueError for what is none, and for one with a user or password in it."""
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


WebAddress = Annotated[Text, AfterValidator(lambda url: web_address(url).rstrip("/"))]
"""An address for links, without a slash at its end."""


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
        return web_address(url) if isinstance(url, str) else url


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
        return tuple(web_address(url).rstrip("/") for url in urls)


class PagerDuty(StrictModel):
    """Triggers, acknowledges and resolves an alert of PagerDuty, by its Events API version 2."""

    routing_key: Secret = Field(
        examples=[{"env": "PAGERDUTY_KEY"}],
        description="Integration key of a service. An alert resolves only under the key that triggered it: keep the "
        "key that it replaces among `former_routing_keys` while an incident is open.",
    )
    former_routing_keys: tuple[Secret, ...] = Field(
        default=(),
        max_length=4,
        examples=[[{"env": "FORMER_PAGERDUTY_KEY"}]],
        description="Keys that triggered what is still open: acknowledgements and ends are sent under these too. Take "
        "one out when nothing that it triggered is open. Unset: there are none.",
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
        return web_address(url)


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


class Apprise(StrictModel):
    """Sends by one of the services that Apprise knows; needs the extra `specwatch[apprise]`. Trigger-only."""

    url: Secret = Field(
        examples=[{"env": "APPRISE_URL"}],
        description="Apprise's address of the service, such as `ntfys://…` or `tgram://…`, which is itself the secret.",
    )
    timeout: Duration = _TIMEOUT


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
    apprise: Apprise | None = Field(
        default=None, description="A service by Apprise. Trigger-only: the end of an incident is a message of its own."
    )
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
