"""Before a silence ends: whoever is routed is told what still fires, once, past the silence, and nobody is woken."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.alertmanager import webhook_note
from monitor.alerting.mail import made_message
from monitor.alerting.pagerduty import change_body
from monitor.alerting.slack import message_body
from monitor.alerting.teams import card_body
from monitor.cli.silence import _columns as silence_columns
from monitor.service.silence_ends import SilenceEnds
from monitor.store import outbox, silences
from tests.factories import make_alerting
from tests.integration.test_gathering import SECOND, Several, both, told_of_coding
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.store.database import Database

HOUR = timedelta(hours=1)
DUE = 2 * HOUR - timedelta(minutes=15)


class Silenced(Several):
    """A silence of two hours that begins when coding breaks, and what a look at a time after that queues."""

    def __init__(self, database: Database, *, lasts: timedelta = 2 * HOUR, by: str = "ann", **changes: Any) -> None:
        super().__init__(database, make_alerting(**changes))
        self.silence(lasts, by=by)

    def silence(self, lasts: timedelta, *, by: str = "ann", **narrowed: Any) -> int:
        with self.database.transaction() as connection:
            made = silences.add_silence(connection, by, "rollout", self.began + lasts, self.began, **narrowed)
        return int(made["id"])

    def looks(self, after: timedelta) -> list[int]:
        return SilenceEnds(self.database, self.config, lambda: self.began + after).tell()

    def notes(self, after: timedelta) -> list[outbox.Delivery]:
        with self.database.transaction() as connection:
            found = outbox.claim_deliveries(connection, self.began + after, timedelta(seconds=30), 50)
            for delivery in found:
                outbox.mark_sent(connection, delivery.id, self.began + after)
        return [one for one in found if one.is_note]


@pytest.fixture
def silenced(database: Database) -> Silenced:
    found = Silenced(database)
    found.breaks("coding", 0 * SECOND)
    return found


def test_the_end_is_told_once_in_time_past_the_silence_and_then_what_it_held(silenced: Silenced) -> None:
    assert silenced.looks(DUE - SECOND) == []
    assert silenced.looks(DUE) == [1]
    assert silenced.looks(DUE + SECOND) == []
    told = silenced.notes(DUE)
    assert sorted(one.receiver for one in told) == ["console", "hook"]
    assert (
        told[0]
        .document["summary"]
        .startswith("SILENCE ENDS SOON chat-prod · coding: “rollout” by ann ends in 15 min 0 s, at 2026-03-")
    )
    assert (
        " UTC, and incident 1 (page) is still open: acceptance length 1.92 by request, 20% below its baseline 2.40, "
        in told[0].document["summary"]
    )
    assert "\n             specwatch silence add --by NAME --reason REASON --for 2h" in told[0].document["text"]
    assert silenced.sent(2 * HOUR) == both("opened", "coding")


def test_many_that_look_at_once_tell_once(silenced: Silenced) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: silenced.looks(DUE), range(8)))
    assert sorted(found) == [[]] * 7 + [[1]]
    assert len(silenced.notes(DUE)) == 2


def test_an_incident_that_was_told_before_the_silence_is_named_too(database: Database) -> None:
    several = told_of_coding(Silenced(database, lasts=timedelta(days=-1)))
    several.silence(2 * HOUR)
    assert several.looks(DUE) == [2]


@pytest.mark.parametrize(
    ("lasts", "changes"), [(timedelta(minutes=10), {}), (2 * HOUR, {"silence_notice": "off"}), (4 * HOUR, {})]
)
def test_a_short_silence_one_that_lasts_on_or_with_notices_off_is_not_told(
    database: Database, lasts: timedelta, changes: dict[str, Any]
) -> None:
    several = Silenced(database, lasts=lasts, **changes)
    several.breaks("coding", 0 * SECOND)
    assert several.looks(min(lasts, 2 * HOUR) - SECOND) == []


def test_where_nothing_fires_or_another_silence_holds_on_nothing_is_told(silenced: Silenced) -> None:
    other = silenced.silence(2 * HOUR, route="another")
    assert silenced.looks(DUE) == [1], f"silence {other} is of a route where nothing fires"
    silenced.silence(3 * HOUR - SECOND, severity="page")
    later = silenced.silence(3 * HOUR, severity="page")
    assert silenced.looks(3 * HOUR - timedelta(minutes=15)) == [later]


def test_every_receiver_takes_it_as_a_note_that_wakes_nobody(silenced: Silenced) -> None:
    silenced.looks(DUE)
    document = silenced.notes(DUE)[0].document
    webhook = webhook_note("hook", document, None)
    assert (webhook["status"], webhook["alerts"], webhook["groupKey"]) == ("note", [], "specwatch/chat-prod/silence/1")
    assert webhook["silence"]["incidents"][0]["id"] == 1
    assert change_body("key", document)["payload"]["custom_details"].keys() == {"text", "labels"}
    assert message_body(document)["text"] == document["summary"]
    assert _first_line(card_body(document)) == document["summary"]
    mail = made_message("a@example.com", ["b@example.com"], "key", 0, document)
    assert str(mail["References"]).startswith("<specwatch-silence-1.")
    assert mail["Importance"] is None


def test_the_list_shows_what_still_fires_and_when_its_end_is_told(database: Database) -> None:
    several = Silenced(database)
    several.began = datetime.now(UTC) - HOUR
    several.breaks("coding", 0 * SECOND)
    silence_id = several.silence(2 * HOUR)
    listed = json.loads(specwatch(database, "silence", "list", "--format", "json").stdout)[0]
    notice_at = (several.began + DUE).isoformat()
    assert (listed["id"], listed["incidents"], listed["end_told_at"]) == (silence_id, [1], None)
    assert listed["notice_at"] in (None, notice_at), "None where the working directory has no configuration"
    several.looks(DUE)
    listed = json.loads(specwatch(database, "silence", "list", "--format", "json").stdout)[0]
    assert listed["end_told_at"] == notice_at


@pytest.mark.parametrize(("fires", "told"), [(False, "not yet: nothing fires"), (True, "now")])
def test_a_silence_whose_end_could_have_been_told_and_was_not_does_not_show_a_time_past(fires: bool, told: str) -> None:
    past = (datetime.now(UTC) - HOUR).isoformat()
    row = {"end_told_at": None, "notice_at": past, "incidents": [1] if fires else []}
    [column] = [column for column in silence_columns() if column.heading.startswith("end told ahead")]
    assert column.text(row) == told
    assert column.text({**row, "end_told_at": past}).startswith("told ")


def _first_line(card: Mapping[str, Any]) -> str:
    return str(card["attachments"][0]["content"]["body"][0]["inlines"][0]["text"])
