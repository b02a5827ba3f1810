"""What others reported of speculative decoding, replayed on the simulator: the right verdict and its explanation.

Every run is answered over HTTP by a simulated server that fails as the reported one did; only the clock is the test's.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.incidents import Transition
from monitor.core.judge import Outcome
from monitor.core.records import Reason, Run
from monitor.prompts.sets import Prompt, PromptSet, content_hash
from monitor.service.jobs import ProbeJob
from monitor.service.probes import run_probe
from monitor.sim.domains import KEY_CHARACTERS
from monitor.sim.engine import Generation
from monitor.sim.model import Drafter, Target
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import bumps
from tests.factories import DOMAIN, IDENTITY, ROUTE, Lengths, make_alerting, make_config, make_route
from tests.integration.story import WELL, Story, outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.store.database import Database

DROP = {"name": "acceptance-drop", "metric": "acceptance_length", "drop": "15%", "severity": "page"}
FLOOR = {"name": "dead-drafter", "metric": "first_position_survival", "below": "5%", "severity": "page"}
STEPS = {"name": "steps", "metric": "tokens_per_step", "drop": "15%", "severity": "page"}
CHARACTERS_PER_TOKEN = 4
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def prompts(domain: str, tokens: tuple[int, ...] = (40,) * 24) -> PromptSet:
    """A prompt of each of these lengths, about."""
    texts = [f"{domain} {number}: ".ljust(length * CHARACTERS_PER_TOKEN, "x") for number, length in enumerate(tokens)]
    found = tuple(Prompt(f"q{number:02}", domain, "", (text,)) for number, text in enumerate(texts))
    return PromptSet(domain, found, content_hash(found))


PROMPTS = {domain: prompts(domain) for domain in (DOMAIN, "math")}
BY_CONTEXT = {DOMAIN: prompts(DOMAIN, (500,) * 8 + (4_000,) * 8 + (20_000,) * 8)}


def conditionals(acceptance_length: float, k: int = 4) -> tuple[float, ...]:
    """Equal chances at every position that make this acceptance length."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(k + 1)) < acceptance_length else (low, middle)
    return (low,)


class Reported(SimulatedServer):
    """A server whose acceptance length is what `length_of` says at each request; by default `length`."""

    length = 3.0

    def __init__(self, sets: dict[str, PromptSet] = PROMPTS, **config: Any) -> None:
        asked = chain.from_iterable(prompt_set.prompts for prompt_set in sets.values())
        domains = {prompt.turns[0][:KEY_CHARACTERS]: prompt.category for prompt in asked}
        settings = {"domains": domains, "max_model_len": 32_768, "max_num_seqs": 256, **config}
        super().__init__(ServerConfig(drafter=Drafter(prompt_spread_ratio=0.1), **settings))
        self.sets = sets

    def length_of(self, domain: str, prompt_tokens: int) -> float:
        return self.length

    def coverage(self) -> float | None:
        """Share of steps with a draft; None: the method's own."""
        return None

    def drafter_of(self, domain: str, prompt_tokens: int, rank: int | None) -> Drafter:
        usual, length = super().drafter_of(domain, prompt_tokens, rank), self.length_of(domain, prompt_tokens)
        return replace(usual, default_acceptance=conditionals(length), coverage_ratio=self.coverage())


