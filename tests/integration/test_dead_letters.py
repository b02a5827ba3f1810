"""A receiver that will not get a message: the others are told, once, until it takes one again, and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from monitor.alerting.dead_letters import DeadLetters, Loss
from monitor.alerting.posting import Arrival, Failure, Why
from monitor.alerting.receivers import build_receivers
from monitor.alerting.sender import GIVE_UP_AFTER_ATTEMPTS, Sender
from monitor.cli import cli
from monitor.core.bumps import NOTE
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.service.reconciling import reconcile
from monitor.service.removed import close_removed
from monitor.store import bumps, dead, incident_events, incidents, outbox
from tests.acceptance.hooks import Hook
from tests.factories import ROUTE, START, make_alerting, make_config, make_document, make_route

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from monitor.alerting.receivers import Receiver
    from monitor.config.alerting import Alerting
    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

REFUSED = Failure("pager.example: HTTP 401", final=True, why=Why.REFUSED)
ARRIVED = Arrival("pager.example: HTTP 202")
NAMES = ("pager", "chat", "ops")
ROUTING = [{"receiver": "pager"}, {"receiver": "chat"}]


class Scripted:
    """Gives the answers one by one, the last for ever; keeps what it was sent and how that ended."""

    def __init__(self, *answers: Arrival | Failure) -> None:
        self.answers = list(answers) or [ARRIVED]
        self.taken: list[Delivery] = []

    def where(self) -> str:
        return "there"

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Arrival):
            self.taken.append(delivery)
        return answer

    def heard(self) -> list[tuple[str, str]]:
        """(transition, first line up to its colon) of what it took."""
        return [(one.transition, one.document["summary"].partition(": ")[0]) for one in self.taken]


class Bed:
    """A store with receivers that do as they are told: `pager` and `chat` hear of the route, `ops` of nothing."""

    def __init__(self, database: Database, routing: Sequence[dict[str, Any]] = ROUTING) -> None:
        self.database = database
        self.now = START
        receivers = [{"name": "log", "log": {}}, *({"name": n, "webhook": {"url": f"http://{n}/"}} for n in NAMES)]
        self.alerting: Alerting = make_alerting(
            receivers=receivers, routing=[*routing, {"receiver": "log"}], runbook_url="https://wiki.example.com/r"
        )
        self.there = {name: Scripted() for name in NAMES}
        letters = DeadLetters(self.alerting, [make_route()])
        receivers_there: dict[str, Receiver] = {**self.there, "log": Scripted()}
        self.sender = Sender(database, receivers_there, lambda: self.now, (), letters)

    async def settle(self) -> None:
        for _ in range(6):
            self.now += timedelta(minutes=1)
            await self.sender.send_due()

    def happens(
        self,
        receivers: Sequence[str],
        transition: Transition = Transition.OPENED,
        *,
        route: str = ROUTE,
        severity: str = "page",
        incident_id: int | None = None,
    ) -> int:
        state = IncidentState({"coding": BrokenDomain("acceptance-drop", severity)})
        if transition is Transition.RESOLVED:
            state = IncidentState()
        with self.database.transaction() as connection:
            found = incidents.save_state(connection, route, incident_id, state, self.now)
            summary = f"{severity.upper()} {route} · coding: acceptance length 2.20, 35% below its baseline"
            said = {"summary": summary, "severity": severity, "route": route, "incident_id": found}
            document = make_document(transition.value, **said, happened_at=self.now.isoformat())
            incident_events.add_event(connection, found, transition, document, receivers, self.now)
        return found

    def of_receiver(self, name: str) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            rows = incidents.list_incidents(connection, f"receiver {name}")
            return [incidents.get_incident(connection, row["id"]) or {} for row in reversed(rows)]

    def states(self, incident_id: int) -> list[tuple[str, str, str]]:
        with self.database.transaction() as connection:
            found = incidents.get_incident(connection, incident_id) or {}
        return [(e["transition"], d["receiver"], d["state"]) for e in found["events"] for d in e["deliveries"]]


@pytest.fixture
def bed(database: Database) -> Bed:
    return Bed(database)


async def test_the_others_routed_are_told_which_receiver_what_since_when_why_and_what_to_run(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.there["pager"].answers = [REFUSED]
    lost_id = bed.happens(["pager", "chat"])
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert (incident["kind"], incident["severity"], incident["state"]) == ("undelivered", "page", "open")
    first, *lines = incident["events"][0]["text"].splitlines()
    assert first == (
        f"PAGE receiver pager: could not deliver, since 2026-03-02 10:00:00 UTC, “PAGE chat-prod · coding” of incident "
        f"{lost_id}: pager.example: HTTP 401; next: specwatch receivers test pager"
    )
    assert [line.strip() for line in lines] == [
        "not told   PAGE chat-prod · coding: acceptance length 2.20, 35% below its baseline",
        "why        pager.example: HTTP 401",
        "told of it chat",
        "meanwhile  no more is said of pager until it takes a message; it may miss others too",
        "next       specwatch receivers test pager",
        f"specwatch incidents {incident['id']}",
        "specwatch receivers retry pager",
        f"specwatch incidents {lost_id}",
        f"link       https://specwatch.example.com/incidents/{incident['id']}",
        "runbook    https://wiki.example.com/r",
    ]
    assert bed.there["chat"].heard() == [("opened", "PAGE chat-prod · coding"), ("opened", "PAGE receiver pager")]
    assert (bed.there["pager"].heard(), bed.there["ops"].heard()) == ([], [])
    assert f"nobody was told there; chat will be told of it, incident {incident['id']}" in caplog.text


async def test_a_receiver_is_told_of_once_until_it_works_and_again_when_it_fails_again(bed: Bed) -> None:
    bed.there["pager"].answers = [REFUSED, REFUSED, REFUSED, ARRIVED, REFUSED]
    for number in range(3):
        bed.happens(["pager"], route=f"route-{number}")
        await bed.settle()
    assert [len(incident["events"]) for incident in bed.of_receiver("pager")] == [1]
    bed.happens(["pager"], route="route-3")
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert incident["state"] == "resolved"
    assert incident["events"][1]["summary"] == (
        "RESOLVED receiver pager: it takes messages again, after 18 min 0 s; 3 messages never reached it; "
        f"incident {incident['id']}"
    )
    bed.happens(["pager"], route="route-4")
    await bed.settle()
    assert [incident["state"] for incident in bed.of_receiver("pager")] == ["resolved", "open"]
    told = [one for one in bed.there["ops"].heard() if "receiver pager" in one[1]]
    assert [transition for transition, _ in told] == ["opened", "resolved", "opened"]


async def test_a_message_that_is_given_up_after_the_last_attempt_is_told_too(bed: Bed) -> None:
    bed.there["pager"].answers = [Failure("pager.example: HTTP 500", why=Why.ERROR)]
    bed.happens(["pager", "chat"])
    with bed.database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE deliveries SET attempts = {GIVE_UP_AFTER_ATTEMPTS - 1}")
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert incident["events"][0]["reason"] == "pager.example: HTTP 500, 100 times"


async def test_a_page_that_is_lost_after_a_warning_is_told_to_all_who_know_of_the_warning(bed: Bed) -> None:
    bed.there["pager"].answers = [REFUSED]
    bed.happens(["pager", "chat"], route="other", severity="warning")
    await bed.settle()
    bed.happens(["pager"])
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert [(e["transition"], e["severity"], e["raised_from"]) for e in incident["events"]] == [
        ("opened", "warning", None),
        ("updated", "page", "warning"),
    ]
    assert [h for h in bed.there["chat"].heard() if "receiver" in h[1]] == [
        ("opened", "WARNING receiver pager"),
        ("updated", "PAGE receiver pager"),
    ]


async def test_a_later_loss_is_told_to_whom_nobody_told_of_the_first(database: Database) -> None:
    bed = Bed(database, [{"receiver": "pager"}, {"receiver": "ops", "routes": ["chat-prod"]}])
    bed.there["pager"].answers = [REFUSED]
    bed.happens(["pager", "chat"], route="other")
    await bed.settle()
    bed.happens(["pager", "ops"])
    bed.happens(["pager", "ops"], route="third")
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert [h[0] for h in bed.there["chat"].heard()] == ["opened", "opened"]
    assert bed.there["ops"].heard().count(("updated", "PAGE receiver pager")) == 1
    assert bed.states(incident["id"]) == [("opened", "chat", "sent"), ("updated", "ops", "sent")]


async def test_where_nobody_else_is_routed_and_well_whoever_there_is_is_told(bed: Bed) -> None:
    bed.there["pager"].answers = bed.there["chat"].answers = [REFUSED]
    bed.happens(["pager", "chat"])
    await bed.settle()
    assert sorted(bed.there["ops"].heard()) == [("opened", "PAGE receiver chat"), ("opened", "PAGE receiver pager")]
    assert len(bed.of_receiver("pager")) == len(bed.of_receiver("chat")) == 1


async def test_what_is_said_of_a_receiver_and_refused_by_all_who_were_told_is_told_to_the_rest(bed: Bed) -> None:
    bed.there["pager"].answers = [REFUSED]
    bed.there["chat"].answers = [ARRIVED, REFUSED]
    bed.happens(["chat"])
    await bed.settle()
    bed.happens(["pager"], route="other")
    await bed.settle()
    assert bed.there["ops"].heard() == [("opened", "PAGE receiver pager")]
    assert bed.of_receiver("chat") == [], "it took all that is about routes"


async def test_what_is_passed_on_after_its_incident_is_over_ends_where_it_arrives(bed: Bed) -> None:
    """The opening waited at one receiver when the incident ended, and is refused there only now."""
    later = Failure("chat.example: HTTP 503", why=Why.ERROR)
    bed.there["pager"].answers = [REFUSED, ARRIVED]
    bed.there["chat"].answers = [later, later, REFUSED, ARRIVED]
    bed.happens(["pager"])
    await bed.sender.send_due()  # pager's loss
    await bed.sender.send_due()  # of which chat does not take the message yet
    bed.happens(["pager"], route="other")
    await bed.sender.send_due()
    [incident] = bed.of_receiver("pager")
    assert (incident["state"], bed.there["ops"].heard()) == ("resolved", [])
    await bed.settle()
    assert bed.there["ops"].heard() == [("opened", "PAGE receiver pager"), ("resolved", "RESOLVED receiver pager")]
    assert bed.there["chat"].heard() == [("resolved", "RESOLVED receiver pager")]


async def test_without_any_other_receiver_the_log_and_the_store_have_it(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bed = Bed(database)
    bed.alerting = make_alerting(receivers=[{"name": "pager", "webhook": {"url": "http://p/"}}])
    bed.sender.dead_letters = DeadLetters(bed.alerting, [make_route()])
    bed.there["pager"].answers = [REFUSED]
    bed.happens(["pager"])
    await bed.settle()
    [incident] = bed.of_receiver("pager")
    assert bed.states(incident["id"]) == []
    assert "told of it nobody: there is no other receiver" in incident["events"][0]["text"]
    assert f"nobody else is told of this one, incident {incident['id']}" in caplog.text
    assert [r.levelname for r in caplog.records if r.name == "monitor.alerting.sender"] == ["ERROR"]


async def test_a_receiver_that_was_taken_out_is_told_to_nobody(bed: Bed) -> None:
    bed.happens(["gone", "chat"])
    await bed.settle()
    assert bed.of_receiver("gone") == []
    assert bed.there["chat"].heard() == [("opened", "PAGE chat-prod · coding")]


async def test_receivers_that_refuse_what_is_said_of_each_other_do_not_go_on_for_ever(bed: Bed) -> None:
    """Each takes only what the other's last message is not: without an end they would tell each other at every turn."""
    bed.there["pager"].answers = [REFUSED, ARRIVED] * 50
    bed.there["chat"].answers = bed.there["ops"].answers = [ARRIVED, REFUSED] * 50
    bed.happens(["pager", "chat"])
    for _ in range(5):
        await bed.settle()
    with bed.database.transaction() as connection:
        number = connection.exec_driver_sql("SELECT count(*) FROM incident_events").scalar_one()
        waiting = outbox.oldest_waiting(connection)
    assert number <= 4
    assert waiting == {}


