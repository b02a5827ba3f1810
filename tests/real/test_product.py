"""`specwatch probe` and the replay behind it, against real servers: what it counts is what the server counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.figures import acceptance_length, aggregate, coverage, tokens_per_step
from monitor.core.records import Counts, Identity, Run, Sample
from monitor.probing.crosscheck import DISAGREEMENT_LIMIT_RATIO
from monitor.prompts.sets import bundled_directory
from tests.real.client import Counters, counters_after, read_counters
from tests.real.familiar import familiar_sets
from tests.real.product import METHODS, counted, documents, probed, replayed, specwatch
from tests.real.servers import DRAFT_TOKENS, MODELS
from tests.real.sources import Seen, add_to_table, run_of, seen_at_every_load
from tests.real.variants import graded_drafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.prompts.sets import PromptSet
    from tests.real.pool import ServerPool
    from tests.real.servers import RealServer
    from tests.real.tables import Tables

DOMAINS = sorted(path.stem for path in bundled_directory().glob("*.jsonl"))
SOURCES = "real vLLM: acceptance length by source and method, specwatch"
SIDE_BY_SIDE = "real vLLM: acceptance length of the same answers by every source, prompts one at a time"
PROMPTS_PER_DOMAIN = "8"
DRAFT_ON_A_MATCH = ("ngram", "suffix")
draft_server = pytest.mark.parametrize("speculative", ["draft"], indirect=True)


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[PromptSet]:
    return familiar_sets(tmp_path_factory.mktemp("prompts"))


@pytest.fixture
def without_flag(servers: ServerPool) -> RealServer:
    """A draft server that does not report counts per request, and has no room for the longest of our prompts."""
    flags = ("--per-request-spec-decode-metrics", "none", "--max-model-len", "2048")
    return servers.get("draft", dev_mode=True, flags=flags)


@draft_server
def test_the_counts_of_all_eleven_domains_are_those_of_the_servers_metrics(
    speculative: RealServer, tables: Tables
) -> None:
    url = speculative.base_url
    before = read_counters(url)
    document = probed(url, "--prompts", PROMPTS_PER_DOMAIN)
    counts = counted(document["samples"])
    assert counted_after(url, before, counts) == counts
    assert [domain["domain"] for domain in document["domains"]] == DOMAINS
    assert len(DOMAINS) == 11
    for domain in document["domains"]:
        valid = [s for s in document["samples"] if s["domain"] == domain["domain"] and s["invalid_reason"] is None]
        own = counted(valid)
        assert len(valid) == domain["prompts_valid"] >= 7
        assert (domain["steps"], domain["drafted"], domain["accepted"]) == (own.drafts, own.drafted, own.accepted)
        assert domain["completion_tokens"] == own.generated
        assert domain["acceptance_length"] == 1 + own.accepted / own.drafts
        assert domain["acceptance_rate"] == own.accepted / own.drafted
        assert domain["survival"] == pytest.approx([accepted / own.drafts for accepted in own.per_position])
        assert (domain["source"], domain["coverage"]) == ("request", 1.0)
        names = ("domain", "acceptance_length", "acceptance_length_prompt_mean", "acceptance_rate", "tokens_per_step")
        tables.add("real vLLM: specwatch probe of a draft model", **{name: domain[name] for name in names})


@draft_server
def test_the_table_shows_every_domain_and_what_was_running(speculative: RealServer, tables: Tables) -> None:
    result = specwatch("probe", speculative.base_url, "--prompts", "1", "--max-tokens", "32")
    tables.show("real vLLM: specwatch probe, the table of one prompt per domain", result.stdout)
    table, _, identity = result.stdout.partition("\n\nengine ")
    assert result.returncode == 0, result.stderr
    assert table.startswith("valid 1/1 · source request\n")
    assert [line.split()[0] for line in table.splitlines()[4:]] == DOMAINS
    said = " ".join(identity.split())
    assert said.startswith("vllm · version 0.32.0 · model tiny · root ")
    assert " · K 4 · fingerprint vllm-0.32.0-" in said


def test_a_method_that_nobody_told_is_known_by_the_servers_counters(
    speculative: RealServer, sets: list[PromptSet], tables: Tables
) -> None:
    (run,) = replayed(speculative.base_url, sets[:1], source="stream")
    figures = aggregate(run.domain, run.samples)
    shown = [w for w in run.warnings if "acceptance length" in w and "disagrees" not in w]
    tables.add(
        "real vLLM: a stream of a method that is not declared",
        kind=speculative.kind, acceptance_length=figures.acceptance_length, tokens_per_step=figures.tokens_per_step,
    )  # fmt: skip
    assert run.identity.method is None
    if speculative.kind in ("draft", "eagle"):
        assert figures.acceptance_length is not None
        assert shown == []
    else:
        assert figures.acceptance_length is None
        assert "of the decode steps: the stream shows tokens per step" in shown[0]


def test_a_request_says_what_the_counters_say_and_a_stream_as_much_as_it_can_see(
    speculative: RealServer, sets: list[PromptSet], tables: Tables
) -> None:
    url, method = speculative.base_url, METHODS[speculative.kind]
    before = read_counters(url)
    asked = replayed(url, sets, source="request")
    counts = counted(documents(asked))
    change = counted_after(url, before, counts)
    assert change == counts
    read = replayed(url, sets, source="stream", declared_identity=Identity(method=method))
    assert acceptance_length(pooled(asked)) == 1 + change.accepted / change.drafts
    assert [run.invalid_reason for run in asked + read] == [None] * 6
    compare = both_see_every_step if speculative.kind in ("draft", "eagle") else only_requests_see_drafts
    tables.add(SOURCES, **row(speculative.kind, asked, read, change))
    compare(asked, read, DRAFT_TOKENS[speculative.kind])


def test_each_source_is_right_or_says_that_it_is_not_whatever_the_load(
    speculative: RealServer, sets: list[PromptSet], tables: Tables
) -> None:
    every_source_holds(speculative, sets[0], tables)


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_each_source_is_right_of_a_worse_drafter_too(
    servers: ServerPool, sets: list[PromptSet], tables: Tables, noise: float
) -> None:
    every_source_holds(servers.get("draft", drafter=graded_drafter(noise)), sets[0], tables)


def test_suffix_decoding_learns_from_replays_and_forgets_them_after_others(
    servers: ServerPool, sets: list[PromptSet], tables: Tables
) -> None:
    """With a cache of past answers that holds one set of prompts and no two; by default it holds 10,000 answers."""
    tokens = DRAFT_TOKENS["suffix"]
    config = {"method": "suffix", "num_speculative_tokens": tokens, "suffix_decoding_max_cached_requests": 30}
    server = servers.get("suffix", flags=("--speculative-config", json.dumps(config)))
    runs = [run_of(server, asked, "request") for asked in (sets[0], sets[0], sets[1], sets[2], sets[0])]
    first, second, _, _, after_others = (run.acceptance_by_source["request"] for run in runs)
    tables.add(
        "real vLLM: suffix decoding of the same prompts again", first=first, second=second, after_others=after_others
    )
    assert second > 1.2 * first
    assert after_others < 1.1 * first
    assert all(any("learns from replayed" in warning for warning in run.warnings) for run in runs)


def test_counters_around_one_prompt_at_a_time_are_those_of_the_answers(
    speculative: RealServer, sets: list[PromptSet], tables: Tables
) -> None:
    """Of the same answers: two replays of a prompt differ by near ties."""
    url, method = speculative.base_url, METHODS[speculative.kind]
    runs = replayed(url, sets, source="counters", declared_identity=Identity(method=method))
    assert [run.invalid_reason for run in runs] == [None] * 3
    for run in runs:
        assert {(sample.source, sample.invalid_reason) for sample in run.samples if sample.valid} == {
            ("counters", None)
        }
        assert run.concurrency == 1
        lengths = run.acceptance_by_source
        assert lengths["counters"] == lengths["request"] == acceptance_length(pooled([run]))
        if "stream" in lengths:
            assert lengths["stream"] == pytest.approx(lengths["request"], rel=0.02)
        tables.add(SIDE_BY_SIDE, method=speculative.kind, domain=run.domain, **lengths)


def test_a_server_without_speculation_is_invalid_and_says_so(
    servers: ServerPool, sets: list[PromptSet], tables: Tables
) -> None:
    url = servers.get("plain").base_url
    runs = replayed(url, sets)
    assert [run.invalid_reason for run in runs] == ["no_speculation"] * 3
    tables.add(SOURCES, **row("plain", [], runs, None))
    result = specwatch("probe", url, "--domain", "math", "--prompts", "2")
    assert (result.returncode, result.stdout) == (13, "")
    assert "speculation is off; start the server with a drafter (vLLM: --speculative-config)" in result.stderr


def test_without_the_flag_the_stream_is_read_and_the_flag_is_named(without_flag: RealServer) -> None:
    document = probed(without_flag.base_url, "--domain", "math", "--domain", "coding", "--prompts", "4")
    assert [domain["source"] for domain in document["domains"]] == ["stream", "stream"]
    assert all(domain["acceptance_length"] > 1.5 for domain in document["domains"])
    assert any("--per-request-spec-decode-metrics summary" in warning for warning in document["warnings"])
    seen = document["identity"]
    assert (seen["method"], seen["drafter"], seen["k"]) == ("draft_model", str(MODELS / "tiny-draft"), 4)
    assert seen["declared"] == []


def test_without_the_flag_counts_per_request_cannot_be_insisted_on(without_flag: RealServer) -> None:
    result = specwatch("probe", without_flag.base_url, "--source", "request", "--domain", "math", "--prompts", "2")
    assert (result.returncode, result.stdout) == (13, "")
    assert "the answer has no counts per request; for exact counts start the server with" in result.stderr
    assert "--per-request-spec-decode-metrics summary" in result.stderr


def test_prompts_longer_than_the_model_allows_are_invalid_and_generate_nothing(without_flag: RealServer) -> None:
    url = without_flag.base_url
    before = read_counters(url)
    document = probed(url, "--domain", "rag", "--max-tokens", "16")
    (rag,) = document["domains"]
    assert set(rag["invalid_reasons"]) == {"context_too_long"}
    assert 0 < rag["prompts_valid"] < rag["prompts_total"]
    assert any("context_too_long" in warning and "use shorter prompts" in warning for warning in document["warnings"])
    generated = sum(sample["completion_tokens"] for sample in document["samples"])
    assert counters_after(url, before, generated).generated == generated


def test_a_model_that_is_not_served_is_told_with_those_that_are(without_flag: RealServer) -> None:
    result = specwatch("probe", without_flag.base_url, "--model", "other", "--domain", "math")
    assert result.returncode == 13
    assert "model 'other' is not served; served: tiny" in result.stderr


def test_an_ngram_server_that_shows_its_method_has_no_acceptance_length_in_its_stream(servers: ServerPool) -> None:
    url = servers.get("ngram", dev_mode=True).base_url
    document = probed(url, "--source", "stream", "--domain", "math", "--prompts", "4")
    (math,) = document["domains"]
    assert (document["identity"]["method"], document["identity"]["drafter"]) == ("ngram", None)
    assert (math["acceptance_length"], math["coverage"], math["steps"]) == (None, None, 0)
    assert math["tokens_per_step"] > 1
    assert any("not the same quantity as acceptance length" in warning for warning in document["warnings"])


def every_source_holds(server: RealServer, prompts: PromptSet, tables: Tables) -> None:
    """`request` is what a quiet server's counters say, and stays so under load, where `counters` are refused.

    That they are is what shows the load: the server's gauge swings from none to all on a machine that starves clients.
    """
    found = seen_at_every_load(server, prompts)
    alone = run_of(server, prompts, "stream") if server.kind in DRAFT_ON_A_MATCH else None
    add_to_table(tables, server, found, alone)
    quiet, *loaded = found
    assert quiet.counters == quiet.request
    for seen in found:
        assert seen.asked.invalid_reason is None
        stream_is_right_or_says_that_it_is_not(server, seen)
    for seen in loaded:
        assert seen.counters is None
        counters_are_refused(seen.counted)
        then, now = seen.of_the_same_outputs(quiet)
        assert now == pytest.approx(then, rel=0.01)
        assert seen.request == pytest.approx(quiet.request, rel=0.05)
    if alone is not None:
        assert aggregate(alone.domain, alone.samples).acceptance_length is None
        assert any("not the same quantity" in warning for warning in alone.warnings)
    if server.kind == "suffix":
        assert all(any("learns from replayed" in warning for warning in seen.asked.warnings) for seen in found)


def stream_is_right_or_says_that_it_is_not(server: RealServer, seen: Seen) -> None:
    """It has no acceptance length where not every step drafts, or where too many chunks are merged."""
    if server.kind in DRAFT_ON_A_MATCH:
        assert seen.stream is None
    elif seen.stream is not None:
        near = seen.stream == pytest.approx(seen.request, rel=DISAGREEMENT_LIMIT_RATIO)
        assert near or seen.stream_says_that_it_differs


def counters_are_refused(run: Run | None) -> None:
    assert run is not None
    assert run.invalid_reason == "contaminated"
    assert {sample.invalid_reason for sample in run.samples} == {"contaminated"}
    assert aggregate(run.domain, run.samples).acceptance_length is None
    assert "counters" not in run.acceptance_by_source


def both_see_every_step(asked: Sequence[Run], read: Sequence[Run], k: int) -> None:
    """Where every step drafts, a stream shows each of them as a chunk: all but the last, which may be cut.

    Of one turn it so has one step less, and lacks the tokens accepted in it, at most K. Samples with merged chunks,
    which a starved server makes, are left out, and are few.
    """
    pairs = [(one, other) for one, other in paired(asked, read) if len_of(other) == one.counts.steps + turns(one)]
    assert len(pairs) > sum(len(run.samples) for run in asked) / 2
    for request, stream in pairs:
        assert stream.output_hash == request.output_hash
        assert stream.counts.steps == request.counts.steps - turns(request)
        assert 0 <= request.counts.accepted - stream.counts.accepted <= k * turns(request)
        assert stream.counts.drafted == k * stream.counts.steps
        assert request.counts.decode_steps == request.counts.steps == stream.counts.decode_steps
    assert [run.warnings for run in read if any("the same quantity" in warning for warning in run.warnings)] == []


def only_requests_see_drafts(asked: Sequence[Run], read: Sequence[Run], k: int) -> None:
    """Where some steps have no draft, a stream shows tokens per step alone, and the product says so."""
    for run in read:
        figures = aggregate(run.domain, run.samples)
        assert (figures.acceptance_length, figures.acceptance_rate, figures.coverage) == (None, None, None)
        assert figures.tokens_per_step > 1
        assert any("which is not the same quantity as acceptance length" in warning for warning in run.warnings)
        assert any("learns from replayed" in warning for warning in run.warnings) == (run.identity.method == "suffix")
    assert pooled(asked).steps < pooled(asked).decode_steps
    assert 1 < tokens(asked) < acceptance_length(pooled(asked)) <= k + 1


def paired(asked: Sequence[Run], read: Sequence[Run]) -> list[tuple[Sample, Sample]]:
    """The samples of one prompt by both sources; those that are too short or too much merged left out."""
    pairs = [
        pair for one, other in zip(asked, read, strict=True) for pair in zip(one.samples, other.samples, strict=True)
    ]
    return [(one, other) for one, other in pairs if one.valid and other.valid]


def turns(sample: Sample) -> int:
    return len(sample.chunk_tokens)


def len_of(sample: Sample) -> int:
    """Chunks of all turns."""
    return sum(map(len, sample.chunk_tokens))


def pooled(runs: Sequence[Run]) -> Counts:
    """The counts of every sample, invalid ones among them: the server counted those too."""
    return sum((sample.counts for run in runs for sample in run.samples), Counts())


def tokens(runs: Sequence[Run]) -> float:
    """Tokens per step over every sample."""
    samples = [sample for run in runs for sample in run.samples]
    made = sum(sample.completion_tokens for sample in samples)
    return tokens_per_step(pooled(runs), made, sum(map(turns, samples))) or 0.0


def row(method: str, asked: Sequence[Run], read: Sequence[Run], change: Counters | None) -> dict[str, Any]:
    """Figures side by side; `merged` are chunks of the stream runs with more than K + 1 tokens."""
    k = DRAFT_TOKENS.get(method.split(",")[0], 0)
    chunks = [tokens for run in read for sample in run.samples for turn in sample.chunk_tokens for tokens in turn]
    return {
        "method": method,
        "K": k,
        "AL request": acceptance_length(pooled(asked)),
        "AL stream": acceptance_length(pooled(read)) if k else None,
        "AL counters": None if change is None else 1 + change.accepted / change.drafts,
        "tok/step request": tokens(asked) if asked else None,
        "tok/step stream": tokens(read) if read else None,
        "coverage": coverage(pooled(asked)),
        "chunks": len(chunks) or None,
        "merged": sum(tokens > k + 1 for tokens in chunks) if chunks else None,
    }


def counted_after(url: str, before: Counters, counts: Counters) -> Counters:
    return counters_after(url, before, counts.generated)