class Replay(Story):
    """A route whose runs the server answers; `lengths` are the server's to say."""

    def __init__(self, database: Database, server: Reported, url: str, *rules: dict[str, Any], **route: Any) -> None:
        self.server = server
        settings = {"domains": sorted(server.sets), "model": None, "max_tokens": 48, **route}
        self.url, self.route = url, make_route(replicas=[url], **settings)
        super().__init__(database, make_config(self.route, alerting=make_alerting(rules=rules or [DROP])))
        self.started(HOUR)

    def started(self, ago: timedelta) -> None:
        """The server's start is so long before the next run, by the test's clock."""
        self.server.started_seconds = (self.now - ago).timestamp()

    def restart(self, **changes: Any) -> None:
        self.server.restart(**changes)
        self.started(5 * MINUTE)

    def made(
        self, lengths: Lengths = WELL, *, domain: str = DOMAIN, reason: Reason = Reason.SCHEDULED, **_: Any
    ) -> Run:
        job = ProbeJob("replayed", ROUTE, domain, self.url, reason)
        run = asyncio.run(run_probe(self.route, job, self.server.sets[domain]))
        assert isinstance(run, Run)
        return replace(run, started_at=self.now, finished_at=self.now + MINUTE)

    def opened(self) -> dict[str, Any]:
        """The document of the incident that the next run and its confirmations open."""
        self.run()
        self.confirm()
        [(incident_id, transition)] = self.confirm().transitions
        assert transition is Transition.OPENED
        return self.get_incident(incident_id)["events"][-1]  # type: ignore[no-any-return]

    def is_confirming(self) -> bool:
        return any(job["reason"] == "confirm" for job in self.jobs())

    def resolved(self) -> bool:
        """Whether the next two runs end the incident."""
        found = [self.run().transitions for _ in range(2)]
        return [transition for moved in found for _, transition in moved] == [Transition.RESOLVED]


@pytest.fixture
def replay_on(database: Database) -> Iterator[Any]:
    """Makes a Replay on a server that listens until the test ends."""
    listening = []

    def begin(server: Reported, *rules: dict[str, Any], **route: Any) -> Replay:
        context = server.run_in_thread()
        listening.append(context)
        return Replay(database, server, context.__enter__(), *rules, **route)

    yield begin
    for context in listening:
        context.__exit__(None, None, None)


def first_cause(document: dict[str, Any]) -> tuple[str, str]:
    cause = document["causes"][0]
    return cause["kind"], cause["strength"]


def sentence(document: dict[str, Any], kind: str | None = None) -> str:
    """Of the cause of this kind; of the first when there is none named."""
    return str(next(cause["sentence"] for cause in document["causes"] if kind in (None, cause["kind"])))


class Decaying(Reported):
    """Its acceptance falls, domain by domain, with what it has served of it since its start: vllm 41838."""

    def _boot(self) -> None:
        super()._boot()
        self.asked: Counter[str] = Counter()

    def length_of(self, domain: str, prompt_tokens: int) -> float:
        self.asked[domain] += 1
        return 3.07 * (1 - 0.018 * self.asked[domain] / 124)


def test_vllm_41838_a_slow_decay_on_the_busy_domain_alone_that_a_restart_heals(replay_on: Any) -> None:
    """EAGLE's AL fell over hours on prompt types of much traffic alone, and was back after a restart."""
    replay = replay_on(Decaying())
    for domain in (DOMAIN, "math"):
        for _ in range(10):
            replay.server.asked.clear()
            replay.run(domain=domain)
    for _ in range(2):
        replay.restart()
        for _ in range(8):
            replay.server.traffic(DOMAIN, requests=100, max_tokens=8)
            replay.run()
            while replay.is_confirming():
                assert replay.confirm().transitions == [], "the fall is not past the line yet"
            assert outcomes(replay.run(domain="math")) == [Outcome.OK]
    replay.server.traffic(DOMAIN, requests=200, max_tokens=8)
    document = replay.opened()
    assert (document["domain"], document["domains"]) == (DOMAIN, [DOMAIN])
    assert first_cause(document) == ("uptime", "strong")
    assert re.search(r"AL 2\.9\d → 2\.[45]\d by request over 1\d\.\d h since the server started", sentence(document))
    assert re.search(r"the start before ended at 2\.\d\d, the restart brought it back to 2\.9\d", sentence(document))
    replay.restart()
    assert replay.resolved()


def test_vllm_43455_a_drafter_dead_after_quantisation_pages_whatever_its_baseline(replay_on: Any) -> None:
    """1.82 % accepted where the native format had 80.56 %."""
    replay = replay_on(Reported(), DROP, FLOOR)
    replay.baseline()
    replay.restart(drafter=replace(replay.server.drafter, name="org/drafter-nvfp4"))
    replay.server.length = 1.0185
    document = replay.opened()
    assert document["rule"] == "dead-drafter"
    assert document["verdict"]["value"] < 0.05
    assert first_cause(document) == ("drafter", "strong")
    assert re.search(r"outputs unchanged \(24/24\): points at the drafter or its cache", sentence(document))
    assert re.search(r"[12]\.\d% of steps had their first draft token accepted", sentence(document))
    assert re.search(r"fingerprint vllm-0\.32\.0-\w{8} → vllm-0\.32\.0-\w{8}$", sentence(document))


