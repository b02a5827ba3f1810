"""kill −9 of `serve` around a send: every transition arrives at every receiver, in order, repeats under one key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store import incident_events, incidents
from tests.acceptance.hooks import Hook
from tests.acceptance.processes import eventually
from tests.acceptance.stored import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)

ROUTE, DOMAIN = "chat-0", "coding"


@pytest.fixture
def other_hook() -> Iterator[Hook]:
    with Hook().running() as found:
        yield found


def document(incident_id: int, transition: Transition, at: datetime) -> dict[str, Any]:
    """As much of an incident's document as a web hook is sent."""
    return {
        "incident_id": incident_id,
        "transition": transition.value,
        "route": ROUTE,
        "labels": {},
        "severity": "page",
        "domain": DOMAIN,
        "domains": [DOMAIN],
        "summary": f"{transition.value} {ROUTE}",
        "text": f"{transition.value} {ROUTE}",
        "opened_at": at.isoformat(),
        "happened_at": at.isoformat(),
        "link": None,
    }


def queue_opened_and_resolved(database: Database, *receivers: str) -> None:
    """An incident as two runs' transactions leave it when nothing could be sent in between."""
    now = datetime.now(UTC)
    broken = IncidentState({DOMAIN: BrokenDomain("acceptance-drop", "page")})
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, ROUTE, None, broken, now)
        opened = document(incident_id, Transition.OPENED, now)
        incident_events.add_event(connection, incident_id, Transition.OPENED, opened, receivers, now)
        incidents.save_state(connection, ROUTE, incident_id, IncidentState(), now)
        resolved = document(incident_id, Transition.RESOLVED, now)
        incident_events.add_event(connection, incident_id, Transition.RESOLVED, resolved, receivers, now)


def unsent(database: Database) -> int:
    return len(rows(database, "SELECT id FROM deliveries WHERE state <> 'sent'"))


def test_what_was_being_sent_at_a_kill_is_sent_after_the_restart(
    home: Home, simulator: SimulatedServer, database: Database, hook: Hook, other_hook: Hook
) -> None:
    hooks = {"claimed": hook, "sent": other_hook}
    home.receivers([{"name": name, "webhook": {"url": found.url}} for name, found in hooks.items()])
    hook.deaf, other_hook.answer = True, None
    queue_opened_and_resolved(database, *hooks)
    killed = home.serve()
    assert hook.reached.wait(60), killed.log()
    assert other_hook.reached.wait(60), killed.log()
    killed.kill()
    assert (hook.transitions(), other_hook.transitions()) == ([], ["opened"])
    hook.let_go()
    other_hook.let_go()

    serve = home.serve(name="restarted")
    eventually(lambda: not unsent(database), "everything is sent, once the dead sender's lease is over", 90)
    assert hook.transitions() == other_hook.transitions() == ["opened", "resolved"]
    assert [message.transition for message in hook.messages] == ["opened", "resolved"]
    assert [message.transition for message in other_hook.messages] == ["opened", "opened", "resolved"]
    assert other_hook.messages[0].key == other_hook.messages[1].key
    assert len({message.key for found in hooks.values() for message in found.messages}) == 4
    serve.stop()


def test_a_receiver_that_fails_holds_up_nobody_else_and_gets_everything_in_order_when_it_is_well(
    home: Home, simulator: SimulatedServer, database: Database, hook: Hook, other_hook: Hook
) -> None:
    hooks = {"sick": hook, "well": other_hook}
    home.receivers([{"name": name, "webhook": {"url": found.url}} for name, found in hooks.items()])
    hook.answer = 503
    queue_opened_and_resolved(database, *hooks)
    serve = home.serve()
    eventually(lambda: other_hook.transitions() == ["opened", "resolved"], "the well one has both")
    eventually(lambda: hook.messages, "the sick one was tried")
    assert {message.transition for message in hook.messages} == {"opened"}
    hook.let_go()
    eventually(lambda: not unsent(database), "everything is sent")
    assert hook.transitions() == ["opened", "resolved"]
    serve.stop()


def test_sigterm_during_a_send_waits_for_the_answer(
    home: Home, simulator: SimulatedServer, database: Database, hook: Hook
) -> None:
    home.receivers([{"name": "slow", "webhook": {"url": hook.url}}])
    hook.delay_seconds = 1.0
    queue_opened_and_resolved(database, "slow")
    serve = home.serve()
    assert hook.reached.wait(60), serve.log()
    serve.stop()
    sent = [row[0] for row in rows(database, "SELECT state FROM deliveries ORDER BY id")]
    assert sent[0] == "sent"
    assert hook.transitions()[0] == "opened"


def test_a_refusal_is_told_by_the_other_receiver_after_a_kill_and_its_end_when_it_is_retried(
    home: Home, simulator: SimulatedServer, database: Database, hook: Hook, other_hook: Hook
) -> None:
    hooks = {"sick": hook, "well": other_hook}
    home.receivers([{"name": name, "webhook": {"url": found.url}} for name, found in hooks.items()])
    hook.answer, other_hook.deaf = 401, True
    queue_opened_and_resolved(database, *hooks)
    killed = home.serve()
    told = "SELECT id FROM incidents WHERE kind = 'undelivered'"
    eventually(lambda: rows(database, told), "the refusal has an incident")
    killed.kill()
    assert other_hook.transitions() == []
    other_hook.let_go()

    serve = home.serve(name="restarted")
    eventually(lambda: len(about_sick(other_hook)) == 1, "the other is told", 90)
    assert " UTC, “opened chat-0” of incident 1: " in about_sick(other_hook)[0]
    refused = "SELECT id FROM deliveries WHERE receiver = 'sick' AND state = 'dead'"
    eventually(
        lambda: len(rows(database, refused)) == 2, "the start has tried again, in vain, and the end is refused too"
    )
    hook.answer = 200
    assert home.run("receivers", "retry", "sick").stdout == "1 message to sick will be sent again\n"
    eventually(lambda: len(about_sick(other_hook)) == 2, "the other is told that it is over")
    assert about_sick(other_hook)[1].startswith("RESOLVED receiver sick: it takes messages again, after ")
    assert hook.messages[-1].transition == "resolved"
    assert len(rows(database, told)) == 1
    serve.stop()


def about_sick(hook: Hook) -> list[str]:
    """First lines of what a hook was told of the other receiver, each once."""
    bodies = [message.body for message in hook.messages]
    ours = [body for body in bodies if body["commonLabels"]["route"] == "receiver sick"]
    return list(dict.fromkeys(body["commonAnnotations"]["summary"] for body in ours))