async def test_what_is_told_of_a_bump_is_a_warning_when_it_is_lost(bed: Bed) -> None:
    bed.there["pager"].answers = [REFUSED]
    with bed.database.transaction() as connection:
        verdict_id = bumps.open_verdict(connection, ROUTE, ["coding"], {}, START, START, None)
        document = {
            **make_document(NOTE),
            "summary": "BUMP chat-prod · after bump to k 5: level",
            "bump_id": verdict_id,
        }
        del document["severity"]
        bumps.decide(connection, verdict_id, document, ["pager"], START)
    await bed.settle()
    assert bed.there["chat"].heard() == [("opened", "WARNING receiver pager")]


async def test_a_start_tries_again_what_was_refused_and_the_incident_ends_with_its_arrival(
    bed: Bed, database: Database
) -> None:
    bed.there["pager"].answers = [REFUSED]
    lost_id = bed.happens(["pager", "chat"])
    await bed.settle()
    config = make_config(alerting=bed.alerting)
    reconcile(database, config, DeadLetters(config.alerting, config.routes), bed.now)
    bed.there["pager"].answers = [ARRIVED]
    await bed.settle()
    assert bed.there["pager"].heard() == [("opened", "PAGE chat-prod · coding")]
    assert ("opened", "pager", "sent") in bed.states(lost_id)
    [incident] = bed.of_receiver("pager")
    assert incident["state"] == "resolved"
    assert incident["events"][-1]["summary"].endswith(
        f"; nothing that it missed is left to tell; incident {incident['id']}"
    )