class Synced(Target):
    """Other weights under the same name."""

    def output(self, prompt: str, limit_tokens: int, **how: Any) -> list[int]:
        return super().output(f"after the sync: {prompt}", limit_tokens, **how)


def test_sglang_27718_weights_pushed_into_a_running_server_are_told_though_no_identity_changed(replay_on: Any) -> None:
    """After a weight sync the target was new and the draft stale: 2.71 → 1.00, no crash and no restart."""
    replay = replay_on(Reported())
    replay.server.length = 2.71
    replay.baseline()
    replay.server.config = replace(replay.server.config, target=Synced())
    replay.server.length = 1.02
    document = replay.opened()
    assert document["verdict"]["change"] < -0.5
    assert first_cause(document) == ("target", "strong")
    assert sentence(document) == (
        "outputs changed on 24 of 24: points at the target; no change of model, drafter or engine was seen "
        "(weights that are overwritten or pushed cannot be seen)"
    )
    assert document["last_bump"] is None


class ShortOnly(Reported):
    """Once `broken`, its drafter follows only short prompts: vllm 47602."""

    broken = False

    def length_of(self, domain: str, prompt_tokens: int) -> float:
        return 2.3 if not self.broken or prompt_tokens < 2_000 else 1.7 if prompt_tokens < 10_000 else 1.08


def test_vllm_47602_acceptance_that_falls_with_context_length_only_says_so(replay_on: Any) -> None:
    """2.3 at 2,000 tokens, 1.08 at 20,000."""
    replay = replay_on(ShortOnly(BY_CONTEXT))
    replay.baseline()
    replay.server.broken = True
    document = replay.opened()
    assert document["verdict"]["metric"] == "acceptance_length"
    assert first_cause(document) == ("context_length", "strong")
    lengths = (
        r"8 prompts of 20,\d{3}( to 20,\d{3})? tokens -(4|5)\d\.\d%, 8 prompts of 5\d\d( to 5\d\d)? [+-]?[0-3]\.\d%"
    )
    assert re.fullmatch(lengths, sentence(document))


class DynamicK(Reported):
    """Stops drafting on most steps once more than 16 requests run: vllm 49548."""

    def coverage(self) -> float | None:
        return 0.2 if self.engines[0].running > 16 else None


def test_vllm_49548_a_collapse_at_a_threshold_of_load_is_told_at_level_acceptance(replay_on: Any) -> None:
    """Throughput collapsed when the batch crossed a dynamic-K threshold, and AL was what it was."""
    replay = replay_on(DynamicK(), DROP, STEPS)
    replay.baseline()
    replay.server.engines[0].running += 40
    document = replay.opened()
    assert (document["rule"], document["verdict"]["metric"]) == ("steps", "tokens_per_step")
    by_rule = dict(replay.run().verdicts)
    assert by_rule["acceptance-drop"].outcome is Outcome.OK
    assert by_rule["steps"].estimate.change < -0.3
    assert "requests running 4" in sentence(document, "load")
    replay.server.engines[0].running -= 40
    assert replay.resolved()


class ColdStart(Reported):
    """Accepts little on the first `cold` requests of each start: TensorRT-LLM 17656."""

    cold = 24

    def _boot(self) -> None:
        super()._boot()
        self.asked = 0

    def length_of(self, domain: str, prompt_tokens: int) -> float:
        self.asked += 1
        return 1.9 if self.asked <= self.cold else 3.4


