"""What others reported of speculative decoding, replayed as stored runs: the right verdict and its explanation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.incidents import Transition
from monitor.core.judge import Outcome
from monitor.core.records import Regime, Sample
from tests.factories import IDENTITY, Lengths, make_alerting, make_config, make_run
from tests.integration.test_recording import Story, outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.store.database import Database

FLOOR = {
    "name": "dead-drafter",
    "metric": "first_position_survival",
    "below": "5%",
    "severity": "page",
}
DROP = {"name": "acceptance-drop", "metric": "acceptance_length", "drop": "15%", "severity": "page"}


@pytest.fixture
def story(database: Database) -> Story:
    return Story(database)


def opened(story: Story, lengths: Lengths, **changes: Any) -> dict[str, Any]:
    """The document of the incident that runs like this open."""
    story.run(lengths, **changes)
    story.confirm(lengths, **changes)
    [(incident_id, transition)] = story.confirm(lengths, **changes).transitions
    assert transition is Transition.OPENED
    return story.get_incident(incident_id)["events"][-1]  # type: ignore[no-any-return]


def kinds(document: dict[str, Any]) -> list[str]:
    return [cause["kind"] for cause in document["causes"]]


def since(story: Story, hours: float) -> Regime:
    """Of a server that started so long before the next run."""
    return Regime(server_started_at=(story.now - timedelta(hours=hours)).timestamp())


def samples(run_samples: Sequence[Sample], **changes: Any) -> tuple[Sample, ...]:
    return tuple(replace(sample, **changes) for sample in run_samples)


def test_vllm_41838_a_slow_decay_on_one_domain_that_a_restart_heals(story: Story) -> None:
    """EAGLE's AL fell over hours on prompt types of much traffic alone, and was back after a restart."""
    steady = Regime(server_started_at=(story.now - timedelta(days=2)).timestamp())
    story.baseline(3.07, regime=steady)
    story.baseline(3.07, domain="math", regime=steady)
    for start in range(2):
        began = Regime(server_started_at=(story.now - timedelta(minutes=5)).timestamp())
        for number in range(10):
            story.run(3.07 - 0.04 * number, regime=began)
            assert outcomes(story.run(3.07, domain="math", regime=began)) == [Outcome.OK]
        if start == 0:
            assert story.count("incidents") == 0, "nine tenths of the way the fall is under the line"
    document = opened(story, 2.45, regime=began)
    assert (document["domain"], document["domains"]) == ("coding", ["coding"])
    assert kinds(document)[0] == "uptime"
    assert "AL 3.07 → 2.45 by request over" in document["causes"][0]["sentence"]
    assert "the restart brought it back to 3.07" in document["causes"][0]["sentence"]
    restarted = since(story, 0.1)
    healed = [story.run(3.07, regime=restarted).transitions for _ in range(2)]
    assert [transition for moved in healed for _, transition in moved] == [Transition.RESOLVED]


def test_vllm_43455_a_drafter_dead_after_quantisation_pages_whatever_its_baseline(database: Database) -> None:
    """1.82 % accepted where the native format had 80.56 %."""
    story = Story(database, make_config(alerting=make_alerting(rules=[DROP, FLOOR])))
    story.baseline(3.4)
    other = replace(IDENTITY, drafter="org/drafter-nvfp4")
    document = opened(story, 1.018, identity=other)
    assert document["rule"] == "dead-drafter"
    assert kinds(document)[0] == "drafter"
    assert document["causes"][0]["strength"] == "strong"
    assert "drafter org/drafter → org/drafter-nvfp4" in document["causes"][0]["sentence"]
    assert "1.8% of steps had their first draft token accepted" in document["causes"][0]["sentence"]


def test_sglang_27718_weights_pushed_into_a_running_server_are_told_though_no_identity_changed(story: Story) -> None:
    """After a weight sync the target was new and the draft stale: 2.71 → 1.00, no crash and no restart."""
    story.baseline(2.71)
    pushed = samples(make_run(1.02).samples, output_hash="new weights")
    document = opened(story, 1.02, samples=pushed)
    target = document["causes"][0]
    assert (target["kind"], target["strength"]) == ("target", "strong")
    assert (
        "outputs changed on 24 of 24: points at the target; no change of model, drafter or engine was seen"
        in (target["sentence"])
    )
    assert document["last_bump"] is None


