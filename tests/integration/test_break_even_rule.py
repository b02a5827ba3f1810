"""A rule with `below: break_even`: held against a sweep of the route, told as modelled, never passed without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from sqlalchemy import insert

from monitor.cli import cli
from monitor.core.judge import Outcome
from monitor.store.schema import sweeps
from tests.factories import IDENTITY, ROUTE, START, make_alerting, make_config, make_route
from tests.integration.story import Story, outcomes

if TYPE_CHECKING:
    from monitor.store.database import Database

RULE = {"name": "losing", "metric": "acceptance_length", "below": "break_even", "severity": "warning"}
LOSES, PAYS = 1.3, 2.4


@pytest.fixture
def story(database: Database) -> Story:
    route = make_route(gpu_price_per_hour=2.0, gpus=4)
    return Story(database, make_config(route, alerting=make_alerting(rules=[RULE])))


def saved_sweep(database: Database, value: float = 1.5, route: str | None = ROUTE) -> None:
    speedup = {"ratio": 1.0, "low": 0.98, "high": 1.02, "n": 24, "repeats": 3}
    points = [{"concurrency": at, "break_even_acceptance_length": value, "speedup": speedup} for at in (1, 8)]
    document: dict[str, Any] = {"gpus": 4, "speculative_identity": IDENTITY.as_dict(), "points": points}
    values = {"route": route, "model": "my-model", "started_at": START, "finished_at": START, "document": document}
    with database.transaction() as connection:
        connection.execute(insert(sweeps).values(values))


def shown(story: Story, *words: str) -> str:
    environment = {"DATABASE_URL": story.database.conninfo(), "COLUMNS": "200"}
    result = CliRunner().invoke(cli, words, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_without_a_sweep_of_the_route_a_run_is_not_passed_and_says_why(story: Story) -> None:
    saved_sweep(story.database, route=None)
    recorded = story.run(LOSES)
    [(_, verdict)] = recorded.verdicts
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason.startswith("no sweep of chat-prod: none is saved for it; ")
    assert "losing: invalid (no sweep of chat-prod: none is saved for it;" in shown(
        story, "run", "show", str(recorded.run_id)
    )


def test_runs_below_break_even_open_an_incident_with_what_it_costs_and_say_that_it_is_modelled(story: Story) -> None:
    saved_sweep(story.database)
    assert outcomes(story.run(LOSES)) == [Outcome.TRIPPED]
    story.confirm(LOSES)
    [(incident_id, transition)] = story.confirm(LOSES).transitions
    event = story.get_incident(incident_id)["events"][-1]
    assert (transition, event["cost_per_day"]) == ("opened", pytest.approx((1 - 1.3 / 1.5) * 2 * 4 * 24))
    assert event["summary"] == (
        "WARNING chat-prod · coding: speculation is losing here, at 25.60 a day for each server: "
        "acceptance length 1.30 by request, below its break-even 1.50 (modelled), since 2026-03-02 10:00:00 UTC; "
        f"next: specwatch incidents {incident_id}"
    )
    text = " ".join(event["text"].split())
    assert "1.30 acceptance length over runs 1-3 of 24 prompts, source request; break-even 1.50, at least 1.47" in text
    assert "modelled by the step times of sweep 1 at 4 requests at once" in text
    assert "rule losing: acceptance_length below break_even, whatever the baseline" in text
    assert "specwatch advise chat-prod" in text
    explained = shown(story, "explain", "--incident", str(incident_id))
    assert "1.30 of break-even 1.50 (modelled by sweep 1 at concurrency 4) by request" in explained


def test_two_runs_that_pay_end_it(story: Story) -> None:
    saved_sweep(story.database)
    story.run(LOSES)
    story.confirm(LOSES)
    [(incident_id, _)] = story.confirm(LOSES).transitions
    story.run(PAYS)
    assert story.run(PAYS).transitions == [(incident_id, "resolved")]
    summary = story.get_incident(incident_id)["events"][-1]["summary"]
    assert "acceptance length is back at 2.40 by request, not below its break-even 1.50 (modelled), after" in summary


def test_a_route_that_does_not_break_even_has_its_baseline_all_the_same(story: Story) -> None:
    saved_sweep(story.database)
    assert [story.run(LOSES).baseline_id for _ in range(10)][-1] is not None