def test_tensorrt_llm_17656_low_acceptance_after_each_cold_start_is_told_by_the_young_server(replay_on: Any) -> None:
    """1.8 to 2.0 on cold start, 3.4 hot."""
    replay = replay_on(ColdStart())
    replay.server.asked = replay.server.cold
    replay.baseline()
    for _ in range(2):
        replay.restart()
        replay.run()
        for _ in range(2):
            assert replay.confirm().transitions == []
        for _ in range(3):
            assert outcomes(replay.run()) == [Outcome.OK]
    assert replay.count("incidents") == 0, "it is well before its confirmations are"
    replay.server.cold = 1_000
    replay.restart()
    document = replay.opened()
    assert first_cause(document) == ("uptime", "strong")
    told = r"in the first hour after 2 earlier starts AL was [12]\.\d\d, later 3\.\d\d by request"
    assert re.search(told, sentence(document))


def test_speculators_1095_positions_divided_by_the_data_parallel_engines_are_never_a_figure(replay_on: Any) -> None:
    """An exporter kept one engine's positions in place of their sum: acceptance length right, survival a half of it."""
    replay = replay_on(Reported(engines=2), DROP, FLOOR, source="counters")
    replay.baseline()
    replay.server.behave(divide_positions=True)
    recorded = replay.run()
    assert outcomes(recorded) == [Outcome.INVALID, Outcome.INVALID]
    assert replay.count("incidents") == replay.count("trips") == 0
    [run] = replay.query("SELECT invalid_reason, invalid_detail FROM runs ORDER BY id DESC LIMIT 1")
    assert run["invalid_reason"] == "inconsistent_counts"
    assert "so AL is not 1 + Σ" in run["invalid_detail"]
    for _, verdict in recorded.verdicts:
        assert verdict.reason == f"run {recorded.run_id} is invalid: inconsistent_counts"
    replay.server.behave(divide_positions=False)
    assert outcomes(replay.run()) == [Outcome.OK, Outcome.OK]


def counted_without_the_bonus(generation: Generation, *, detailed: bool) -> dict[str, object]:
    """As vLLM reported it up to 0.8.5: the accepted tokens alone."""
    document = _COUNTS(generation, detailed=detailed)
    return {**document, "mean_acceptance_length": document["mean_acceptance_length"] - 1.0}  # type: ignore[operator]


_COUNTS = Generation.counts


def test_vllm_0_9_another_definition_of_acceptance_length_opens_nothing_since_raw_counts_are_what_they_were(
    replay_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0.8.5 to 0.9 the logged AL rose by exactly 1.0: the bonus token was counted from then on."""
    replay = replay_on(Reported(version="0.8.5"))
    with monkeypatch.context() as before:
        before.setattr(Generation, "counts", counted_without_the_bonus)
        replay.baseline()
        for _ in range(10):
            replay.run(domain="math")
    replay.restart(version="0.9.0")
    recorded = [replay.run(), replay.run(domain="math")]
    assert [outcomes(one) for one in recorded] == [[Outcome.OK], [Outcome.OK]]
    assert replay.count("incidents") == 0
    with replay.database.transaction() as connection:
        [bump] = bumps.list_bumps(connection, ROUTE)
    assert "version 0.8.5 → 0.9.0" in bump["verdict"]["text"]
    assert re.search(
        r": all domains unchanged \(95 % interval \S+% to \S+% at the widest, of (coding|math)\); "
        r"against baselines 1, 2 of \S+ \(vllm-0\.8\.5-\w+, K 4\); nobody announced it; next: ",
        bump["verdict"]["summary"],
    )


def test_a_tool_that_counts_the_bonus_token_otherwise_is_told_from_drift(database: Database) -> None:
    """The same step of 1.0 where somebody else's counts, without the bonus token, came to be compared: stored runs."""
    story = Story(database)
    story.baseline(2.8, identity=replace(IDENTITY, version="0.9.0"))
    other: dict[str, Any] = {"identity": replace(IDENTITY, version="0.8.5")}
    story.run(1.8, **other)
    story.confirm(1.8, **other)
    [(incident_id, _)] = story.confirm(1.8, **other).transitions
    document = story.get_incident(incident_id)["events"][-1]
    assert first_cause(document) == ("engine_version", "strong")
    told = "every prompt moved by -1.00 tokens (spread 0.000): the bonus token is counted otherwise"
    assert told in sentence(document)
