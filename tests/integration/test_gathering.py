"""Domains that break one after the other: the opening at once, the others together, nothing twice and nothing lost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.alerting.dead_letters import DeadLetters
from monitor.core.format import timeline
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob
from monitor.service.reconciling import reconcile
from monitor.store import outbox
from tests.factories import DOMAIN, make_alerting, make_config, make_route, make_run
from tests.integration.story import DROPPED, WELL, Story

if TYPE_CHECKING:
    from monitor.config.alerting import Alerting
    from monitor.store.database import Database

DOMAINS = (DOMAIN, "math", "qa", "writing")
SECOND = timedelta(seconds=1)
WINDOW = timedelta(minutes=5)
WARNS_AND_PAGES = [
    {"name": "slip", "drop": "10%", "severity": "warning"},
    {"name": "drop", "drop": "15%", "severity": "page"},
]
SLIPPED = 2.11


class Several(Story):
    """A route of several domains with baselines; what happens to them is recorded `after` a moment of its own."""

    domains: tuple[str, ...] = DOMAINS

    def __init__(self, database: Database, alerting: Alerting | None = None) -> None:
        self.config = make_config(make_route(domains=[*self.domains]), alerting=alerting)
        super().__init__(database, self.config)
        for domain in self.domains:
            self.baseline(domain=domain)
        self.began = self.now + timedelta(days=1)

    def breaks(self, domain: str, after: timedelta, lengths: float = DROPPED) -> None:
        """The last confirmation of the domain's drop is recorded then."""
        self.now = self.began + after - timedelta(minutes=12)
        self.run(lengths, domain=domain)
        self.confirm(lengths)
        due = next(job for job in self.jobs() if job["reason"] == "confirm")
        self.query("DELETE FROM procrastinate_jobs WHERE id = :id", id=due["id"])
        self.at(after, ProbeJob.from_dict(due["job"]), lengths)

    def heals(self, domain: str, after: timedelta) -> None:
        self.at(after, ProbeJob(f"well {domain}", "chat-prod", domain, "", Reason.SCHEDULED), WELL)

    def at(self, after: timedelta, job: ProbeJob, lengths: float) -> None:
        self.now = self.began + after
        run = make_run(lengths, domain=job.domain, started_at=self.now - timedelta(minutes=1), reason=job.reason)
        assert self.record(job, run) is not None

    def sent(self, after: timedelta) -> list[tuple[str, str, list[str]]]:
        """What a sender sends at that time: receiver, transition, the domains it tells of."""
        with self.database.transaction() as connection:
            found = outbox.claim_deliveries(connection, self.began + after, timedelta(seconds=30), 50)
            for delivery in found:
                outbox.mark_sent(connection, delivery.id, self.began + after)
        return [(one.receiver, one.transition, sorted(one.document["joined"])) for one in found]

    def states(self) -> list[tuple[str, str]]:
        """(domain, state) of the web hook's messages."""
        rows = self.query(
            "SELECT e.document ->> 'domain' AS domain, d.state FROM deliveries d "
            "JOIN incident_events e ON e.id = d.event_id WHERE d.receiver = 'hook' ORDER BY d.id"
        )
        return [(row["domain"], row["state"]) for row in rows]


@pytest.fixture
def several(database: Database) -> Several:
    """One of its domains has broken, and whoever is routed was told."""
    return told_of_coding(Several(database))


def told_of_coding(several: Several, lengths: float = DROPPED) -> Several:
    several.breaks("coding", 0 * SECOND, lengths)
    assert several.sent(0 * SECOND) == both("opened", "coding")
    return several


def both(transition: str, *domains: str) -> list[tuple[str, str, list[str]]]:
    return [("console", transition, [*domains]), ("hook", transition, [*domains])]


def test_the_opening_goes_out_at_once_and_what_joins_is_told_together_after_the_window(several: Several) -> None:
    for second, domain in enumerate(("qa", "writing", "math"), 10):
        several.breaks(domain, second * SECOND)
    assert several.sent(WINDOW - SECOND) == []
    assert several.sent(WINDOW) == both("updated", "math", "qa", "writing")
    assert several.sent(WINDOW + timedelta(days=1)) == []
    assert several.states() == [("coding", "sent"), ("qa", "gathered"), ("writing", "gathered"), ("math", "sent")]


def test_the_gathered_message_tells_the_cause_of_every_domain_that_it_tells_of(several: Several) -> None:
    for second, domain in enumerate(("qa", "writing", "math"), 10):
        several.breaks(domain, second * SECOND)
    told = several.get_incident(1)["events"][-1]
    assert sorted(told["joined_causes"]) == ["math", "qa", "writing"]
    assert (
        "\n  cause      drafter (moderate evidence, all 3 domains): in each, outputs unchanged (24/24):" in told["text"]
    )


def test_what_joins_long_after_the_last_message_is_told_at_once_and_what_follows_it_together(
    several: Several,
) -> None:
    several.breaks("qa", 2 * WINDOW)
    assert several.sent(2 * WINDOW) == both("updated", "qa")
    several.breaks("math", 2 * WINDOW + SECOND)
    assert several.sent(3 * WINDOW - SECOND) == []
    assert several.sent(3 * WINDOW) == both("updated", "math")


