"""An incident's message as e-mail: made here, and handed to an SMTP server."""

from __future__ import annotations

import smtplib
import ssl
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from html import escape
from typing import TYPE_CHECKING, Any

from monitor.alerting.document import note_about
from monitor.alerting.layout import links
from monitor.alerting.posting import Arrival, Failure, Why, cause
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PERMANENT = 500
"""SMTP replies from here on are refusals that the same message will get again."""


def made_message(
    sender: str, to: Sequence[str], key: str, incident_id: int, document: Mapping[str, Any]
) -> EmailMessage:
    """Text and HTML; one thread per incident, bump or silence, its opening first. A repeat has the same Message-ID."""
    domain = parseaddr(sender)[1].rpartition("@")[2]
    opened_at = datetime.fromisoformat(document["opened_at"])
    message = EmailMessage()
    message["From"], message["To"] = sender, ", ".join(to)
    message["Subject"] = document["summary"]
    message["Date"] = format_datetime(datetime.fromisoformat(document["happened_at"]))
    message["Message-ID"] = f"<{key}.{opened_at:%Y%m%d%H%M%S}@{domain}>"
    kind, number = ("incident", incident_id) if incident_id else note_about(document)
    thread = f"{kind}-{number}"
    message["References"] = f"<specwatch-{thread}.{opened_at:%Y%m%d%H%M%S}@{domain}>"
    if document.get("severity") == "page" and document["transition"] != Transition.RESOLVED.value:
        message["Importance"] = "high"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(document["text"])
    message.add_alternative(_html(document), subtype="html")
    return message


def _html(document: Mapping[str, Any]) -> str:
    shown = "".join(f'<p><a href="{escape(url)}">{title}</a></p>' for title, url in links(document))
    first, _, rest = document["text"].partition("\n")
    return f"<html><body><p><b>{escape(first)}</b></p><pre>{escape(rest)}</pre>{shown}</body></html>"


def handed_over(
    message: EmailMessage,
    host: str,
    port: int,
    security: str,
    credentials: tuple[str, str] | None,
    timeout_seconds: float,
) -> Arrival | Failure:
    """Blocks. `security`: `starttls`, `tls` or `none`. A server that takes some of the recipients has it, and they are
    named in the answer.
    """
    where = f"{host}:{port}"
    try:
        server = _connected(host, port, security, timeout_seconds)
        try:
            if credentials is not None:
                server.login(*credentials)
            refused = server.send_message(message)
        finally:
            _left(server)
    except (OSError, smtplib.SMTPException) as error:
        return _failure(where, error)
    missed = f"; refused for {', '.join(sorted(refused))}" if refused else ""
    return Arrival(f"{where}: accepted{missed}")


def _connected(host: str, port: int, security: str, timeout_seconds: float) -> smtplib.SMTP:
    if security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=timeout_seconds, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=timeout_seconds)
    if security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _left(server: smtplib.SMTP) -> None:
    """However the good-bye is taken, the message is accepted or not by now."""
    try:
        server.quit()
    except (OSError, smtplib.SMTPException):
        server.close()


def _failure(where: str, error: Exception) -> Failure:
    """Codes without the server's own words, which may quote what was sent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = {code for code, _ in error.recipients.values()}
        listed = ", ".join(map(str, sorted(codes)))
        return _answered(min(codes), f"{where}: every recipient is refused (SMTP {listed})")
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return _answered(error.smtp_code, f"{where}: user or password is refused (SMTP {error.smtp_code})")
    if isinstance(error, smtplib.SMTPResponseException):
        return _answered(error.smtp_code, f"{where}: SMTP {error.smtp_code}")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return _answered(PERMANENT, f"{where}: it does not offer the STARTTLS or the login that the settings ask for")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return Failure(f"{where}: it closed the connection")
    if isinstance(error, TimeoutError):
        return Failure(f"{where}: no answer within the time allowed", why=Why.NO_ANSWER)
    return Failure(f"{where}: {cause(error)}")


def _answered(code: int, error: str) -> Failure:
    final = code >= PERMANENT
    return Failure(error, final, why=Why.REFUSED if final else Why.ERROR)