def test_what_was_overtaken_is_not_tried_again(bed: Bed) -> None:
    """An opening that follows its resolution would stay open at the receiver for ever."""
    ends = (("dead", "sent"), ("dead", "dead"), ("dead", "gathered"))
    with bed.database.transaction() as connection:
        for number in range(len(ends)):
            found = incidents.save_state(connection, f"route-{number}", None, _broken(), START)
            for transition in (Transition.OPENED, Transition.RESOLVED):
                incident_events.add_event(connection, found, transition, make_document(), ["pager"], START)
            incidents.save_state(connection, f"route-{number}", found, IncidentState(), START)
        rows = connection.exec_driver_sql("SELECT id FROM deliveries ORDER BY id").scalars().all()
        for row, state in zip(rows, itertools.chain(*ends), strict=True):
            connection.exec_driver_sql(f"UPDATE deliveries SET state = '{state}' WHERE id = {row}")
        assert dead.retry_dead(connection, "pager", START) == 1
        again = connection.exec_driver_sql("SELECT id FROM deliveries WHERE state = 'pending'").scalars().all()
    assert again == [rows[4]], "the last that was refused; of incidents that are over nothing else"


def test_every_end_of_what_it_was_told_is_tried_again(bed: Bed) -> None:
    """Each alert that a receiver has would stay open there without its end, and not only the last one."""
    lives = (("sent", "dead"), ("sent", "dead"), ("dead", "dead"), ("sent", "sent"))
    with bed.database.transaction() as connection:
        for number in range(len(lives)):
            found = incidents.save_state(connection, f"route-{number}", None, _broken(), START)
            for transition in (Transition.OPENED, Transition.RESOLVED):
                incident_events.add_event(connection, found, transition, make_document(), ["pager"], START)
            incidents.save_state(connection, f"route-{number}", found, IncidentState(), START)
        rows = connection.exec_driver_sql("SELECT id FROM deliveries ORDER BY id").scalars().all()
        for row, state in zip(rows, itertools.chain(*lives), strict=True):
            connection.exec_driver_sql(f"UPDATE deliveries SET state = '{state}' WHERE id = {row}")
        assert dead.retry_dead(connection, "pager", START) == 2
        again = connection.exec_driver_sql("SELECT id FROM deliveries WHERE state = 'pending' ORDER BY id").scalars()
        assert again.all() == [rows[1], rows[3]]