def test_a_message_that_somebody_began_to_send_is_not_taken_back(several: Several) -> None:
    several.breaks("qa", SECOND)
    retry_at = WINDOW + 9 * SECOND
    with several.database.transaction() as connection:
        console, hook = outbox.claim_deliveries(connection, several.began + WINDOW, timedelta(seconds=30), 50)
        outbox.mark_sent(connection, console.id, several.began + WINDOW)
        outbox.mark_retry(connection, hook, "HTTP 503", several.began + retry_at)
    several.breaks("math", WINDOW + SECOND)
    assert several.sent(retry_at) == [("hook", "updated", ["qa"])]
    assert several.sent(2 * WINDOW) == both("updated", "math")


def test_the_end_does_not_wait_and_what_joined_is_told_before_it(database: Database) -> None:
    several = told_of_coding(Several(database, make_alerting(resolve={"runs": 1})))
    several.breaks("qa", SECOND)
    several.breaks("math", 2 * SECOND)
    for domain in ("coding", "qa", "math"):
        several.heals(domain, 3 * SECOND)
    assert several.sent(3 * SECOND) == both("updated", "math", "qa")
    assert several.sent(3 * SECOND) == both("resolved")
    ended = several.get_incident(1)["events"][-1]
    assert ended["summary"].startswith("RESOLVED chat-prod · coding, math, qa: acceptance length of math, the last")


def test_a_higher_severity_is_told_at_once_with_what_waited(database: Database) -> None:
    several = told_of_coding(Several(database, make_alerting(rules=WARNS_AND_PAGES)), SLIPPED)
    several.breaks("qa", SECOND, SLIPPED)
    several.breaks("math", 2 * SECOND, DROPPED)
    assert several.sent(2 * SECOND) == both("updated", "math", "qa")
    several.breaks("writing", 3 * SECOND, DROPPED)
    assert several.sent(WINDOW + SECOND) == []
    assert several.sent(WINDOW + 2 * SECOND) == both("updated", "writing")


def test_who_is_added_after_a_severity_rose_is_told_of_the_alert_that_the_end_will_end(database: Database) -> None:
    several = told_of_coding(Several(database, make_alerting(rules=WARNS_AND_PAGES)), SLIPPED)
    several.breaks("math", SECOND, DROPPED)
    assert several.sent(SECOND) == both("updated", "math")
    names = ("console", "hook", "added", "pager")
    alerting = make_alerting(
        rules=WARNS_AND_PAGES,
        receivers=[{"name": name, "log": {}} for name in names],
        routing=[*({"receiver": name} for name in names[:3]), {"receiver": "pager", "severity": ["page"]}],
    )
    config = make_config(*several.config.routes, alerting=alerting)
    for _ in range(2):
        reconcile(database, config, DeadLetters(alerting, config.routes), several.began + 2 * SECOND)
    assert several.sent(2 * SECOND) == [("added", "updated", ["math"]), ("pager", "updated", ["math"])]
    incident = several.get_incident(1)
    [told] = [event for event in incident["events"] if "pager" in {one["receiver"] for one in event["deliveries"]}]
    assert (told["severity"], told["raised_from"], incident["severity"]) == ("page", "warning", "page")


def test_a_crash_while_a_domain_joins_leaves_what_waited_as_it_was(several: Several) -> None:
    several.breaks("qa", SECOND)
    several.query(
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'crashed'; END $$; "
        "CREATE TRIGGER fails BEFORE UPDATE OF state ON deliveries FOR EACH ROW EXECUTE FUNCTION fails()"
    )
    with pytest.raises(Exception, match="crashed"):
        several.breaks("math", 2 * SECOND)
    several.query("DROP TRIGGER fails ON deliveries")
    assert several.states() == [("coding", "sent"), ("qa", "pending")]
    assert several.query("SELECT id FROM runs WHERE domain = 'math' AND reason = 'confirm'")[1:] == []
    assert several.sent(WINDOW) == both("updated", "qa")


def test_what_waits_for_others_is_not_counted_as_stuck(several: Several) -> None:
    several.breaks("qa", SECOND)
    several.query("UPDATE deliveries SET due_at = now() + interval '1 minute' WHERE state = 'pending'")
    with several.database.transaction() as connection:
        counts = outbox.outbox_counts(connection)
    assert counts["hook", "gathering"] == 1
    assert ("hook", "pending") not in counts


def test_the_timeline_shows_what_was_sent_and_says_of_the_rest_that_it_was_told_with_it(several: Several) -> None:
    several.breaks("qa", SECOND)
    several.breaks("math", 2 * SECOND)
    several.sent(WINDOW)
    shown = timeline(several.get_incident(1), lambda at: at[11:19])
    assert "updated  qa: told in the next message, together with others" in shown
    assert shown.count("NOW ALSO") == 1
    assert "PAGE, NOW ALSO chat-prod · math, qa: acceptance length of math, the worst, 1.92" in shown


def test_a_message_of_several_rules_names_the_runbook_of_each(database: Database) -> None:
    rules = [{**rule, "runbook_url": f"https://wiki.example.com/{rule['name']}"} for rule in WARNS_AND_PAGES]
    several = told_of_coding(Several(database, make_alerting(rules=rules)), SLIPPED)
    several.breaks("qa", SECOND, SLIPPED)
    several.breaks("math", 2 * SECOND, DROPPED)
    told = several.get_incident(1)["events"][-1]
    assert told["runbook_url"] == "https://wiki.example.com/drop"
    assert told["text"].endswith(
        "\n  runbook    https://wiki.example.com/drop\n             https://wiki.example.com/slip"
    )