def by_context(long_length: float) -> tuple[Sample, ...]:
    """24 prompts from 500 to 20,000 tokens; acceptance falls with length."""
    found = make_run([2.4] * 8 + [(2.4 + long_length) / 2] * 8 + [long_length] * 8).samples
    tokens = [500] * 8 + [4_000] * 8 + [20_000] * 8
    return tuple(replace(sample, prompt_tokens=count) for sample, count in zip(found, tokens, strict=True))


def test_vllm_47602_acceptance_that_falls_with_context_length_only_says_so(story: Story) -> None:
    """2.3 at 2,000 tokens, 1.08 at 20,000."""
    story.baseline(samples=by_context(2.4))
    document = opened(story, 2.4, samples=by_context(1.08))
    assert (kinds(document)[0], document["causes"][0]["strength"]) == ("context_length", "strong")
    assert document["causes"][0]["sentence"] == "8 prompts of 20,000 tokens -55.0%, 8 prompts of 500 0.0%"


def test_vllm_49548_steps_without_a_draft_at_a_threshold_of_load_fall_in_tokens_per_step_at_level_acceptance(
    database: Database,
) -> None:
    """Throughput collapsed when the batch crossed a dynamic-K threshold, and AL was what it was."""
    rules = [DROP, {"name": "steps", "metric": "tokens_per_step", "drop": "15%", "severity": "page"}]
    story = Story(database, make_config(alerting=make_alerting(rules=rules)))
    calm, busy = Regime(running_before=2, waiting_max=0), Regime(running_before=40, waiting_max=12)
    story.baseline(2.4, regime=calm)
    run = make_run(2.4)
    undrafted = tuple(
        replace(
            sample,
            counts=replace(sample.counts, decode_steps=3000),
            completion_tokens=sample.completion_tokens + 2000,
        )
        for sample in run.samples
    )
    document = opened(story, 2.4, samples=undrafted, regime=busy)
    assert (document["rule"], document["verdict"]["metric"]) == ("steps", "tokens_per_step")
    again = dict(story.run(2.4, samples=undrafted, regime=busy).verdicts)
    assert again["acceptance-drop"].outcome is Outcome.OK
    (load,) = [cause for cause in document["causes"] if cause["kind"] == "load"]
    assert "requests running 40, at most 2 in the baseline's runs" in load["sentence"]


def test_tensorrt_llm_17656_low_acceptance_after_each_cold_start_is_told_by_the_young_server(story: Story) -> None:
    """1.8 to 2.0 on cold start, 3.4 hot."""
    story.baseline(3.4, regime=since(story, 30))
    for _ in range(2):
        began = since(story, 0.1)
        story.run(1.9, regime=began)
        for length in (3.4, 3.4):
            story.confirm(length, regime=began)
        for _ in range(3):
            story.run(3.4, regime=began)
    assert story.count("incidents") == 0, "it is well before its confirmations are"
    document = opened(story, 1.9, regime=since(story, 0.1))
    assert (kinds(document)[0], document["causes"][0]["strength"]) == ("uptime", "strong")
    assert "in the first hour after 2 earlier starts AL was" in document["causes"][0]["sentence"]


def test_vllm_0_9_another_definition_of_acceptance_length_opens_nothing_since_raw_counts_are_what_they_were(
    story: Story,
) -> None:
    """From 0.8.5 to 0.9 the logged AL rose by exactly 1.0: the bonus token was counted from then on."""
    story.baseline(2.4, identity=replace(IDENTITY, version="0.8.5"))
    recorded = story.run(2.4, identity=replace(IDENTITY, version="0.9.0"))
    assert recorded.bump_id is not None
    assert outcomes(recorded) == [Outcome.OK]
    assert story.count("incidents") == 0


def test_a_tool_that_counts_the_bonus_token_otherwise_is_told_from_drift(story: Story) -> None:
    """The same step of 1.0 where somebody else's counts, without the bonus token, came to be compared."""
    story.baseline(2.8, identity=replace(IDENTITY, version="0.9.0"))
    document = opened(story, 1.8, identity=replace(IDENTITY, version="0.8.5"))
    assert kinds(document)[0] == "engine_version"
    assert (
        "every prompt moved by -1.00 tokens (spread 0.000): the bonus token is counted otherwise"
        in (document["causes"][0]["sentence"])
    )