def test_after_what_is_sent_again_nothing_older_is(bed: Bed) -> None:
    bed.happens(["pager"])
    bed.happens(["pager"], route="code-prod")
    with bed.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET state = 'dead'")
        connection.exec_driver_sql("UPDATE incidents SET resolved_at = opened_at")
        assert [dead.retry_dead(connection, "pager", START) for _ in range(3)] == [1, 0, 0]


def _broken() -> IncidentState:
    return IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})


async def test_the_incident_of_a_receiver_that_leaves_the_configuration_ends(bed: Bed) -> None:
    bed.there["pager"].answers = [REFUSED]
    bed.happens(["pager", "chat"])
    await bed.settle()
    with bed.database.transaction() as connection:
        [(subject, kind)] = [one for one in incidents.open_subjects(connection) if one[0] == "receiver pager"]
        assert close_removed(connection, make_config(alerting=bed.alerting), subject, kind, bed.now) is None
        without = make_alerting(receivers=[{"name": "chat", "webhook": {"url": "http://chat/"}}])
        closed = close_removed(connection, make_config(alerting=without), subject, kind, bed.now)
        assert closed is not None
        found = incidents.get_incident(connection, closed) or {}
    assert (found["route"], found["events"][-1]["reason"]) == (
        "receiver pager",
        "receiver removed from configuration",
    )
    assert [d["receiver"] for d in found["events"][-1]["deliveries"]] == ["chat"]


