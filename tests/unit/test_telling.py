"""What `serve` says of runs: a line each, and a replica that is away once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monitor.core.figures import aggregate
from monitor.core.judge import Line, judge_run
from monitor.core.records import Reason
from monitor.service.recording import Recorded
from monitor.service.telling import RunLog, run_line
from tests.factories import make_candidate, make_reference, make_run

if TYPE_CHECKING:
    import pytest


def recorded(run, **changes) -> Recorded:
    return Recorded(7, aggregate(run.domain, run.samples), **changes)


def test_a_run_is_one_line_with_its_figures_and_its_change() -> None:
    run = make_run(2.4, reason=Reason.CONFIRM)
    verdict = judge_run(make_candidate(2.4), make_reference(2.4), Line("acceptance_length", 0.15))
    line = run_line(run, recorded(run, verdicts=[("drop", verdict)], bump_id=3))
    assert line == (
        "chat-prod · coding  AL 2.40  24/24  0.0% of baseline  confirm  ok  bump 3: what is running has changed"
    )


def test_a_run_without_a_baseline_says_so() -> None:
    run = make_run(2.4)
    assert run_line(run, recorded(run)) == "chat-prod · coding  AL 2.40  24/24  no baseline yet  ok"


def test_an_invalid_run_says_why() -> None:
    run = make_run(2.4, invalid_reason="stalled")
    assert run_line(run, recorded(run)) == "chat-prod · coding  AL –  0/24  stalled"


def test_a_replica_that_is_away_is_told_once_and_once_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "monitor")
    log, well = RunLog(), make_run(2.4)
    for domain in ("coding", "math", "coding"):
        away = make_run(2.4, domain=domain, invalid_reason="unreachable", invalid_detail=f"no connection for {domain}")
        log.tell(away, recorded(away))
    log.tell(well, recorded(well))
    assert caplog.messages == [
        "http://vllm-0:8000 cannot be measured: no connection for coding (run 7 of chat-prod · coding)",
        "http://vllm-0:8000 can be measured again",
        "chat-prod · coding  AL 2.40  24/24  no baseline yet  ok",
    ]


def test_a_run_that_is_invalid_otherwise_is_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(2.4, invalid_reason="stalled", invalid_detail="the stream fell silent")
    log = RunLog()
    log.tell(run, recorded(run))
    log.tell(run, recorded(run))
    assert caplog.messages == ["run 7: chat-prod · coding  AL –  0/24  stalled: the stream fell silent"] * 2
