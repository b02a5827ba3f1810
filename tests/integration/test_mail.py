"""Mail over real SMTP connections: what is arrival, what is tried again, and what never is."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.posting import Arrival, Failure
from monitor.alerting.receivers import build_receivers
from monitor.store.outbox import Delivery
from tests.factories import make_alerting, make_document
from tests.smtp import Mailbox

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = make_document()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox().running() as found:
        yield found


async def sent(port: int, **changes: Any) -> Arrival | Failure:
    to = ["oncall@example.com", "team@example.com"]
    settings = {"host": "127.0.0.1", "port": port, "sender": "s@example.com", "to": to, "security": "none"}
    alerting = make_alerting(receivers=[{"name": "mail", "email": {**settings, **changes}}])
    return await build_receivers(alerting)["mail"].send(Delivery(5, "mail", 12, 8, "opened", DOCUMENT, 1))


async def test_a_mail_arrives_whole(mailbox: Mailbox) -> None:
    assert await sent(mailbox.port) == Arrival(f"127.0.0.1:{mailbox.port}: accepted")
    (message,) = mailbox.messages
    assert (message["Subject"], message["To"]) == (DOCUMENT["summary"], "oncall@example.com, team@example.com")
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content().splitlines() == DOCUMENT["text"].splitlines()


@pytest.mark.parametrize(
    ("replies", "error", "final"),
    [
        ({"RCPT": "550 s3cret is not here"}, "every recipient is refused (SMTP 550)", True),
        ({"RCPT": "451 later"}, "every recipient is refused (SMTP 451)", False),
        ({"MAIL": "553 not you"}, "SMTP 553", True),
        ({"DATA": "452 full"}, "SMTP 452", False),
        ({".": "554 this is spam"}, "SMTP 554", True),
        ({"MAIL": None}, "it closed the connection", False),
    ],
)
async def test_a_refusal_is_final_from_500_on_and_says_no_more_than_its_code(
    mailbox: Mailbox, replies: dict[str, str | None], error: str, final: bool
) -> None:
    mailbox.replies = replies
    assert await sent(mailbox.port) == Failure(f"127.0.0.1:{mailbox.port}: {error}", final=final)
    assert mailbox.messages == []


async def test_a_connection_lost_after_acceptance_is_tried_again_with_the_same_id(mailbox: Mailbox) -> None:
    mailbox.replies = {".": None}
    assert isinstance(await sent(mailbox.port), Failure)
    mailbox.replies = {}
    assert isinstance(await sent(mailbox.port), Arrival)
    assert len({message["Message-ID"] for message in mailbox.messages}) == 1
    assert len(mailbox.messages) == 2


async def test_a_bad_goodbye_does_not_undo_an_arrival(mailbox: Mailbox) -> None:
    mailbox.replies = {"QUIT": "500 what"}
    assert isinstance(await sent(mailbox.port), Arrival)
    mailbox.replies = {"QUIT": None}
    assert isinstance(await sent(mailbox.port), Arrival)
    assert len(mailbox.messages) == 2


async def test_encryption_that_is_not_offered_is_not_done_without(mailbox: Mailbox) -> None:
    failure = await sent(mailbox.port, security="starttls")
    assert failure == Failure(
        f"127.0.0.1:{mailbox.port}: it does not offer the STARTTLS or the login that the settings ask for", final=True
    )
    assert mailbox.messages == []


async def test_no_server_and_a_silent_one_are_tried_again() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert await sent(port) == Failure(f"127.0.0.1:{port}: connection refused")
        silent.listen()
        assert await sent(port, timeout="200ms") in (
            Failure(f"127.0.0.1:{port}: no answer within 0.2 s"),
            Failure(f"127.0.0.1:{port}: no answer within the time allowed"),
        )


async def test_a_password_that_is_missing_now_may_be_there_later(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SMTP_PASSWORD", raising=False)
    failure = await sent(mailbox.port, security="tls", user="me", password={"env": "SMTP_PASSWORD"})
    assert isinstance(failure, Failure)
    assert failure.error.startswith("environment variable SMTP_PASSWORD is not set")
    assert not failure.final
