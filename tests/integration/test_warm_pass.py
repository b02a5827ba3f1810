"""A run with a cold and a warm pass, from a simulated server's prefix cache to whoever shows it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from replicas import lookups, run_of

from monitor.cli import cli
from monitor.core.figures import aggregate
from monitor.core.records import Reason, Run, Sampling
from monitor.prompts.sets import Prompt, PromptSet, content_hash
from monitor.service.jobs import ProbeJob
from monitor.service.probes import run_probe
from monitor.sim.behaviour import Fault, FaultKind
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store.runs import store_run
from tests.factories import make_route, make_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.store.database import Database

PROMPTS = 16
WORSE = Drafter(cached_drop_ratio=0.2, run_noise_ratio=0.01)
"""A drafter that loses about a fifth of its acceptance length behind a cached prompt."""


def long_prompts() -> PromptSet:
    """Prompts of several blocks of cache."""
    prompts = tuple(Prompt(f"q{n}", "coding", "", (f"Prompt {n}. " * 40,)) for n in range(PROMPTS))
    return PromptSet("coding", prompts, content_hash(prompts))


@contextmanager
def serving(drafter: Drafter = WORSE, **config: object) -> Iterator[tuple[SimulatedServer, str]]:
    settings = {"drafter": drafter, "prompt_tokens_details": True, **config}
    server = SimulatedServer(ServerConfig(**settings))  # type: ignore[arg-type]
    with server.run_in_thread() as url:
        yield server, url


def specwatch(database: Database, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--database-url", database.conninfo(), *map(str, arguments)])


async def warmed(url: str, **options: object) -> Run:
    return await run_of(url, long_prompts(), sampling=Sampling(max_tokens=120), warm=True, **options)


def said(run: Run) -> list[str]:
    """Its warnings, without those of a busy machine."""
    return [warning for warning in run.warnings if "this machine was late" not in warning]


class TestReplay:
    async def test_the_cold_pass_is_the_run_and_the_warm_one_stands_beside_it(self):
        with serving() as (_, url):
            alone = await run_of(url, long_prompts(), sampling=Sampling(max_tokens=120))
        with serving() as (_, url):
            run = await warmed(url)
        assert run.warm is not None
        warm = run.warm.as_dict()
        assert (run.invalid_reason, warm["invalid_reason"], said(run)) == (None, None, [])
        assert [sample.counts for sample in run.samples] == [sample.counts for sample in alone.samples]
        assert (run.sampling, run.sampling.cache) == (alone.sampling, "cold")
        assert warm["source"] == "request"
        assert warm["change"] == pytest.approx(-0.18, abs=0.05)
        assert warm["change_interval"][1] < -0.05
        assert warm["cold_cached_ratio"] == 0
        assert warm["cached_ratio"] > 0.8
        assert warm["prompts_valid"] == PROMPTS
        assert warm["ttft_seconds"]["p50"] is not None

    async def test_a_drafter_that_does_not_mind_the_cache_shows_no_change(self):
        with serving(Drafter(run_noise_ratio=0.01)) as (_, url):
            run = await warmed(url)
        assert run.warm is not None
        low, high = run.warm.as_dict()["change_interval"]
        assert low < 0 < high

    @pytest.mark.parametrize("source", ["request", "stream", "counters"])
    async def test_both_passes_count_by_one_source_and_the_second_begins_where_the_first_ended(
        self, monkeypatch, source
    ):
        asked = lookups(monkeypatch)
        with serving() as (_, url):
            run = await warmed(url, source=source)
        assert run.warm is not None
        warm = run.warm.as_dict()
        assert (aggregate("coding", run.samples).source, warm["source"], warm["valid"]) == (source, source, True)
        assert asked.count("/metrics") == (1 + 2 * PROMPTS if source == "counters" else 3)

    async def test_a_server_without_prefix_cache_has_no_warm_pass(self):
        with serving() as (_, url):
            short = await run_of(url, warm=True)  # prompts shorter than a block
        assert short.warm is not None
        assert short.warm.invalid_reason == "not_cached"
        assert short.invalid_reason is None

    async def test_a_server_that_does_not_tell_what_it_cached_is_said_to(self):
        with serving(prompt_tokens_details=False) as (_, url):
            run = await warmed(url)
        assert run.warm is not None
        assert (run.warm.invalid_reason, run.warm.cached_ratio) == (None, None)
        (warning,) = said(run)
        assert warning.startswith("the server does not tell how much of a prompt it had cached")

    async def test_a_drafter_that_learns_is_not_asked_again(self):
        with serving(Drafter(method="suffix"), dev_mode=True) as (server, url):
            run = await warmed(url)
            answers = sum(sum(engine.finished.values()) for engine in server.engines)
        assert run.warm is not None
        assert (run.invalid_reason, run.warm.invalid_reason) == (None, "learns_from_replay")
        assert run.warm.invalid_detail == (
            f"{url}: suffix drafts from answers it has seen, so that a second pass shows them and not the cache; use "
            "cache: cold"
        )
        assert answers == PROMPTS

    async def test_after_an_invalid_cold_pass_nothing_is_asked_again(self):
        with serving() as (server, url):
            server.inject(Fault(FaultKind.ERROR_IN_STREAM, times=None))
            run = await warmed(url)
        assert run.warm is not None
        assert (run.invalid_reason, run.warm.invalid_reason) == ("error_in_stream", "cold_pass_invalid")

    async def test_a_server_that_became_another_before_the_warm_pass_makes_that_invalid(self):
        with serving() as (server, url):
            done: list[object] = []

            def swap(sample: object) -> None:
                done.append(sample)
                if len(done) == PROMPTS:
                    server.swap_drafter(Drafter(name="models/other"))

            run = await warmed(url, on_sample=swap, concurrency=1)
        assert run.warm is not None
        assert (run.invalid_reason, run.warm.invalid_reason) == (None, "identity_changed_during_run")
        assert "changed before the warm pass: fingerprint " in (run.warm.invalid_detail or "")


async def test_a_route_with_both_passes_is_measured_so_and_stays_comparable_with_cold_runs():
    with serving() as (_, url):
        runs = {}
        for cache in ("cold", "both"):
            route = make_route(replicas=[url], cache=cache, model=None)
            run = await run_probe(route, ProbeJob("k", route.name, "coding", url, Reason.SCHEDULED), long_prompts())
            assert isinstance(run, Run)
            runs[cache] = run
    assert runs["cold"].warm is None
    assert runs["both"].warm is not None
    assert runs["both"].warm.invalid_reason is None
    assert runs["both"].sampling == runs["cold"].sampling


class TestShown:
    @pytest.fixture
    async def stored(self, database: Database) -> Database:
        """A run with both passes, and one with only a cold one."""
        with serving() as (_, url):
            run = await warmed(url, route="chat")
        with database.transaction() as connection:
            assert store_run(connection, "both", run) == 1
            assert store_run(connection, "cold", make_run(2.5, route="chat", domain="math")) == 2
        return database

    async def test_run_show_has_the_warm_pass_beside_the_cold_one(self, stored: Database):
        document = json.loads(specwatch(stored, "run", "show", 1, "--format", "json").stdout)
        text = " ".join(specwatch(stored, "run", "show", 1).stdout.split())
        warm = document["warm"]
        assert f"warm AL {warm['acceptance_length']:.2f} (prompt mean " in text
        assert f" by request, {warm['change']:+.1%} from the cold pass (95 % interval " in text
        assert f"over {PROMPTS} prompts, prompt tokens cached 0.0%→{warm['cached_ratio']:.1%}, TTFT " in text
        assert json.loads(specwatch(stored, "run", "show", 2, "--format", "json").stdout)["warm"] is None
        assert " warm " not in specwatch(stored, "run", "show", 2).stdout

    async def test_history_by_run_and_its_files_have_it(self, stored: Database, tmp_path):
        rows = json.loads(specwatch(stored, "history", "chat", "--format", "json").stdout)
        assert {row["domain"]: row["warm"] is None for row in rows} == {"coding": False, "math": True}
        assert (
            "warm"
            not in json.loads(specwatch(stored, "history", "chat", "--group-by", "day", "--format", "json").stdout)[0]
        )
        assert specwatch(stored, "export", "chat", tmp_path / "out.parquet").exit_code == 0
        exported = {
            row["domain"]: row["warm"] for row in pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
        }
        (expected,) = (row["warm"] for row in rows if row["domain"] == "coding")
        assert (json.loads(exported["coding"]), exported["math"]) == (expected, None)


class TestProbe:
    def test_it_shows_both_passes_of_each_domain(self):
        with serving() as (_, url):
            result = CliRunner().invoke(cli, ["probe", url, "--cache", "both", "--domain", "coding", "--domain", "rag"])
            document = json.loads(
                CliRunner().invoke(cli, ["probe", url, "--cache", "both", "--domain", "rag", "--format", "json"]).stdout
            )
        assert result.exit_code == 0, result.output
        table = result.stdout[result.stdout.index("AL cold→warm") - 80 :]
        assert "change" in table
        assert max(map(len, result.stdout.splitlines())) <= 80
        (domain,) = document["domains"]
        assert (domain["warm"]["valid"], document["sampling"]["cache"]) == (True, "cold")
        assert domain["warm"]["change"] < -0.1

    def test_of_a_warm_pass_that_was_none_it_says_why_and_shows_no_figure(self, tmp_path):
        prompt = {"question_id": "a", "category": "mine", "sub_category": "x", "turns": ["Hi?"]}  # less than a block
        (tmp_path / "mine.jsonl").write_text(json.dumps(prompt) + "\n")
        with serving() as (_, url):
            result = CliRunner().invoke(cli, ["probe", url, "--cache", "both", "--prompts-dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "mine: the warm pass is invalid: not_cached: " in " ".join(result.stderr.split())
        assert "cold→warm" not in result.stdout

    def test_a_drafter_declared_to_learn_is_refused(self):
        result = CliRunner().invoke(cli, ["probe", "http://127.0.0.1:9", "--cache", "both", "--method", "suffix"])
        assert result.exit_code == 2
        assert "--method suffix drafts from answers it has seen" in result.output
        assert "use --cache cold" in result.output
