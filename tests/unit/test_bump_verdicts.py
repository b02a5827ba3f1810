"""Which change an announcement fits, what a route is like after a bump, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monitor.alerting.bump_message import bump_event
from monitor.core.bumps import Announced, DomainAfter, domain_after
from monitor.core.records import Identity
from tests.factories import ROUTE, START, make_candidate, make_reference

FELL = DomainAfter("coding", None, -0.22, (-0.25, -0.19), 1.87, 2.4, 7, 24, "request", (31,))
LEVEL = DomainAfter("math", None, -0.01, (-0.03, 0.01), 2.38, 2.4, 8, 24, "request", (32,))
ROSE = DomainAfter("writing", None, 0.08, (0.05, 0.11), 2.6, 2.4, 9, 24, "request", (33,))
OTHER_K = DomainAfter("math", "not comparable: K 5 is not the baseline's 3", baseline_id=8, run_ids=(32,))
ANNOUNCEMENT: dict[str, Any] = {
    "id": 3,
    "route": ROUTE,
    "model": None,
    "drafter": "org/drafter-v2",
    "engine_version": None,
    "candidate": None,
    "note": "retrained on March's traffic",
    "link": "https://ci.example.com/42",
    "key": "https://ci.example.com/42",
    "by": "ci",
    "announced_at": START.isoformat(),
}
NOTICED: dict[str, Any] = {
    "id": 1,
    "route": ROUTE,
    "replica": "http://vllm-0:8000",
    "noticed_at": START.isoformat(),
    "changes": {"version": ["0.29.0", "0.30.0"]},
}


V29, V30 = ({**Identity(fingerprint=f"vllm-{name}", drafter="d", k=3).as_dict()} for name in ("0.29", "0.30"))
BASELINES: list[dict[str, Any]] = [
    {"id": 7, "domain": "coding", "finished_at": "2026-03-01T08:00:00+00:00", "identity": V29},
    {"id": 8, "domain": "math", "finished_at": "2026-03-01T08:10:00+00:00", "identity": V29},
    {"id": 9, "domain": "writing", "finished_at": "2026-03-01T08:20:00+00:00", "identity": V29},
]
MATH_WITHIN = " (95 % interval -3.0% to +1.0% at the widest, of math)"


def against(which: str) -> str:
    return f"; against {which} of 2026-03-01 (vllm-0.29, d, K 3)"


NEXT = f"; next: specwatch bumps --route {ROUTE}"
SINCE = "2026-03-02 10:00:00 UTC"


def event(*domains: DomainAfter, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "bump_id": 5,
        "route": ROUTE,
        "labels": {"team": "chat"},
        "announcement": ANNOUNCEMENT,
        "announced": {"drafter": "org/drafter-v2"},
        "noticed": [],
        "not_shown": [],
        "domains": domains,
        "baselines": [one for one in BASELINES if one["id"] in {domain.baseline_id for domain in domains}],
        "left_out": [],
        "unprobed": [],
        "at_baseline": False,
        "replicas": ["http://vllm-0:8000"],
        "incident": None,
        "confirming": [],
        "opened_at": START,
        "now": START + timedelta(minutes=6),
        "external_url": "https://specwatch.example.com",
        "runbook_url": "https://wiki.example.com/bumps",
    }
    return bump_event(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"drafter": ("a/old", "a/new")}, True),
        ({"drafter": ("old", "new")}, True),
        ({"drafter": ("a/old", "a/other")}, False),
        ({"k": (3, 5), "fingerprint": ("f1", "f2")}, True),
        ({"drafter": ("a/old", "a/new"), "version": ("0.29", "0.30")}, False),
        ({"model": ("chat", "chat-2")}, False),
    ],
)
def test_a_change_fits_when_all_of_it_was_announced(changes: dict[str, Any], fits: bool) -> None:
    assert Announced(drafter="a/new").fits(changes) is fits


def test_an_announcement_that_names_nothing_fits_any_change() -> None:
    assert Announced().fits({"version": ("0.29", "0.30"), "k": (3, 5)})


CANDIDATE = Announced(candidate=Identity(model="next", version="0.30", fingerprint="f2", k=5, declared=("version",)))


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"fingerprint": ("f1", "f2"), "k": (3, 5)}, True),
        ({"fingerprint": ("f1", "f3")}, False),
        ({"fingerprint": ("f1", "f2"), "k": (3, 4)}, False),
        ({"k": (3, 5)}, True),
        ({"model": ("chat", "chat-2"), "version": ("0.30", "0.31"), "method": ("eagle", "eagle3")}, True),
    ],
    ids=["all of it", "another fingerprint", "another K", "K alone", "what the candidate did not show"],
)
def test_a_candidate_that_passed_fits_only_a_change_to_what_it_showed(changes: dict[str, Any], fits: bool) -> None:
    assert CANDIDATE.fits(changes) is fits


def test_a_server_that_shows_something_else_than_the_candidate_is_said() -> None:
    assert CANDIDATE.unlike(Identity(model="chat", version="0.31", fingerprint="f2", k=5)) == []
    assert CANDIDATE.unlike(Identity(fingerprint="f3")) == ["fingerprint f2 was announced, the server says f3"]


@pytest.mark.parametrize(
    ("said", "fits"),
    [(Announced(), False), (Announced(drafter="d2"), False), (Announced(drafter="d3"), True)],
    ids=["nothing", "what is reached already", "what is not reached yet"],
)
def test_an_announcement_used_up_fits_no_other_change_but_one_to_what_it_names(said: Announced, fits: bool) -> None:
    earlier = [{"fingerprint": ("f1", "f2")}]
    changes = {"fingerprint": ("f2", "f3"), **({"drafter": ("d1", "d3")} if said.drafter == "d3" else {})}
    assert said.fits(changes)
    assert said.fits(changes, earlier) is fits
    assert said.fits({"fingerprint": ("f0", "f2")}, earlier), "as on the next replica"


def test_what_a_server_does_not_show_is_not_held_against_the_announcement() -> None:
    said = Announced(drafter="new", engine_version="0.30.0")
    assert said.unlike(Identity(version="0.30.0")) == []
    assert said.unlike(Identity(version="0.29.0")) == [
        "engine version 0.30.0 was announced, the server says 0.29.0",
    ]


def test_a_model_may_be_shown_as_name_or_as_where_its_weights_are() -> None:
    assert Announced(model="org/chat-2").unlike(Identity(model="chat", root="/weights/org/chat-2")) == []


def test_a_domain_after_a_bump_has_its_paired_change_with_the_interval() -> None:
    found = domain_after("coding", [make_candidate(1.92)], make_reference(2.4))
    assert found.change == pytest.approx(-0.2)
    assert found.change_interval is not None
    assert found.change_interval[0] < -0.2 < found.change_interval[1] < 0
    assert (found.changed, found.baseline_id, found.prompts, found.run_ids) == (True, 7, 24, (1,))


def test_a_domain_that_cannot_be_compared_says_why() -> None:
    assert domain_after("coding", [make_candidate()], None).reason == "no approved baseline"
    few = domain_after("coding", [make_candidate(prompts=5)], make_reference())
    assert few.reason == "only 5 prompts of acceptance_length shared with the baseline, 12 are needed"
    assert few.as_dict()["changed"] is None


def test_the_first_line_tells_what_runs_now_and_which_domains_moved_how_much() -> None:
    assert event(FELL, LEVEL, ROSE)["summary"] == (
        f"BUMP {ROUTE} · after bump to drafter org/drafter-v2, since {SINCE}: "
        "acceptance length of coding -22.0% (95 % interval -25.0% to -19.0%), "
        f"writing +8.0% (95 % interval +5.0% to +11.0%), others unchanged{MATH_WITHIN}"
        f"{against('baselines 7-9')}{NEXT}"
    )


def test_a_bump_that_moved_nothing_says_so_and_within_what_and_against_which_baselines() -> None:
    wider = replace(LEVEL, domain="qa", baseline_id=9, change_interval=(-0.02, 0.045))
    document = event(LEVEL, wider)
    assert document["summary"] == (
        f"BUMP {ROUTE} · after bump to drafter org/drafter-v2, since {SINCE}: all domains unchanged "
        f"(95 % interval -2.0% to +4.5% at the widest, of qa){against('baselines 8, 9')}{NEXT}"
    )
    assert document["unchanged_within"] == {"domain": "qa", "change_interval": [-0.02, 0.045]}
    assert document["baselines"] == BASELINES[1:]
    assert event(FELL)["unchanged_within"] is None


def test_baselines_of_several_identities_and_days_are_told_apart() -> None:
    newer = {**BASELINES[0], "finished_at": "2026-03-02T07:00:00+00:00", "identity": V30}
    document = event(LEVEL, FELL, baselines=[newer, BASELINES[1]])
    assert "; against baselines 7, 8 of 2026-03-01 to 2026-03-02 (2 identities); next" in document["summary"]
    assert (
        "  baseline   baseline 7, measured until 2026-03-02 07:00:00 UTC on vllm-0.30, d, K 3\n"
        "             baseline 8, measured until 2026-03-01 08:10:00 UTC on vllm-0.29, d, K 3\n"
    ) in document["text"]


def test_where_nothing_moved_there_is_no_new_level_to_accept() -> None:
    text = event(LEVEL, announcement=None, announced={}, noticed=[NOTICED], at_baseline=True)["text"]
    assert "baseline create" not in text
    assert "announced  by nobody; it runs again what its baselines were measured with" in text
    assert "Is it a change you know of?" not in _joined(text)
    assert "baseline create" in event(LEVEL, FELL)["text"]


def test_an_interval_too_wide_to_tell_is_never_called_unchanged() -> None:
    noisy = DomainAfter("math", None, -0.26, (-0.54, 0.19), 1.89, 2.55, 2, 36, "request", (8,))
    assert (noisy.changed, noisy.as_dict()["reason"]) == (None, "the interval is too wide to tell")
    document = event(FELL, noisy, LEVEL)
    assert document["summary"].endswith(
        f"-19.0%), others unchanged{MATH_WITHIN}, too noisy to tell: math{against('baselines 7, 8')}{NEXT}"
    )
    assert "math: the interval is too wide to tell: -26.0% (95 % interval -54.0% to +19.0%), AL" in _joined(
        document["text"]
    )


def _joined(text: str) -> str:
    return " ".join(text.split())


def test_a_bump_that_nobody_announced_is_named_as_one() -> None:
    document = event(FELL, announcement=None, announced={}, noticed=[NOTICED])
    assert document["what"] == "version 0.30.0"
    assert document["summary"].endswith(
        f"coding -22.0% (95 % interval -25.0% to -19.0%){against('baseline 7')}; nobody announced it{NEXT}"
    )
    assert "announced  by nobody: within 2h before it was noticed" in document["text"]
    assert (
        "changed    version 0.29.0 → 0.30.0, noticed 2026-03-02 10:00:00 UTC on http://vllm-0:8000" in document["text"]
    )


def test_domains_that_cannot_be_compared_are_named_with_their_reason() -> None:
    document = event(FELL, OTHER_K)
    assert document["summary"].endswith(
        f"(95 % interval -25.0% to -19.0%), not comparable: math{against('baselines 7, 8')}{NEXT}"
    )
    assert "math: not comparable: K 5 is not the baseline's 3" in document["text"]


def test_a_route_without_a_baseline_is_told_that_nothing_can_be_compared() -> None:
    document = event(DomainAfter("coding", "no approved baseline"), DomainAfter("math", "no approved baseline"))
    assert document["summary"].endswith(
        f"drafter-v2, since {SINCE}: no domain can be compared: no approved baseline{NEXT}"
    )
    assert "baseline   none is approved yet, so nothing is judged" in document["text"]


def test_what_could_not_be_probed_in_time_is_said() -> None:
    document = event(FELL, unprobed=["math on http://vllm-1:8000"])
    assert document["summary"].endswith(f"; not all probed within 2h{NEXT}")
    assert "probed     not all within 2h; missing: math on http://vllm-1:8000" in document["text"]


def test_what_was_announced_and_is_not_to_be_seen_is_said() -> None:
    document = event(LEVEL, not_shown=["engine version 0.30.0 was announced, the server says 0.29.0"])
    assert document["summary"].endswith(
        f"all domains unchanged{MATH_WITHIN}{against('baseline 8')}; the servers do not show it{NEXT}"
    )
    assert "not shown  engine version 0.30.0 was announced, the server says 0.29.0" in document["text"]


def test_the_message_has_evidence_who_announced_it_and_the_command_that_accepts_the_new_level() -> None:
    assert event(FELL, LEVEL)["text"].splitlines()[1:] == [
        "  domains    coding: -22.0% (95 % interval -25.0% to -19.0%), AL 1.87 of 2.40 by request, 24",
        "             prompts, run 31, baseline 7",
        "             math: unchanged: -1.0% (95 % interval -3.0% to +1.0%), AL 2.38 of 2.40 by request, 24",
        "             prompts, run 32, baseline 8",
        "  alert      none is open, and no rule has found a loss to confirm",
        "  changed    no change of model, drafter, engine or K was seen on this route since it was announced",
        "  announced  by ci at 2026-03-02 10:00:00 UTC: retrained on March's traffic",
        "  probed     2 domains on http://vllm-0:8000",
        "  baseline   baselines 7, 8, measured until 2026-03-01 08:10:00 UTC on vllm-0.29, d, K 3",
        "             what is old stands, and judges what runs now, until another is approved",
        f"  next       specwatch bumps --route {ROUTE}",
        f"             specwatch history {ROUTE} --since 24h",
        "             to accept the new level, once ten runs of it are there:",
        f"             specwatch baseline create {ROUTE} --last 10 --approve --by NAME --why REASON",
        "  link       https://ci.example.com/42",
    ]


def test_a_loss_that_is_alerted_leads_to_its_incident_and_to_the_way_back() -> None:
    document = event(
        FELL,
        announcement=None,
        announced={},
        noticed=[NOTICED, {**NOTICED, "changes": {"drafter": ["a", "b"], "version": ["0.30.0", "0.31.0"]}}],
        incident={"id": 3, "severity": "page", "route": ROUTE},
        confirming=["math"],
    )
    assert document["summary"].endswith(
        "; nobody announced it; incident 3 (page) is open; an alert follows if confirmation runs agree; "
        "next: specwatch incidents 3"
    )
    assert (document["incident"], document["confirming"]) == ({"id": 3, "severity": "page"}, ["math"])
    assert document["text"].splitlines()[-7:] == [
        "  next       specwatch incidents 3",
        f"             specwatch history {ROUTE} --since 24h",
        "             if it is not wanted, roll back to version 0.29.0, drafter a",
        "             to accept the new level, once ten runs of it are there:",
        f"             specwatch baseline create {ROUTE} --last 10 --approve --by NAME --why REASON",
        "  link       https://specwatch.example.com/incidents/3",
        "  runbook    https://wiki.example.com/bumps",
    ]


def test_many_domains_that_moved_are_told_by_how_many_and_how_far() -> None:
    moved = [replace(FELL, domain=f"d{number}", change=-0.22 + number / 100) for number in range(6)]
    assert (
        ": acceptance length of all 6 domains changed, from d0 -22.0% (95 % interval -25.0% to -19.0%) to d5 -17.0%;"
        in (event(*moved)["summary"])
    )
    alike = [replace(FELL, domain=f"d{number}") for number in range(5)]
    assert (
        ": acceptance length of 5 of 6 domains changed, each -22.0% (d0: 95 % interval -25.0% to -19.0%), others un"
        in (event(*alike, LEVEL)["summary"])
    )
    assert "             and 3 more, -19.0% to -17.0%: d3, d4, d5\n" in event(*moved)["text"]
