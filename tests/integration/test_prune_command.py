"""Retention: what is removed when it is old, what never is, and what is then said of it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.config.retention import Retention
from monitor.core.organic import Organic
from monitor.core.records import Reason
from monitor.errors import UsageError
from monitor.service.pruning import Pruned, Pruning
from monitor.service.rounds import Rounds
from monitor.store import baselines, retention
from monitor.store.organic import store_organic
from tests.factories import REPLICA, ROUTE, make_config, make_route
from tests.integration.story import DROPPED, WELL, Story

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from monitor.store.database import Database


@pytest.fixture
def story(database: Database) -> Story:
    """A baseline of runs 1 to 10, an incident of runs 11 to 13, healed by 14 and 15, and 30 other runs; months ago."""
    story = Story(database)
    story.baseline()
    story.incident()
    for _ in range(32):
        story.run()
    return story


def pruning(story: Story, **ages: Any) -> Pruning:
    return Pruning(story.database, Retention.model_validate(ages), lambda: story.now)


async def removed(prune: Pruning, runs: int) -> None:
    for _ in range(400):
        if prune.removed.runs >= runs:
            break
        await asyncio.sleep(0.05)
    assert prune.removed.runs == runs


def runs_with_samples(story: Story) -> list[int]:
    return [row["run_id"] for row in story.query("SELECT DISTINCT run_id FROM samples ORDER BY 1")]


def asked(story: Story, *arguments: str, config: Path | None = None) -> Result:
    url = story.database.url.render_as_string(hide_password=False)
    chosen = () if config is None else ("--config", str(config))
    return CliRunner().invoke(cli, [*chosen, "--database-url", url, *arguments])


def told(story: Story, *arguments: str) -> str:
    result = asked(story, *arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


async def test_old_samples_go_but_not_those_of_a_baseline_or_an_incident(story: Story) -> None:
    rows = {table: story.count(table) for table in ("runs", "verdicts", "incidents", "incident_events", "baselines")}
    story.now += timedelta(days=60)
    story.run()
    prune = pruning(story, samples="30d")
    assert await prune.prune() == Pruned(runs=32, samples=32 * 24)
    assert runs_with_samples(story) == [*range(1, 14), 46]
    assert prune.removed == Pruned(runs=32, samples=32 * 24)
    assert await prune.prune() == Pruned()
    left = {table: story.count(table) for table in rows}
    assert left == rows | {"runs": rows["runs"] + 1, "verdicts": rows["verdicts"] + 1}


async def test_what_is_young_and_what_is_not_configured_stays(story: Story) -> None:
    assert await pruning(story, samples="7d").prune() == Pruned()
    story.now += timedelta(days=60)
    assert await pruning(story).prune() == Pruned()
    assert len(runs_with_samples(story)) == 45


async def test_only_who_leads_removes_and_that_once_a_day(story: Story) -> None:
    story.now += timedelta(days=60)
    leads = False
    prune = pruning(story, samples="30d")
    running = asyncio.create_task(Rounds(lambda _: prune.look(), 0.01, lambda: leads, lambda: story.now).run())
    await asyncio.sleep(0.2)
    assert prune.removed == Pruned()
    leads = True
    await removed(prune, 32)
    await asyncio.sleep(0.5)  # the last batch finds nothing and ends the round
    story.run()
    story.now += timedelta(hours=23)
    story.query("UPDATE runs SET finished_at = :long_ago WHERE id = 46", long_ago=story.now - timedelta(days=31))
    await asyncio.sleep(0.5)
    assert prune.removed.runs == 32
    story.now += timedelta(hours=2)
    await removed(prune, 33)
    running.cancel()


async def test_a_run_that_waits_for_its_confirmation_keeps_its_samples(story: Story) -> None:
    tripped = story.run(DROPPED).run_id
    first = story.confirm().run_id
    story.now += timedelta(days=60)
    await pruning(story, samples="7d").prune()
    assert {tripped, first} <= set(runs_with_samples(story))


async def test_removed_samples_are_said_to_be_removed_and_nothing_is_made_of_their_absence(story: Story) -> None:
    story.now += timedelta(days=60)
    new = story.run().run_id
    await pruning(story, samples="7d").prune()
    (verdict,) = json.loads(asked(story, "run", "show", "20", "--format", "json").stdout)["verdicts"]
    explained = json.loads(asked(story, "explain", str(verdict["id"]), "--format", "json").stdout)
    assert explained["recomputed"]["same"] is None
    assert explained["recomputed"]["why"] == "the samples of run 20 are no longer kept, as routes.yaml says"
    assert explained["verdict"]["outcome"] == "ok"
    assert "prompts their samples are no longer kept" in told(story, "run", "show", "20")
    assert json.loads(asked(story, "run", "show", "20", "--format", "json").stdout)["samples_removed"] is True
    assert json.loads(asked(story, "run", "show", str(new), "--format", "json").stdout)["samples_removed"] is False
    assert "no prompt of run 20 has a value; its samples may have been removed" in told(
        story, "compare", "20", str(new)
    )
    assert "left out: 32 valid runs of this window whose samples are no longer kept" in told(
        story, "history", ROUTE, "--by-context"
    )
    incident = json.loads(asked(story, "explain", "--incident", "1", "--format", "json").stdout)
    assert incident["recomputed"]["same"] is True


async def test_a_baseline_is_made_only_of_runs_that_have_their_samples(story: Story) -> None:
    story.now += timedelta(days=60)
    new = story.run().run_id
    await pruning(story, samples="7d").prune()
    with story.database.transaction() as connection:
        assert baselines.last_valid_runs(connection, ROUTE, "coding", 10)[-1] == new
        assert 20 not in baselines.last_valid_runs(connection, ROUTE, "coding", 40)
        with pytest.raises(UsageError, match="the samples of run 20 are no longer kept"):
            baselines.create_baseline(connection, [new, 20], "ann", story.now)


def test_a_baseline_that_is_being_made_keeps_its_samples(story: Story) -> None:
    before = story.now
    with story.database.transaction() as connection:
        baselines.create_baseline(connection, [20, 21], "ann", story.now)
        with story.database.transaction() as other:  # while it is not committed
            removed, after = retention.remove_samples(other, before, 0, 100)
        assert (removed.runs, after) == (30, 45)
    with story.database.transaction() as connection:
        retention.remove_samples(connection, before, 0, 100)
    assert {20, 21} <= set(runs_with_samples(story))


def test_a_baseline_that_comes_while_samples_are_removed_is_refused_and_not_made_of_half(story: Story) -> None:
    refused: list[str] = []

    def make() -> None:
        try:
            with story.database.transaction() as connection:
                baselines.create_baseline(connection, [20, 21], "ann", story.now)
        except UsageError as error:
            refused.append(str(error))

    maker = Thread(target=make)
    with story.database.transaction() as connection:
        retention.remove_samples(connection, story.now, 0, 100)
        maker.start()
        maker.join(0.5)
        assert maker.is_alive(), "it waits for the removal"
    maker.join(10)
    assert refused == ["the samples of run 20 are no longer kept: a baseline needs runs that have theirs"]


def test_batches_are_bounded_and_go_on_behind_what_is_kept(story: Story) -> None:
    sizes, after = [], 0
    while after is not None:
        with story.database.transaction() as connection:
            removed, after = retention.remove_samples(connection, story.now, after, 5)
        sizes.append(removed.runs)
    assert sizes == [0, 0, 2, 5, 5, 5, 5, 5, 5, 0]
    assert runs_with_samples(story) == list(range(1, 14))


async def test_old_passive_readings_go_but_not_those_of_a_baselines_time(story: Story) -> None:
    counts = {"reads": 10, "steps": 100, "drafted": 300, "accepted": 150}
    [row] = story.query("SELECT started_at FROM runs WHERE id = 5")
    within = row["started_at"]
    begins = [within, within + timedelta(days=3), within + timedelta(days=59)]
    readings = [Organic(ROUTE, REPLICA, at, at + timedelta(minutes=10), **counts) for at in begins]
    other = Organic("elsewhere", REPLICA, within, within + timedelta(minutes=10), **counts)
    with story.database.transaction() as connection:
        store_organic(connection, [*readings, other])
    story.now += timedelta(days=60)
    assert await pruning(story, organic="30d").prune() == Pruned(organic=2)
    left = story.query("SELECT route, began_at FROM organic ORDER BY began_at")
    assert [(row["route"], row["began_at"]) for row in left] == [(ROUTE, begins[0]), (ROUTE, begins[2])]


async def test_what_all_traffic_did_in_the_hour_of_an_incident_stays_with_it(story: Story) -> None:
    [row] = story.query("SELECT finished_at FROM runs WHERE id = 11")
    ended, ten = row["finished_at"], timedelta(minutes=10)
    counts = {"reads": 10, "steps": 20_000, "drafted": 60_000}
    [baseline] = story.query("SELECT min(started_at) AS began FROM runs WHERE id <= 10")
    with story.database.transaction() as connection:
        store_organic(
            connection,
            [
                Organic(ROUTE, REPLICA, baseline["began"], baseline["began"] + ten, accepted=32_000, **counts),
                Organic(ROUTE, REPLICA, ended - 2 * ten, ended - ten, accepted=20_000, **counts),
                Organic(ROUTE, REPLICA, ended + 3 * ten, ended + 4 * ten, accepted=30_000, **counts),
                Organic("elsewhere", REPLICA, ended - ten, ended, accepted=30_000, **counts),
            ],
        )
    before = json.loads(asked(story, "explain", "--incident", "1", "--format", "json").stdout)["organic"]
    assert (before["before"], before["after"]) == (2.6, 2.0)
    story.now += timedelta(days=60)
    assert await pruning(story, organic="30d").prune() == Pruned(organic=2)
    assert json.loads(asked(story, "explain", "--incident", "1", "--format", "json").stdout)["organic"] == before


async def test_that_the_samples_of_other_replicas_are_gone_is_said_and_nothing_is_made_of_the_rest(
    database: Database,
) -> None:
    one, other = (f"http://vllm-{number}:8000" for number in (1, 2))
    story = Story(database, make_config(make_route(replicas=[REPLICA, one, other])))
    story.baseline()
    removed = [story.run(WELL, replica=replica).run_id for replica in (one, other)]
    story.run(DROPPED)
    removed.append(story.run(WELL, reason=Reason.CONFIRM, replica=other).run_id)
    story.confirm()
    story.confirm()
    assert '"kind": "replica"' in asked(story, "explain", "--incident", "1", "--format", "json").stdout
    assert "removed" not in told(story, "explain", "--incident", "1")
    story.query("DELETE FROM samples WHERE run_id = :run_id", run_id=removed[0])
    assert '"kind": "replica"' not in asked(story, "explain", "--incident", "1", "--format", "json").stdout
    story.now += timedelta(days=60)
    await pruning(story, samples="7d").prune()
    explained = json.loads(asked(story, "explain", "--incident", "1", "--format", "json").stdout)
    assert explained["removed_beside"] == removed
    assert "replica" not in {cause["kind"] for cause in explained["causes"]}
    assert "other replicas" in explained["not_known"]
    assert "samples of 3 runs of the route's replicas at the time are no longer kept" in told(
        story, "explain", "--incident", "1"
    )


def test_a_dry_run_tells_what_would_go_and_removes_nothing(story: Story, tmp_path: Path) -> None:
    result = asked(story, "prune", "--dry-run", "--samples", "7d", "--format", "json")
    document = json.loads(result.stdout)
    assert document["dry_run"] is True
    assert {name: document["samples"][name] for name in ("runs", "samples", "kept_runs")} == {
        "runs": 32,
        "samples": 32 * 24,
        "kept_runs": 13,
    }
    assert document["organic"] is None
    assert len(runs_with_samples(story)) == 45
    (tmp_path / "routes.yaml").write_text(
        f"retention: {{samples: 60d}}\nroutes: [{{name: {ROUTE}, replicas: ['{REPLICA}'], domains: [coding]}}]"
    )
    (tmp_path / "alerting.yaml").write_text("rules: [{name: d, drop: 15%}]\nreceivers: [{name: log, log: {}}]\n")
    done = asked(story, "prune", config=tmp_path)
    assert done.exit_code == 0, done.output
    assert "768 samples of 32 runs that ended before" in done.stdout
    assert "removed; 13 runs as old kept with samples, for a baseline or an incident" in done.stdout
    assert runs_with_samples(story) == list(range(1, 14))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--samples", "3d"), "write a week at least"),
        (("--samples", "2 weeks"), "'2 weeks' is not a duration"),
        (("--organic", "3h"), "write a week at least"),
    ],
)
def test_an_age_that_is_none_is_refused(story: Story, arguments: tuple[str, ...], message: str) -> None:
    result = asked(story, "prune", "--dry-run", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_without_a_retention_nothing_is_removed_and_that_is_said(story: Story, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(f"routes: [{{name: {ROUTE}, replicas: ['{REPLICA}'], domains: [coding]}}]")
    (tmp_path / "alerting.yaml").write_text("rules: [{name: d, drop: 15%}]\nreceivers: [{name: log, log: {}}]\n")
    result = asked(story, "prune", config=tmp_path)
    assert "nothing is ever removed: routes.yaml has no 'retention'" in str(result.exception)
    assert len(runs_with_samples(story)) == 45
    assert datetime.now(UTC) - story.now > timedelta(days=7), "they would be old enough"
