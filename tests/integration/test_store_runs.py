"""Runs are stored once and come back whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from monitor.core.contexts import by_context
from monitor.core.figures import aggregate
from monitor.core.judge import Comparability
from monitor.core.records import Counts, Identity, Reason, Regime, Run, Sample, Sampling, Source
from monitor.core.warm import warmed
from monitor.store import identities, runs
from monitor.store.schema import identities as identities_table
from monitor.store.schema import runs as runs_table
from monitor.store.schema import samples
from tests.factories import DOMAIN, IDENTITY, REPLICA, ROUTE, START, make_run, make_sample

if TYPE_CHECKING:
    from sqlalchemy import Connection


COLD = [make_sample(f"q{n}", 2.4) for n in range(3)]
WARM = warmed(DOMAIN, COLD, [replace(sample, cached_prompt_tokens=32) for sample in COLD], None, REPLICA)


def full_run() -> Run:
    """A run with a value in every field that there is."""
    chunks = {"chunk_tokens": ((1, 3), (1, 2, 2)), "chunk_seconds": ((0.05, 0.06), (0.041, 0.052, 0.0635))}
    valid = make_sample("a", 2.4, cached_prompt_tokens=16, prompt_tokens=None, **chunks)
    blind = replace(make_sample("b"), counts=Counts(5, None, 10, (0, 0, 5), 6), k=None, ttft_seconds=None)
    broken = Sample("c", invalid_reason="stream_cut", invalid_detail="after 12 tokens: connection reset")
    return make_run(
        replica="http://vllm-1:8000",
        concurrency=8,
        sampling=Sampling(temperature=0.5, seed=7, extra_body=(("priority", 10),)),
        reason=Reason.BUMP,
        seconds=41.5,
        samples=(valid, blind, broken),
        regime=Regime(0, 0, 3, 1, 0.25, 2, 1_772_000_000.0),
        warnings=("the server was restarted during the run",),
        acceptance_by_source={"request": 2.5, "stream": 2.4},
        warm=WARM,
    )


def stored(connection: Connection, run: Run, key: str = "k", trip_id: int | None = None) -> int:
    run_id = runs.store_run(connection, key, run, trip_id)
    assert run_id is not None
    return run_id


def test_a_stored_run_reads_back_as_the_document_of_what_was_measured(connection: Connection) -> None:
    run = full_run()
    run_id = stored(connection, run)
    assert runs.get_run(connection, run_id) == {
        "id": run_id,
        "route": ROUTE,
        "replica": "http://vllm-1:8000",
        "reason": "bump",
        "started_at": "2026-03-02T10:00:00+00:00",
        "finished_at": "2026-03-02T10:00:41.500000+00:00",
        "valid": True,
        "invalid_reason": None,
        "invalid_detail": None,
        "identity_id": connection.execute(select(identities_table.c.id)).scalar_one(),
        "prompt_set_hash": "set-1",
        "concurrency": 8,
        "sampling": run.sampling.as_dict(),
        "regime": {
            "running_before": 0,
            "waiting_before": 0,
            "running_max": 3,
            "waiting_max": 1,
            "kv_cache_usage_max": 0.25,
            "preemptions": 2,
            "server_started_at": 1_772_000_000.0,
        },
        "warnings": ["the server was restarted during the run"],
        "acceptance_by_source": {"request": 2.5, "stream": 2.4},
        "warm": WARM.as_dict(),
        **aggregate(DOMAIN, run.samples).as_dict(),
        "identity": IDENTITY.as_dict(),
        "by_context": by_context(run.samples),
        "samples": [sample.as_dict() for sample in run.samples],
        "samples_removed": False,
    }


def test_the_aggregate_columns_are_the_figures_of_the_samples(connection: Connection) -> None:
    run = make_run([2.0, 2.5, 3.0])
    stored(connection, run)
    row = connection.execute(select(runs_table)).one()
    figures = aggregate(DOMAIN, run.samples)
    assert (row.acceptance_length, row.acceptance_length_prompt_mean) == (2.5, 2.5)
    assert (row.steps, row.drafted, row.accepted, row.decode_steps) == (3000, 9000, 4500, 3000)
    assert (row.completion_tokens, row.requests, row.prompts_valid, row.prompts_total) == (7503, 3, 3, 3)
    assert (row.source, row.k, row.acceptance_rate) == ("request", 3, 0.5)
    assert row.survival == list(figures.survival) == pytest.approx([1.0, 0.5, 0.0])
    assert (row.ttft_seconds_p50, row.tokens_per_second_p95) == pytest.approx((0.05, 295.0))


def test_a_key_stores_once_whatever_its_second_run_measured(connection: Connection) -> None:
    stored(connection, make_run(2.4))
    assert runs.store_run(connection, "k", make_run(1.2, prompts=5)) is None
    assert len(runs.list_runs(connection)) == 1
    assert len(connection.execute(select(samples)).all()) == 24


def test_an_invalid_run_keeps_its_reason_and_samples_but_has_no_figures(connection: Connection) -> None:
    document = runs.get_run(connection, stored(connection, make_run(2.4, prompts=3, invalid_reason="busy")))
    assert document is not None
    assert (document["valid"], document["invalid_reason"], document["invalid_detail"]) == (
        False,
        "busy",
        "all prompts: busy",
    )
    assert (document["acceptance_length"], document["source"], document["survival"]) == (None, None, [])
    assert document["invalid_reasons"] == {"busy": 3}
    assert [sample["steps"] for sample in document["samples"]] == [1000] * 3


def test_a_run_without_samples_is_stored(connection: Connection) -> None:
    run = make_run(samples=(), identity=Identity(), invalid_reason="unreachable")
    document = runs.get_run(connection, stored(connection, run))
    assert document is not None
    assert (document["samples"], document["prompts_total"]) == ([], 0)


def test_a_run_that_is_not_there_is_none(connection: Connection) -> None:
    assert runs.get_run(connection, 1) is None


def test_times_read_back_in_utc_wherever_the_server_lives(connection: Connection) -> None:
    assert connection.exec_driver_sql("SHOW TimeZone").scalar_one() == "UTC"


def test_runs_are_listed_newest_first_and_by_what_is_asked(connection: Connection) -> None:
    first = stored(connection, make_run(), "a")
    second = stored(connection, make_run(domain="math", invalid_reason="busy"), "b")
    third = stored(connection, make_run(route="batch"), "c")

    def ids(**asked: object) -> list[int]:
        return [run["id"] for run in runs.list_runs(connection, **asked)]  # type: ignore[arg-type]

    assert ids() == [third, second, first]
    assert ids(limit=1) == [third]
    assert ids(route=ROUTE) == [second, first]
    assert ids(domain="math") == [second]
    assert ids(route=ROUTE, valid_only=True) == [first]
    assert runs.domains_of(connection, ROUTE) == [DOMAIN]


def test_the_same_identity_is_one_row(connection: Connection) -> None:
    one = identities.store_identity(connection, IDENTITY, START)
    assert identities.store_identity(connection, replace(IDENTITY), START + timedelta(days=1)) == one
    assert identities.store_identity(connection, replace(IDENTITY, k=5), START) != one


def test_the_last_identity_of_a_replica_is_that_of_its_latest_run_that_measured(connection: Connection) -> None:
    assert identities.last_identity(connection, ROUTE, REPLICA) is None
    stored(connection, make_run(), "a")
    newer = replace(IDENTITY, version="0.30.0")
    stored(connection, make_run(identity=newer, domain="math"), "b")
    stored(connection, make_run(identity=Identity(engine="vllm"), invalid_reason="unreachable"), "c")
    stored(connection, make_run(replica="http://vllm-1:8000"), "d")
    stored(connection, make_run(route="batch"), "e")
    found = identities.last_identity(connection, ROUTE, REPLICA)
    assert found == (identities.store_identity(connection, newer, START), newer)


def test_what_the_latest_run_could_not_see_of_the_identity_is_remembered_from_before(connection: Connection) -> None:
    stored(connection, make_run(), "a")
    stored(connection, make_run(identity=replace(IDENTITY, version="0.30.0")), "b")
    blind = replace(IDENTITY, version=None, root="org/moved")
    stored(connection, make_run(identity=blind), "c")
    found = identities.last_identity(connection, ROUTE, REPLICA)
    assert found is not None
    assert found[1] == replace(IDENTITY, version="0.30.0", root="org/moved")


def test_a_bump_reads_back_with_both_values(connection: Connection) -> None:
    before = identities.store_identity(connection, IDENTITY, START)
    after = identities.store_identity(connection, replace(IDENTITY, k=5), START)
    run_id = stored(connection, make_run())
    bump_id = identities.store_bump(connection, ROUTE, REPLICA, before, after, {"k": (3, 5)}, START, run_id)
    expected = {
        "id": bump_id,
        "route": ROUTE,
        "replica": REPLICA,
        "noticed_at": "2026-03-02T10:00:00+00:00",
        "changes": {"k": [3, 5]},
    }
    assert identities.last_bump(connection, ROUTE) == expected
    assert identities.last_bump(connection, "batch") is None


def test_a_stored_run_is_judged_by_the_raw_counts_of_its_valid_samples(connection: Connection) -> None:
    run = make_run(samples=(make_sample("a", 2.4), make_sample("b", 1.5), Sample("c", invalid_reason="http_500")))
    found = runs.candidate(connection, stored(connection, run), "acceptance_length")
    assert found.values == {"a": 2.4, "b": 1.5}
    assert found.comparability == Comparability("set-1", "request", 3, 4, Sampling().as_dict())
    assert found.invalid_reason is None


@pytest.mark.parametrize("metric", ["acceptance_length", "tokens_per_step"])
def test_a_run_is_judged_alike_by_samples_at_hand_and_by_those_read_back(connection: Connection, metric: str) -> None:
    run = make_run(samples=(make_sample("a", 2.4), make_sample("b", 1.7), Sample("c", invalid_reason="http_500")))
    run_id = stored(connection, run)
    at_hand = runs.candidate(connection, run_id, metric, run.samples)
    assert at_hand == runs.candidate(connection, run_id, metric)
    assert list(at_hand.values) == ["a", "b"]


def test_a_run_that_measured_nothing_is_comparable_with_none(connection: Connection) -> None:
    run_id = stored(connection, make_run(invalid_reason="busy"))
    found = runs.candidate(connection, run_id, "tokens_per_step")
    assert (found.values, found.comparability.source, found.invalid_reason) == ({}, "none", "busy")


@pytest.mark.parametrize("source", list(Source))
def test_the_source_of_a_run_is_that_of_its_valid_samples(source: Source) -> None:
    assert runs.source_of(make_run(source=source)) == source.value
    assert runs.source_of(make_run(source=source, invalid_reason="busy")) == "none"
