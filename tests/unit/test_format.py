"""How a figure is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.format import NOTHING, change, count, figure, identity_text, numbered, survival_text, timeline
from monitor.core.records import Identity


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("acceptance_length", 2.4049, "2.40"),
        ("acceptance_length_prompt_mean", 3.0, "3.00"),
        ("tokens_per_step", 1.999, "2.00"),
        ("acceptance_rate", 0.4567, "45.7%"),
        ("coverage", 1.0, "100.0%"),
        ("ttft_seconds_p50", 0.0523, "52 ms"),
        ("ttft_seconds_p95", 9.9, "9900 ms"),
        ("ttft_seconds_p95", 12.34, "12.3 s"),
        ("tokens_per_second_p50", 187.6, "188"),
        ("acceptance_length", None, NOTHING),
        ("ttft_seconds_p50", None, NOTHING),
    ],
)
def test_a_figure_is_written_with_its_unit(metric: str, value: float | None, text: str) -> None:
    assert figure(metric, value) == text


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ((0.62, 0.36, 0.214), ".62 .36 .21"),
        ((1.0, 0.5, 0.0), "1.0 .50 .00"),
        ((0.999, 0.994), "1.0 .99"),
        ((), NOTHING),
        (None, NOTHING),
    ],
)
def test_survival_is_written_as_fractions_by_position(shares: tuple[float, ...] | None, text: str) -> None:
    assert survival_text(shares) == text


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_every_position_takes_the_same_width(shares: list[float]) -> None:
    assert {len(part) for part in survival_text(shares).split(" ")} == {3}


def test_a_timeline_shows_every_message_as_it_was_sent_what_became_of_it_and_what_people_did() -> None:
    told = {"receiver": "hook", "state": "sent", "attempts": 2, "sent_at": "10:12", "last_error": None}
    failing = {
        "receiver": "console",
        "state": "pending",
        "attempts": 1,
        "sent_at": None,
        "last_error": "alerts:9000: HTTP 500",
        "next_attempt_at": "10:13",
    }
    held = {"receiver": "mail", "state": "silenced", "silence_id": 3}
    freed = {**told, "receiver": "pager", "silence_id": 3, "sent_at": "14:00", "attempts": 1}
    waits = {"state": "pending", "attempts": 0, "sent_at": None, "last_error": None, "next_attempt_at": "10:20"}
    gathers = [
        {**waits, "receiver": "console", "gathers_until": "10:20", "next_silence_id": None},
        {**waits, "receiver": "hook", "gathers_until": "10:20", "next_silence_id": 3},
        {**waits, "receiver": "mail", "gathers_until": None, "next_silence_id": 3},
    ]
    worst = {"metric": "acceptance_length", "change": -0.2, "value": 1.92, "baseline_value": 2.4, "run_ids": [31, 33]}
    broken = {"rule": "drop", "severity": "page", "joined_at": "10:11", "left_at": "12:16", "worst": worst}
    once = {**worst, "run_ids": [40], "source": "request"}
    again = {"rule": "slip", "severity": "warning", "joined_at": "10:15", "rejoined_at": "12:02", "worst": once}
    incident = {
        "domains": {"math": {"rule": "slip", "severity": "warning", "well_runs": 0}, "coding": broken, "sql": again},
        "events": [
            {
                "happened_at": "10:11",
                "transition": "opened",
                "text": "PAGE …\n  evidence …",
                "deliveries": [failing, told, held, freed],
            },
            {"happened_at": "10:15", "transition": "updated", "text": "ALSO …", "deliveries": gathers},
            {"happened_at": "12:16", "transition": "resolved", "text": "RESOLVED …", "deliveries": []},
        ],
        "silences": [
            {
                "id": 3,
                "route": "chat-prod",
                "labels": {"team": "chat"},
                "severity": None,
                "by": "ann",
                "reason": "rollout",
                "ends_at": "14:00",
                "ended_at": None,
            }
        ],
        "acts": [
            {"done_at": "10:14", "kind": "acknowledged", "by": "ann", "text": None},
            {"done_at": "12:40", "kind": "note", "by": "bob", "text": "a bad template"},
        ],
    }
    assert timeline(incident, lambda time: f"{time} UTC") == (
        "  coding: page by drop; at worst -20.0%, 1.92 of 2.40, in runs 31, 33; joined 10:11 UTC; left 12:16 UTC\n"
        "  math: warning by slip; still broken\n"
        "  sql: warning by slip; at worst -20.0%, 1.92 of 2.40 by request, in run 40; "
        "joined 10:15 UTC, again 12:02 UTC after it had left; still broken\n"
        "  silence 3 of route chat-prod, label team=chat, until 14:00 UTC, by ann: rollout\n"
        "\n10:11 UTC  opened\nPAGE …\n  evidence …\n"
        "  told       console: pending, 1 attempt: alerts:9000: HTTP 500; next at 10:13 UTC\n"
        "  told       hook: sent at 10:12 UTC, 2 attempts\n"
        "  told       mail: not sent, silenced by silence 3 until 14:00 UTC\n"
        "  told       pager: sent at 14:00 UTC, held by silence 3 until 14:00 UTC, 1 attempt\n"
        "\n10:14 UTC  acknowledged by ann\n"
        "\n10:15 UTC  updated\nALSO …\n"
        "  told       console: not sent yet, gathers further domains until 10:20 UTC\n"
        "  told       hook: not sent yet, gathers further domains until 10:20 UTC, "
        "then silenced by silence 3 until 14:00 UTC\n"
        "  told       mail: pending, 0 attempts; from now on silenced by silence 3 until 14:00 UTC\n"
        "\n12:16 UTC  resolved\nRESOLVED …\n"
        "\n12:40 UTC  note by bob: a bad template"
    )


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [
        (-0.391, 1, "-39.1%"),
        (0.02, 1, "+2.0%"),
        (0.0, 1, "0.0%"),
        (-0.0004, 1, "0.0%"),
        (0.0004, 1, "0.0%"),
        (-0.0006, 1, "-0.1%"),
        (-0.004, 0, "0%"),
        (-0.006, 0, "-1%"),
        (None, 1, "–"),
    ],
)
def test_a_change_has_a_sign_unless_it_rounds_to_nothing(fraction: float | None, digits: int, text: str) -> None:
    assert change(fraction, digits) == text


def test_one_is_singular_and_everything_else_is_plural() -> None:
    assert [count(number, "route") for number in (0, 1, 2, 1200)] == ["0 routes", "1 route", "2 routes", "1,200 routes"]
    assert count(3, "reply", "replies") == "3 replies"


@pytest.mark.parametrize(
    ("ids", "words"),
    [([36], "run 36"), ([31, 33, 34], "runs 31, 33, 34"), ([1, 2], "runs 1, 2"), ([1, 2, 3], "runs 1-3")],
)
def test_runs_are_named_one_by_one_or_as_a_row(ids: list[int], words: str) -> None:
    assert numbered("run", ids) == words


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (
            Identity(engine="vllm", version="0.32.0", fingerprint="vllm-0.32.0-63096f17", k=4),
            "vllm-0.32.0-63096f17, K 4",
        ),
        (Identity(engine="vllm", version="0.32.0", drafter="org/d"), "vllm 0.32.0, org/d"),
        (Identity(), "an identity that its servers did not show"),
    ],
)
def test_an_identity_in_short_is_its_fingerprint_or_else_what_is_known(shown: Identity, words: str) -> None:
    assert identity_text(shown.as_dict()) == words
