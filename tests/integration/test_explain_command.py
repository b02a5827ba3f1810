"""`specwatch explain`: why a verdict is what it is, whether it comes out again, and what moved."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.core.organic import Organic
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob
from monitor.store.incidents import get_incident
from monitor.store.organic import store_organic
from tests.factories import IDENTITY, REPLICA, ROUTE, make_alerting, make_config, make_run
from tests.integration.story import DROPPED, WELL, Story
from tests.integration.test_gathering import Several, told_of_coding

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from click.testing import Result

    from monitor.store.database import Database


@pytest.fixture
def story(database: Database) -> Story:
    story = Story(database)
    story.baseline()
    return story


def asked(story: Story, *arguments: str, config: Path | None = None) -> Result:
    url = story.database.url.render_as_string(hide_password=False)
    chosen = () if config is None else ("--config", str(config))
    return CliRunner().invoke(cli, [*chosen, "--database-url", url, "explain", *arguments])


def explained(story: Story, *arguments: str) -> Any:
    result = asked(story, *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def told(story: Story, *arguments: str, config: Path | None = None) -> str:
    result = asked(story, *arguments, config=config)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_a_confirmed_drop_is_explained_with_its_numbers_and_comes_out_the_same(story: Story) -> None:
    incident_id = story.incident()
    found = explained(story, "--incident", str(incident_id))
    assert (found["verdict"]["outcome"], found["verdict"]["run_ids"]) == ("confirmed", [11, 12, 13])
    assert found["recomputed"] == {"same": True, "why": None, "judge_version": 1, "outcome": "confirmed"}
    assert (found["baseline"]["run_ids"], found["identity_changes"]) == (list(range(1, 11)), {})
    assert [(cause["kind"], cause["strength"]) for cause in found["causes"]] == [("drafter", "moderate")]
    assert len(found["prompts"]) == 24
    text = told(story, str(found["verdict"]["id"]))
    assert text.startswith(f"verdict {found['verdict']['id']} of chat-prod · coding: confirmed")
    assert "a run trips at -11.0% where p is under 0.005, and is well above -7.0%; judge version 1" in text
    assert "1.92 by request, -20.0% from 2.40 (95 % interval" in text
    assert "checked recomputed from the samples: the same verdict" in text
    assert "cause drafter (moderate evidence): outputs unchanged (24/24): points at the drafter or its cache;" in text


def test_a_confirmed_verdict_shows_the_evidence_of_all_its_runs(story: Story) -> None:
    even = {f"q{n:02}": DROPPED for n in range(24)}
    other = replace(IDENTITY, drafter="org/other")
    story.run(even | {"q05": 1.2}, identity=other)
    story.confirm(even | {"q05": 2.4, "q06": 1.2})
    story.confirm(even, samples=tuple(replace(s, output_hash="x") for s in make_run(even).samples))
    found = explained(story, "--incident", "1")
    assert [run["id"] for run in found["runs"]] == found["verdict"]["run_ids"] == [11, 12, 13]
    assert [run["reason"] for run in found["runs"]] == ["scheduled", "confirm", "confirm"]
    assert found["run"] == found["runs"][-1]
    changes = {prompt["question_id"]: prompt["change"] for prompt in found["prompts"]}
    assert changes["q05"] == pytest.approx((1.2 * 2.4 * 1.92) ** (1 / 3) / 2.4 - 1)
    assert changes["q06"] == pytest.approx((1.92 * 1.2 * 1.92) ** (1 / 3) / 2.4 - 1)
    pooled = math.exp(sum(math.log1p(change) for change in changes.values()) / len(changes)) - 1
    assert pooled == pytest.approx(found["verdict"]["change"])
    assert found["identity_changes"] == {"drafter": ["org/drafter", "org/other"]}
    # Other outputs in one of three runs are not what the verdict rests on.
    assert "outputs unchanged (24/24)" in found["causes"][0]["sentence"]
    text = told(story, "--incident", "1")
    for run, reason, length in ((11, "scheduled", "1.89"), (12, "confirm", "1.91"), (13, "confirm", "1.92")):
        assert f"{run} ({reason}) on {REPLICA} at" in text
        assert f"AL {length} by request" in text
    with story.database.transaction() as connection:
        incident = get_incident(connection, 1)
    assert incident is not None
    assert incident["events"][0]["causes"] == found["causes"]


def test_an_incident_that_is_over_is_explained_by_what_broke(story: Story) -> None:
    incident_id = story.incident()
    story.run()
    assert [transition.value for _, transition in story.run().transitions] == ["resolved"]
    assert explained(story, "--incident", str(incident_id))["verdict"]["outcome"] == "confirmed"


def test_of_an_incident_each_broken_domain_is_explained_the_worst_first(database: Database) -> None:
    several = told_of_coding(Several(database), 1.6)
    several.breaks("math", timedelta(minutes=1))
    found = explained(several, "--incident", "1")
    others = found["other_domains"]
    assert [found["domain"], *(one["domain"] for one in others)] == ["coding", "math"]
    assert [found["verdict"]["outcome"], *(one["verdict"]["outcome"] for one in others)] == ["confirmed"] * 2
    result = asked(several, "--incident", "1").stdout
    first, second = found["verdict"]["id"], others[0]["verdict"]["id"]
    assert result.startswith(
        f"incident 1: 2 domains, the worst first: coding, math; the prompts of one: 'specwatch explain {first}'\n"
    )
    headings = [f"verdict {first} of chat-prod · coding: confirmed", f"verdict {second} of chat-prod · math: confirmed"]
    assert [line for line in result.splitlines() if line.startswith("verdict ")] == headings
    assert "prompts that fell most" not in result
    assert "prompts that fell most" in asked(several, str(first)).stdout


def test_of_an_open_incident_the_domains_that_have_left_are_not_explained(database: Database) -> None:
    several = told_of_coding(Several(database), 1.6)
    several.breaks("math", timedelta(minutes=1))
    for minutes in (10, 20, 30):
        job = ProbeJob(f"well {minutes}", ROUTE, "coding", "", Reason.SCHEDULED)
        several.at(timedelta(minutes=minutes), job, WELL)
    assert several.get_incident(1)["domains"]["coding"]["left_at"] is not None
    found = explained(several, "--incident", "1")
    assert (found["domain"], found["other_domains"]) == ("math", [])
    assert asked(several, "--incident", "1").stdout.startswith("verdict ")


def test_the_prompts_that_fell_most_come_first(story: Story) -> None:
    recorded = story.run({f"q{n:02}": WELL for n in range(24)} | {"q05": 1.2, "q07": 2.0})
    found = explained(story, "--run", str(recorded.run_id))
    assert [prompt["question_id"] for prompt in found["prompts"][:2]] == ["q05", "q07"]
    assert found["prompts"][0]["change"] == pytest.approx(-0.5)
    assert found["recomputed"]["same"] is True


@pytest.mark.parametrize(
    ("metric", "change"),
    [("accepted_per_step", 0.92 / 1.4 - 1), ("acceptance_rate", 0.92 / 1.4 - 1), ("throughput", 1.92 / 2.4 - 1)],
)
def test_prompts_are_compared_by_the_rules_own_metric_also_where_the_baseline_does_not_hold_it(
    database: Database, metric: str, change: float
) -> None:
    rule = {"name": "other", "metric": metric, "drop": "15%"}
    story = Story(database, make_config(alerting=make_alerting(rules=[rule])))
    story.baseline()
    story.query("ALTER TABLE baselines DISABLE TRIGGER USER")  # immutable since
    story.query("UPDATE baselines SET metrics = metrics - CAST(:metric AS text)", metric=metric)
    incident_id = story.incident()
    found = explained(story, "--incident", str(incident_id))
    assert (found["prompts_metric"], len(found["prompts"])) == (metric, 24)
    assert [prompt["change"] for prompt in found["prompts"]] == pytest.approx([change] * 24, abs=0.01)
    assert f"prompts that fell most by {metric}, source request" in told(story, "--incident", str(incident_id))


def test_a_verdict_that_stored_samples_do_not_give_again_is_called_another(story: Story) -> None:
    recorded = story.run(DROPPED)
    story.query("UPDATE samples SET accepted = 1400 WHERE run_id = :id", id=recorded.run_id)
    found = explained(story, "--run", str(recorded.run_id))
    assert (found["recomputed"]["same"], found["recomputed"]["outcome"]) == (False, "ok")
    assert "ANOTHER verdict, ok: outcome ok was tripped" in told(story, "--run", str(recorded.run_id))


def test_a_verdict_of_another_version_of_the_judge_is_not_recomputed(story: Story) -> None:
    recorded = story.run()
    story.query(
        """UPDATE verdicts SET document = document || '{"judge_version": 0}' WHERE run_id = :id""", id=recorded.run_id
    )
    found = explained(story, "--run", str(recorded.run_id))
    assert found["recomputed"]["same"] is None
    assert "not recomputed: it was judged by version 0 of the procedure" in told(story, "--run", str(recorded.run_id))


def test_without_a_baseline_an_invalid_verdict_is_explained_too(database: Database) -> None:
    story = Story(database)
    text = told(story, "--run", str(story.run().run_id))
    assert "because no approved baseline" in text
    assert "baseline none" in text
    assert "checked recomputed from the samples: the same verdict" in text


def test_what_changed_of_the_identity_is_told_in_words(story: Story) -> None:
    other = replace(IDENTITY, drafter="org/other", fingerprint="f2")
    recorded = story.run(DROPPED, identity=other)
    text = told(story, "--run", str(recorded.run_id))
    assert "changed drafter org/drafter → org/other" in text
    assert "cause drafter (strong evidence): drafter org/drafter → org/other; outputs unchanged (24/24)" in text


def test_lost_money_is_told_where_the_route_has_a_price(story: Story, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(
        f"routes: [{{name: {ROUTE}, replicas: ['{REPLICA}'], domains: [coding], gpus: 2, gpu_price_per_hour: 2.0}}]"
    )
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    recorded = story.run(DROPPED)
    text = told(story, "--run", str(recorded.run_id), config=tmp_path)
    assert "pace the same tokens take 1.25 times as long (192 tokens a second per request, baseline 240)" in text
    assert "cost 1.00 an hour more, 24.00 a day more for each server kept busy, at 2 an hour for each of 2 GPUs" in text
    assert "cost" not in told(story, "--run", str(recorded.run_id))


def read(story: Story, at: datetime, length: float) -> None:
    counts = {"reads": 10, "steps": 20_000, "drafted": 60_000, "accepted": round(20_000 * (length - 1))}
    with story.database.transaction() as connection:
        store_organic(connection, [Organic(ROUTE, REPLICA, at, at + timedelta(minutes=10), **counts)])


def test_a_route_whose_traffic_moved_while_its_probes_held_says_the_mix_and_has_no_incident(story: Story) -> None:
    read(story, story.now - timedelta(hours=2), 2.6)
    story.now += timedelta(hours=2)
    read(story, story.now - timedelta(minutes=20), 2.0)
    story.run(2.39)
    assert story.count("incidents") == 0
    (found,) = explained(story, ROUTE)
    assert [cause["kind"] for cause in found["causes"]] == ["traffic_mix"]
    assert (found["organic"]["source"], found["organic"]["before"], found["organic"]["after"]) == ("organic", 2.6, 2.0)
    assert "traffic mix (strong evidence): organic acceptance length, of all traffic, 2.60 → 2.00 (-23.1%)" in told(
        story, ROUTE
    )


def test_traffic_is_told_as_soon_as_enough_was_read_since_the_baseline(story: Story) -> None:
    read(story, story.now - timedelta(hours=2), 2.6)
    read(story, story.now - timedelta(minutes=20), 2.0)
    story.run(2.39)
    (found,) = explained(story, ROUTE)
    assert [cause["kind"] for cause in found["causes"]] == ["traffic_mix"]
    assert (found["organic"]["steps_before"], found["organic"]["steps_after"]) == (20_000, 20_000)


def test_a_reading_that_began_while_the_baseline_was_measured_is_none_of_what_came_after(story: Story) -> None:
    read(story, story.now - timedelta(minutes=42), 2.6)
    story.run(2.39)
    assert explained(story, ROUTE)[0]["organic"] is None


def test_a_route_that_fell_is_not_excused_by_its_traffic(story: Story) -> None:
    read(story, story.now - timedelta(hours=2), 2.6)
    story.now += timedelta(hours=2)
    read(story, story.now - timedelta(minutes=20), 2.0)
    story.run(DROPPED)
    (found,) = explained(story, ROUTE)
    assert [cause["kind"] for cause in found["causes"]] == ["drafter"]


def test_other_tokens_for_the_same_prompts_point_at_the_template(story: Story) -> None:
    run = make_run(DROPPED)
    longer = tuple(replace(sample, prompt_tokens=47, output_hash="other") for sample in run.samples)
    recorded = story.run(samples=longer)
    found = explained(story, "--run", str(recorded.run_id))
    assert [(cause["kind"], cause["strength"]) for cause in found["causes"]] == [
        ("template", "strong"),
        ("target", "weak"),
    ]


def test_a_run_that_held_has_no_cause_to_be_looked_for(story: Story) -> None:
    assert "cause none looked for: nothing moved" in told(story, "--run", str(story.run(2.39).run_id))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one: VERDICT_ID, ROUTE, --run ID or --incident ID"),
        (("7", "--run", "1"), "name one: VERDICT_ID, ROUTE, --run ID or --incident ID"),
        (("99999",), "there is no verdict 99999"),
        (("--run", "99999"), "no verdict on run 99999"),
        (("--incident", "99999"), "there is no incident 99999; see 'specwatch incidents'"),
        (("nowhere",), "there is no route nowhere"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_what_to_do(
    story: Story, arguments: tuple[str, ...], message: str
) -> None:
    result = asked(story, *arguments)
    assert result.exit_code != 0
    assert message in f"{result.output}{result.exception}"