async def test_over_http_a_web_hook_hears_of_the_other_as_an_alert_of_its_own_and_its_end(database: Database) -> None:
    with Hook().running() as broken, Hook().running() as well:
        receivers = [{"name": n, "webhook": {"url": hook.url}} for n, hook in (("broken", broken), ("well", well))]
        alerting = make_alerting(receivers=receivers)
        bed = Bed(database)
        letters = DeadLetters(alerting, [make_route()])
        bed.sender = Sender(database, build_receivers(alerting), lambda: bed.now, (), letters)
        broken.answer = 404
        lost_id = bed.happens(["broken", "well"])
        await bed.settle()
        broken.answer = 200
        bed.happens(["broken", "well"], Transition.RESOLVED, incident_id=lost_id)
        await bed.settle()
        bodies = [message.body for message in well.messages]
    ours = [body for body in bodies if body["commonLabels"]["alertname"] == "SpecwatchUndelivered"]
    assert [body["status"] for body in ours] == ["firing", "resolved"]
    assert {(body["groupKey"], body["alerts"][0]["fingerprint"]) for body in ours} == {
        (f"specwatch/receiver broken/{lost_id + 1}", f"1{lost_id + 1:015x}")
    }, "another alert than that of the incident which could not be told"
    assert ours[0]["commonLabels"]["receiver"] == "broken"


