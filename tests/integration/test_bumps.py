"""Bumps announced and noticed, to their one verdict and its messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.bumps import WINDOW, Announced
from monitor.core.records import Reason
from monitor.service.bumps import announce
from monitor.service.jobs import ProbeJob
from monitor.store import incidents, outbox, silences
from monitor.store.bumps import list_bumps
from tests.factories import DOMAIN, IDENTITY, REPLICA, ROUTE, make_alerting, make_config, make_route, make_run
from tests.integration.story import BOTH, DROPPED, EVERY, WELL, Story
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from monitor.service.case import Recorded
    from monitor.store.database import Database

NEXT = f"; next: specwatch bumps --route {ROUTE}"
AGAINST = "of 2026-03-02 (vllm 0.29.1, org/drafter, K 3)"
WITHIN = "unchanged (95 % interval -2.3% to +2.4% at the widest, of"
LEVEL = f"all domains {WITHIN} coding); against baselines 1, 2 {AGAINST}"
NEW = replace(IDENTITY, version="0.33.0")
SECOND = "http://vllm-1:8000"


class Bumped(Story):
    """Runs, announcements, and the bump probes that they queue."""

    def announce(self, *, by: str = "ci", replicas: tuple[str, ...] = (REPLICA,), **said: Any) -> list[ProbeJob] | None:
        what = Announced(
            **{name: said.pop(name) for name in ("drafter", "engine_version", "candidate") if name in said}
        )
        route = self.recorder.routes[ROUTE]
        said = {"note": None, "link": None, "key": None, **said}
        with self.database.transaction() as connection:
            return announce(connection, route, replicas, what, by, self.now, **said)[1]

    def probe(self, lengths: Any = WELL, **changes: Any) -> Recorded:
        """The next queued bump probe is taken from the queue and made."""
        due = next(job for job in self.jobs() if job["reason"] == "bump")
        self.query("DELETE FROM procrastinate_jobs WHERE id = :id", id=due["id"])
        job = ProbeJob.from_dict(due["job"])
        changes = {"route": job.route, "domain": job.domain, "replica": job.replica, **changes}
        return self.run(lengths, job=job, reason=Reason.BUMP, **changes)

    def bumps(self) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            return list_bumps(connection, ROUTE)

    def tell_overdue(self) -> None:
        with self.database.transaction() as connection:
            self.recorder.tell_overdue(connection, self.now)

    def waiting(self) -> list[tuple[str, str]]:
        return sorted((job["domain"], job["replica"]) for job in self.jobs() if job["reason"] == "bump")


@pytest.fixture
def story(database: Database) -> Bumped:
    story = Bumped(database)
    story.baseline()
    story.baseline(domain="math")
    return story


def test_a_noticed_bump_ends_in_one_verdict_when_every_domain_was_probed(story: Bumped) -> None:
    first = story.run(DROPPED, identity=NEW)
    assert story.waiting() == [("math", REPLICA)]
    [bump] = story.bumps()
    assert (bump["state"], bump["announcement"], bump["verdict"]) == ("probing", None, None)
    second = story.probe(identity=NEW)
    [bump] = story.bumps()
    assert bump["state"] == "told"
    assert (bump["verdict"]["incident"], bump["verdict"]["confirming"]) == (None, [DOMAIN])
    coding, math = bump["verdict"]["domains"]
    assert (coding["domain"], coding["run_ids"], coding["changed"]) == (DOMAIN, [first.run_id], True)
    assert coding["change"] == pytest.approx(-0.2)
    assert (math["domain"], math["run_ids"], math["changed"]) == ("math", [second.run_id], False)
    assert bump["verdict"]["summary"].startswith(f"BUMP {ROUTE} · after bump to version 0.33.0, first seen 2026-03-02 ")
    assert " UTC: acceptance length of coding -20.0% (95 %" in bump["verdict"]["summary"]
    assert bump["verdict"]["summary"].endswith(
        f", others {WITHIN} math); against baselines 1, 2 {AGAINST}; nobody announced it; an alert follows if "
        f"confirmation runs agree{NEXT}"
    )
    assert {(d["receiver"], d["state"]) for d in bump["deliveries"]} == {(name, "pending") for name in BOTH}
    story.run(identity=NEW)
    assert story.count("incident_events") == 1, "it is told once"


def test_an_announcement_probes_every_domain_on_every_replica_once(story: Bumped) -> None:
    jobs = story.announce(drafter="d-2", link="https://ci/42", replicas=(REPLICA, SECOND))
    assert jobs is not None
    everywhere = sorted((domain, replica) for domain in (DOMAIN, "math") for replica in (REPLICA, SECOND))
    assert story.waiting() == everywhere
    assert {job["priority"] for job in story.jobs()} == {10}
    assert story.announce(drafter="d-2", link="https://ci/42", replicas=(REPLICA, SECOND)) is None
    assert story.announce(drafter="d-2", link="https://ci/43", replicas=()) is not None
    assert story.waiting() == everywhere
    assert len(story.bumps()) == 2


def test_a_change_that_fits_is_announced_and_told_with_who_announced_it(story: Bumped) -> None:
    story.announce(engine_version="0.33.0", note="CUDA 13", link="https://ci/42")
    story.now += timedelta(minutes=5)
    story.probe(identity=NEW)
    story.probe(identity=NEW)
    assert story.waiting() == [], "the probes that wait already are those of the bump"
    [bump] = story.bumps()
    assert (bump["state"], bump["announcement"]["by"], len(bump["noticed"])) == ("told", "ci", 1)
    assert bump["verdict"]["summary"].startswith(
        f"BUMP {ROUTE} · after bump to engine version 0.33.0, since 2026-03-02 "
    )
    assert bump["verdict"]["summary"].endswith(f" UTC: {LEVEL}{NEXT}")
    assert "announced  by ci at" in bump["verdict"]["text"]
    assert bump["verdict"]["change_link"] == "https://ci/42"


def test_the_list_fits_100_columns_with_what_changed_and_the_link_under_its_bump(story: Bumped) -> None:
    link = "https://ci.example.com/chat-prod/builds/42"
    story.announce(engine_version="0.33.0", note="CUDA 13", link=link)
    story.now += timedelta(minutes=5)
    story.probe(DROPPED, identity=NEW)
    story.probe(identity=NEW)
    table = [line.rstrip() for line in specwatch(story.database, "bumps").stdout.splitlines()]
    assert table[0] == "source request"
    assert table[2].split() == ["id", "route", "at", "(UTC)", "state"]
    assert table[4].split()[:2] == ["1", ROUTE]
    assert table[5:] == [
        f"    announced         engine version 0.33.0, by ci, {link}",
        "    changed           version 0.29.1 → 0.33.0",
        "    AL from baseline  coding -20.0%, math 0.0% (unchanged)",
        "    unchanged within  -2.3% to +2.4%: the widest 95 % interval, of math",
        f"    against           baselines 1, 2 {AGAINST}",
    ]


def test_before_the_announced_change_is_to_be_seen_nothing_is_told(story: Bumped) -> None:
    story.announce(engine_version="0.33.0")
    story.probe()
    story.probe()
    assert [bump["state"] for bump in story.bumps()] == ["probing"]
    story.run(identity=NEW)
    assert story.waiting() == [("math", REPLICA)]
    story.probe(identity=NEW)
    [bump] = story.bumps()
    assert (bump["state"], bump["verdict"]["not_shown"]) == ("told", [])


def test_an_announced_change_that_never_comes_is_told_as_that(story: Bumped) -> None:
    story.announce(engine_version="0.33.0")
    announced_at = story.now
    story.probe()
    story.probe()
    story.now = announced_at + WINDOW - timedelta(seconds=1)
    story.tell_overdue()
    assert [bump["state"] for bump in story.bumps()] == ["probing"]
    story.now = announced_at + WINDOW
    story.tell_overdue()
    [bump] = story.bumps()
    [unlike] = bump["verdict"]["not_shown"]
    assert unlike.startswith("engine version 0.33.0 was announced, the server says ")
    assert bump["verdict"]["summary"].endswith(f"{LEVEL}; the servers do not show it{NEXT}")


def test_domains_that_nobody_could_probe_in_time_are_named(story: Bumped) -> None:
    story.run(identity=NEW)
    story.now += WINDOW
    story.tell_overdue()
    [bump] = story.bumps()
    assert bump["verdict"]["unprobed"] == [f"math on {REPLICA}"]
    assert bump["verdict"]["summary"].endswith(
        f": coding {WITHIN} coding), not comparable: math; against baseline 1 {AGAINST}; nobody announced it; "
        f"not all probed within 2h{NEXT}"
    )


def test_a_change_that_does_not_fit_the_announcement_is_nobody_s(story: Bumped) -> None:
    story.announce(drafter="d-2")
    story.run(identity=NEW)
    noticed, announced = story.bumps()
    assert (noticed["announcement"], len(noticed["noticed"])) == (None, 1)
    assert (announced["announcement"]["drafter"], announced["noticed"]) == ("d-2", [])


def test_the_pass_of_a_gate_is_not_credited_to_what_the_gate_never_saw(story: Bumped) -> None:
    passed, failed = (replace(IDENTITY, fingerprint=f"vllm-0.33.0-{end}") for end in ("63096f17", "73eaa61e"))
    story.run(identity=passed)
    story.announce(candidate=passed, note="gate 1 passed")
    story.probe(identity=passed)
    story.probe(identity=passed)
    story.run(DROPPED, identity=failed)
    story.probe(identity=failed)
    bad, good = story.bumps()
    assert good["announcement"]["candidate"] == passed.as_dict()
    assert good["verdict"]["text"].count("gate 1 passed, of fingerprint vllm-0.33.0-63096f17") == 1
    assert good["verdict"]["summary"].endswith(f"{LEVEL}{NEXT}")
    assert bad["announcement"] is None
    assert bad["verdict"]["summary"].endswith(
        f"; nobody announced it; an alert follows if confirmation runs agree{NEXT}"
    )
    assert "gate 1" not in bad["verdict"]["text"]


def test_an_announcement_of_anything_is_used_up_by_the_first_change_on_every_replica(database: Database) -> None:
    story = Bumped(database, make_config(make_route(replicas=[REPLICA, SECOND], domains=[DOMAIN])))
    story.run()
    story.run(replica=SECOND)
    story.announce(note="rollout", replicas=(REPLICA, SECOND))
    first, later = (replace(NEW, fingerprint=f"vllm-0.33.0-{end}") for end in ("63096f17", "73eaa61e"))
    story.run(identity=first)
    story.run(DROPPED, identity=later)
    story.run(replica=SECOND, identity=first)
    unannounced, rollout = story.bumps()
    assert [bump["replica"] for bump in rollout["noticed"]] == [REPLICA, SECOND]
    assert (rollout["announcement"]["note"], unannounced["announcement"]) == ("rollout", None)
    assert rollout["verdict"]["domains"][0]["run_ids"] == [3, 5], "run 4 is of the change that nobody announced"
    assert list(unannounced["noticed"][0]["changes"]) == ["fingerprint"]


def test_a_change_long_after_the_announcement_is_nobody_s(story: Bumped) -> None:
    story.announce(engine_version="0.33.0")
    story.now += WINDOW + timedelta(seconds=1)
    story.tell_overdue()
    story.run(identity=NEW)
    assert [bump["announcement"] is None for bump in story.bumps()] == [True, False]


def test_an_announcement_after_the_change_was_noticed_announces_it(story: Bumped) -> None:
    story.run(identity=NEW)
    assert story.announce(engine_version="0.33.0") == []
    story.probe(identity=NEW)
    [bump] = story.bumps()
    assert (bump["announcement"]["by"], bump["state"]) == ("ci", "told")
    assert "nobody" not in bump["verdict"]["summary"]


def test_an_invalid_run_and_another_k_are_named_with_their_reasons(story: Bumped) -> None:
    other_k = replace(IDENTITY, k=5)
    story.run(identity=other_k, k=5)
    story.probe(identity=other_k, invalid_reason="busy")
    [bump] = story.bumps()
    coding, math = bump["verdict"]["domains"]
    assert coding["reason"] == "not comparable: K 5 is not the baseline's 3"
    assert math["reason"].endswith("is invalid: busy")


def test_the_same_rollout_on_another_replica_is_not_told_again(database: Database) -> None:
    story = Bumped(database, make_config(make_route(replicas=[REPLICA, SECOND], domains=[DOMAIN])))
    story.run()
    story.run(replica=SECOND)
    story.run(identity=NEW)
    assert [bump["state"] for bump in story.bumps()] == ["told"]
    story.run(replica=SECOND, identity=NEW)
    [bump] = story.bumps()
    assert len(bump["noticed"]) == 2
    assert story.count("incident_events") == 1
    story.run(identity=IDENTITY)
    story.run(identity=NEW)
    assert len(story.bumps()) == 3, "back, and there again on the same replica: each is told"


def test_a_roll_back_is_told_as_what_the_baselines_were_measured_with(story: Bumped) -> None:
    for identity in (NEW, IDENTITY):
        story.run(identity=identity)
        story.probe(identity=identity)
    back, there = story.bumps()
    assert (there["verdict"]["at_baseline"], back["verdict"]["at_baseline"]) == (False, True)
    assert "Is it a change you know of?" in " ".join(there["verdict"]["text"].split())
    assert "Is it a change you know of?" not in " ".join(back["verdict"]["text"].split())


def test_a_bump_s_message_goes_through_the_outbox_beside_those_of_incidents(story: Bumped) -> None:
    story.run(identity=NEW)
    story.probe(identity=NEW)
    with story.database.transaction() as connection:
        claimed = outbox.claim_deliveries(connection, story.now, timedelta(seconds=30), 10)
        assert incidents.list_incidents(connection) == []
    assert {(d.receiver, d.transition, d.is_note, d.incident_id) for d in claimed} == {
        (name, "note", True, 0) for name in BOTH
    }
    assert claimed[0].document["summary"].startswith("BUMP ")


def test_routing_says_who_hears_of_bumps_and_an_alertmanager_never_does(database: Database) -> None:
    alerting = make_alerting(
        receivers=[{"name": name, "log": {}} for name in ("pages", "asked", "warned", "not-asked")]
        + [{"name": "am", "alertmanager": {"urls": ["http://am:9093"]}}],
        routing=[
            {"receiver": "pages", "severity": ["page"]},
            {"receiver": "asked", "severity": ["page"], "bumps": True},
            {"receiver": "warned"},
            {"receiver": "not-asked", "bumps": False},
            {"receiver": "am"},
        ],
    )
    story = Bumped(database, make_config(make_route(domains=[DOMAIN]), alerting=alerting))
    story.run()
    story.run(identity=NEW)
    [bump] = story.bumps()
    assert [delivery["receiver"] for delivery in bump["deliveries"]] == ["asked", "warned"]


def test_a_silence_of_the_route_holds_the_message_until_it_ends(story: Bumped) -> None:
    with story.database.transaction() as connection:
        silences.add_silence(connection, "ann", "rollout", story.now + 4 * EVERY, story.now, route=ROUTE)
    story.run(identity=NEW)
    story.probe(identity=NEW)

    def claim() -> list[outbox.Delivery]:
        with story.database.transaction() as connection:
            return outbox.claim_deliveries(connection, story.now, timedelta(seconds=30), 10)

    assert claim() == []
    assert {delivery["state"] for delivery in story.bumps()[0]["deliveries"]} == {"silenced"}
    story.now += 4 * EVERY
    assert {delivery.receiver for delivery in claim()} == BOTH


def test_the_verdict_on_a_bump_names_the_incident_that_is_open_by_then(story: Bumped) -> None:
    incident_id = story.incident()
    story.run(DROPPED, identity=NEW)
    story.probe(identity=NEW)
    [bump] = story.bumps()
    assert bump["verdict"]["incident"] == {"id": incident_id, "severity": "page"}
    assert bump["verdict"]["summary"].endswith(
        f"; incident {incident_id} (page) is open; next: specwatch incidents {incident_id}"
    )
    assert bump["verdict"]["link"] == f"https://specwatch.example.com/incidents/{incident_id}"


def test_a_domain_that_was_being_measured_at_the_change_is_measured_anew_before_the_verdict(story: Bumped) -> None:
    samples = make_run(DROPPED).samples
    story.run(samples=samples, identity=NEW, invalid_reason="identity_changed_during_run")
    assert story.waiting() == [(DOMAIN, REPLICA), ("math", REPLICA)], "that run is of neither"
    for _ in range(2):
        assert [bump["state"] for bump in story.bumps()] == ["probing"]
        story.probe(DROPPED, identity=NEW)
    [bump] = story.bumps()
    assert bump["state"] == "told"
    assert [(one["domain"], one["changed"]) for one in bump["verdict"]["domains"]] == [(DOMAIN, True), ("math", True)]
