"""What `serve` says of runs: a line each, and a trouble once."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from monitor.core.figures import aggregate
from monitor.core.judge import Line, judge_run
from monitor.core.records import Reason
from monitor.core.stale import Measured
from monitor.service.case import Recorded
from monitor.service.telling import RunLog, run_line
from tests.factories import DOMAIN, START, make_candidate, make_reference, make_route, make_run


class Told:
    """A log at work on a clock that the test moves."""

    def __init__(self, **route) -> None:
        self.now = START
        self.log = RunLog([make_route(**route)], lambda: self.now)

    def tell(self, *, after: timedelta = timedelta(0), **changes) -> None:
        self.now += after
        run = make_run(2.4, started_at=self.now, **changes)
        self.log.tell(run, recorded(run))

    def away_since(self, last_valid_at: datetime, runs: int) -> None:
        """The first run that this process sees of a trouble that others have seen before."""
        run = make_run(started_at=self.now, invalid_reason="unreachable", invalid_detail="no connection")
        known = Measured(last_valid_at=last_valid_at, invalid={"unreachable": runs, "stalled": 1})
        self.log.tell(run, recorded(run, measured=known))

    def away(self, domain: str, reason: str = "unreachable", after: timedelta = timedelta(0)) -> None:
        self.tell(after=after, domain=domain, invalid_reason=reason, invalid_detail=f"no connection for {domain}")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.INFO, "monitor")
    return Told()


def recorded(run, **changes) -> Recorded:
    return Recorded(7, aggregate(run.domain, run.samples), **changes)


def test_a_run_is_one_line_with_its_figures_and_its_change() -> None:
    run = make_run(2.4, reason=Reason.CONFIRM)
    verdict = judge_run(make_candidate(2.4), make_reference(2.4), Line("acceptance_length", 0.15))
    line = run_line(run, recorded(run, verdicts=[("drop", verdict)], bump_id=3))
    assert line == (
        "run 7  chat-prod · coding  AL 2.40 by request  24/24  0.0% vs baseline 7  confirm  ok  "
        "bump 3: what is running has changed"
    )


def test_a_run_that_trips_is_not_called_ok() -> None:
    run = make_run(1.8)
    verdict = judge_run(make_candidate(1.8), make_reference(2.4), Line("acceptance_length", 0.15))
    line = run_line(run, recorded(run, verdicts=[("drop", verdict)]))
    assert line == "run 7  chat-prod · coding  AL 1.80 by request  24/24  -25.0% vs baseline 7  tripped"


def test_a_run_without_a_baseline_says_that_it_is_not_judged() -> None:
    run = make_run(2.4)
    verdict = judge_run(make_candidate(2.4), None, Line("acceptance_length", 0.15))
    line = run_line(run, recorded(run, verdicts=[("drop", verdict)], baseline_id=3))
    assert line == (
        "run 7  chat-prod · coding  AL 2.40 by request  24/24  not judged: no approved baseline  baseline 3 approved"
    )


def test_an_invalid_run_says_why() -> None:
    run = make_run(2.4, invalid_reason="stalled")
    assert run_line(run, recorded(run)) == "run 7  chat-prod · coding  AL –  0/24  stalled"


@pytest.mark.parametrize("reason", ["unreachable", "server_error"])
def test_a_replica_that_is_away_is_told_once_and_once_when_it_is_back(
    told: Told, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    for domain in ("coding", "math", "coding"):
        told.away(domain, reason, after=timedelta(minutes=4))
    told.tell(after=timedelta(minutes=2))
    assert caplog.messages == [
        f"run 7  chat-prod · coding  AL –  0/24  {reason}: no connection for coding (told once an hour)",
        f"chat-prod can be measured again at http://vllm-0:8000: no valid run for 10m, since 2026-03-02 10:04:00 "
        f"UTC: 3 × {reason}",
        "run 7  chat-prod · coding  AL 2.40 by request  24/24  not judged: no rule applies",
    ]


def test_a_trouble_that_lasts_is_told_again_after_an_hour_with_what_it_has_cost(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        told.away("coding", after=timedelta(minutes=30))
    assert [message.partition("unreachable: ")[2] for message in caplog.messages] == [
        "no connection for coding (told once an hour)",
        "no connection for coding; no valid run for 1h now, 3 runs (told once an hour)",
    ]


def test_a_trouble_is_as_old_as_the_last_valid_run_and_not_as_the_process(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.away_since(START - timedelta(hours=2), runs=3)
    told.away(DOMAIN, after=timedelta(minutes=40))
    told.tell(after=timedelta(minutes=40))
    assert caplog.messages[1] == (
        "chat-prod can be measured again at http://vllm-0:8000: no valid run for 3h20m, since 2026-03-02 08:00:00 UTC: "
        "4 × unreachable"
    )


def test_a_trouble_of_one_domain_does_not_end_with_a_run_of_another(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        told.away("math", "too_few_valid_prompts")
        told.tell(domain="coding")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]


def test_a_warning_is_told_once_an_hour_whatever_its_figures_and_of_this_machine_for_all_replicas(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    for domain, late in (("coding", 120), ("math", 340)):
        told.tell(domain=domain, warnings=(f"this machine was late by up to {late} ms", "K is unknown"))
    told.tell(replica="http://vllm-1:8000", warnings=("this machine was late by up to 5 ms", "K is unknown"))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "chat-prod · coding: this machine was late by up to 120 ms (told once an hour)",
        "chat-prod · coding: K is unknown (told once an hour)",
        "chat-prod · coding: K is unknown (told once an hour)",
    ]


def test_of_a_large_fleet_only_runs_that_end_otherwise_than_before_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "monitor")
    told = Told(every="1s", domains=["coding", "math"])
    for _ in range(3):
        told.tell()
    assert len(caplog.messages) == 1