def test_retrying_by_hand_queues_what_was_refused_and_says_how_much(
    tmp_path: Path, database: Database, bed: Bed
) -> None:
    route = {"name": ROUTE, "replicas": ["http://vllm-0:8000"], "domains": ["coding"]}
    receivers = [{"name": "pager", "webhook": {"url": "http://pager/"}}]
    (tmp_path / "routes.yaml").write_text(yaml.safe_dump({"routes": [route]}))
    alerting = {"rules": [{"name": "acceptance-drop", "drop": "15%"}], "receivers": receivers}
    (tmp_path / "alerting.yaml").write_text(yaml.safe_dump(alerting))
    url = database.url.render_as_string(hide_password=False)
    lost_id = bed.happens(["pager"])

    def retry(name: str) -> str:
        common = ["--config", str(tmp_path), "--database-url", url]
        result = CliRunner().invoke(cli, [*common, "receivers", "retry", name])
        return result.output or str(result.exception)

    assert retry("pager") == "there is no message to pager that is to be sent again\n"
    with database.transaction() as connection:
        [delivery] = outbox.claim_deliveries(connection, START, timedelta(seconds=30), 9)
        outbox.mark_dead(connection, delivery, "HTTP 401")
    assert retry("pager") == "1 message to pager will be sent again\n"
    assert bed.states(lost_id) == [("opened", "pager", "pending")]
    assert retry("nobody") == "there is no receiver nobody in alerting.yaml; there are: pager"


def test_what_another_sender_has_settled_meanwhile_is_neither_lost_nor_told(bed: Bed) -> None:
    lost_id = bed.happens(["pager", "chat"])
    letters = DeadLetters(bed.alerting, [make_route()])
    with bed.database.transaction() as connection:
        _, delivery = outbox.claim_deliveries(connection, START, timedelta(seconds=30), 9)
        assert outbox.mark_sent(connection, delivery.id, START)
        assert letters.lose(connection, delivery, REFUSED, START) == Loss()
    assert bed.of_receiver("pager") == []
    assert ("opened", "pager", "sent") in bed.states(lost_id)


def test_of_two_receivers_that_break_at_once_neither_is_told_of_by_the_other_alone(bed: Bed) -> None:
    bed.happens(["pager", "chat"])
    letters, second = DeadLetters(bed.alerting, [make_route()]), []
    with bed.database.transaction() as connection:
        chat, pager = outbox.claim_deliveries(connection, START, timedelta(seconds=30), 9)

    def lose_too() -> None:
        with bed.database.transaction() as connection:
            second.append(letters.lose(connection, chat, REFUSED, START))

    other = Thread(target=lose_too)
    with bed.database.transaction() as connection:
        assert letters.lose(connection, pager, REFUSED, START).told == {"chat"}
        other.start()
        other.join(0.5)
    other.join(10)
    assert [loss.told for loss in second] == [{"ops"}]


def test_what_had_arrived_before_a_loss_does_not_end_its_incident(bed: Bed) -> None:
    bed.happens(["pager"])
    bed.happens(["pager"], route="other")
    letters = DeadLetters(bed.alerting, [make_route()])
    with bed.database.transaction() as connection:
        first, second = outbox.claim_deliveries(connection, START, timedelta(seconds=30), 9)
        letters.arrive(connection, first, START)
        letters.lose(connection, second, REFUSED, START)
        letters.arrive(connection, first, START)  # another sender had it too, its lease having lapsed
    assert [incident["state"] for incident in bed.of_receiver("pager")] == ["open"]


async def test_a_sender_that_dies_while_it_has_others_told_leaves_it_to_the_next(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> dict[str, Any]:
        raise asyncio.CancelledError

    bed.there["pager"].answers = [REFUSED]
    lost_id = bed.happens(["pager", "chat"])
    with monkeypatch.context() as patched:
        patched.setattr("monitor.alerting.dead_letters.undelivered_event", dies)
        with pytest.raises(asyncio.CancelledError):
            await bed.sender.send_due()
    assert ("opened", "pager", "pending") in bed.states(lost_id), "neither marked nor told"
    assert bed.of_receiver("pager") == []
    await bed.settle()
    assert ("opened", "pager", "dead") in bed.states(lost_id)
    assert ("opened", "PAGE receiver pager") in bed.there["chat"].heard()
