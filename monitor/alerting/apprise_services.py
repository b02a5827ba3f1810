"""An incident's message by one of the services that Apprise knows: made here, and handed to it. Trigger-only.

Apprise knows no keys and no ends: a repeat is shown twice, and the end of an incident is a message of its own.
"""

from __future__ import annotations

import importlib
import logging
import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from monitor.alerting.posting import NEVER_SUCCEEDS, TOO_MANY, Arrival, Failure, Why
from monitor.core.bumps import NOTE
from monitor.core.incidents import Transition
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTRA = "pip install 'specwatch[apprise]'"
_STATUS = re.compile(r"error=(\d{3})\b")


def require_apprise(receiver: str) -> None:
    """Loads the package, which else the first message would wait for. Raises ConfigError, which names the extra."""
    try:
        importlib.import_module("apprise")
    except ImportError:
        missing = f"alerting.yaml: receiver {receiver} is sent to by Apprise, which is not installed"
        raise ConfigError(f"{missing}; install it with: {EXTRA}") from None


def scheme_of(url: str) -> str:
    """What may be shown of an address: in many of Apprise's the host is itself the secret."""
    scheme, found, _ = url.partition("://")
    return f"{scheme}:// by Apprise" if found and scheme.isalnum() else "its URL, which is none of Apprise's"


def kind_of(document: Mapping[str, Any]) -> str:
    """Apprise's type of a message, by which services colour it: `failure`, `warning`, `success` or `info`."""
    if document["transition"] == NOTE:
        return "info"
    if document["transition"] == Transition.RESOLVED.value:
        return "success"
    return "failure" if document["severity"] == "page" else "warning"


def handed_over(url: str, document: Mapping[str, Any], timeout_seconds: float) -> Arrival | Failure:
    """Blocks, connecting and reading limited to the time-out each. To be called in a context of its own.

    Raises ConfigError when the address is none that Apprise knows.
    """
    from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType, PersistentStoreMode

    asset = AppriseAsset(storage_mode=PersistentStoreMode.MEMORY, async_mode=False, secure_logging=True)
    where = scheme_of(url)
    statuses: list[int] = []
    _statuses.set(statuses)
    service = Apprise.instantiate(url, asset=asset)
    if service is None or isinstance(service, str):
        raise ConfigError(f"{where}: Apprise knows no such service, or something of its URL is missing")
    service.socket_connect_timeout = service.socket_read_timeout = timeout_seconds
    hub = Apprise(asset=asset)
    hub.add(service)
    title, _, body = document["text"].partition("\n")
    kind = NotifyType(kind_of(document))
    arrived = hub.notify(body=body or title, title=title, notify_type=kind, body_format=NotifyFormat.TEXT)
    return Arrival(f"{where}: accepted") if arrived else _failure(where, statuses)


def _failure(where: str, statuses: list[int]) -> Failure:
    """Final only where every answer was; of an answer Apprise says no more than its status, and that in its log."""
    if not statuses:
        return Failure(f"{where}: it could not deliver the message", why=Why.UNREACHABLE)
    said = f"{where}: HTTP {', '.join(map(str, dict.fromkeys(statuses)))}"
    if NEVER_SUCCEEDS.issuperset(statuses):
        return Failure(said, final=True, why=Why.REFUSED)
    return Failure(said, why=Why.THROTTLED if TOO_MANY in statuses else Why.ERROR)


class _Statuses(logging.Handler):
    """Keeps the HTTP statuses that Apprise logs for the context that asks, in whichever of its threads."""

    def emit(self, record: logging.LogRecord) -> None:
        found = _statuses.get()
        if found is not None:
            found += map(int, _STATUS.findall(record.getMessage()))


_statuses: ContextVar[list[int] | None] = ContextVar("statuses", default=None)
_log = logging.getLogger("apprise")
_log.propagate = False  # what it says may quote addresses; what is to be said of a failure is said here
_log.setLevel(logging.WARNING)
_log.addHandler(_Statuses())
