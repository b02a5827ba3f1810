"""Figures over time: what is pooled, what never is, where days begin, and by which index they are read."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.core.judge import Line, judge_run
from monitor.core.records import Counts, Sampling, Source
from monitor.store import approvals, baselines, identities, incident_events, incidents, runs
from monitor.store.contexts import history_by_context
from monitor.store.history import history, history_statement
from monitor.store.verdicts import store_verdict
from tests.factories import IDENTITY, REPLICA, ROUTE, START, Lengths, make_run, make_sample
from tests.many_runs import store_many_runs

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from monitor.store.database import Database

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def stored(connection: Connection, lengths: Lengths = 2.4, at: datetime = START, **changes: Any) -> int:
    key = f"run {len(runs.list_runs(connection, limit=1000))}"
    run_id = runs.store_run(connection, key, make_run(lengths, started_at=at, **changes))
    assert run_id is not None
    return run_id


def shown(connection: Connection, *keys: str, **asked: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in history(connection, ROUTE, **asked)]


def test_by_run_each_run_is_a_row_with_its_own_figures(connection: Connection) -> None:
    first = stored(connection, [2.0, 3.0])
    second = stored(connection, 1.5, START + HOUR)
    one, other = history(connection, ROUTE)
    assert one == {
        "bucket": first,
        "group_by": "run",
        "domain": "coding",
        "source": "request",
        "k": 3,
        "method": None,
        "drafter": "org/drafter",
        "prompt_set_hash": "set-1",
        "concurrency": 4,
        "sampling": Sampling().as_dict(),
        "first_at": "2026-03-02T10:00:00+00:00",
        "last_at": "2026-03-02T10:00:00+00:00",
        "identity_id": identities.store_identity(connection, IDENTITY, START),
        "identity_ids": [identities.store_identity(connection, IDENTITY, START)],
        "runs_valid": 1,
        "runs_total": 1,
        "acceptance_length": 2.5,
        "acceptance_length_prompt_mean": 2.5,
        "acceptance_rate": 0.5,
        "tokens_per_step": 2.5,
        "coverage": 1.0,
        "ttft_seconds_p50": 0.05,
        "tokens_per_second_p50": 250.0,
        "runs_judged": 0,
        "metric": None,
        "baseline_id": None,
        "value": None,
        "baseline_value": None,
        "change": None,
        "warm": None,
        "events": [],
    }
    assert (other["bucket"], other["acceptance_length"]) == (second, 1.5)


def test_within_a_bucket_counts_are_weighed_by_tokens_and_prompt_means_by_runs(connection: Connection) -> None:
    long = make_sample("a", counts=Counts(3000, 9000, 3000, (0, 3000, 0, 0), 3000), completion_tokens=6001)
    short = make_sample("a", counts=Counts(1000, 3000, 3000, (0, 0, 0, 1000), 1000), completion_tokens=4001)
    stored(connection, samples=(long,))
    stored(connection, samples=(short,), at=START + HOUR)
    [row] = history(connection, ROUTE, group_by="day")
    assert row["acceptance_length"] == 1 + 6000 / 4000
    assert row["acceptance_length_prompt_mean"] == (2.0 + 4.0) / 2
    assert row["acceptance_rate"] == 6000 / 12000
    assert row["tokens_per_step"] == 10_000 / 4000
    assert (row["first_at"], row["last_at"]) == ("2026-03-02T10:00:00+00:00", "2026-03-02T11:00:00+00:00")


@pytest.mark.parametrize(
    ("group_by", "buckets"),
    [
        ("hour", ["2026-03-02T10:00:00+00:00", "2026-03-02T11:00:00+00:00", "2026-03-04T10:00:00+00:00"]),
        ("day", ["2026-03-02T00:00:00+00:00", "2026-03-04T00:00:00+00:00"]),
        ("week", ["2026-03-02T00:00:00+00:00"]),
    ],
)
def test_runs_are_gathered_by_the_hour_the_day_or_the_week_from_monday(
    connection: Connection, group_by: str, buckets: list[str]
) -> None:
    for at in (START, START + HOUR / 2, START + HOUR, START + 2 * DAY):
        stored(connection, at=at)
    assert shown(connection, "bucket", group_by=group_by) == [(bucket,) for bucket in buckets]
    assert sum(total for (total,) in shown(connection, "runs_total", group_by=group_by)) == 4


def test_by_identity_runs_are_gathered_under_what_was_running(connection: Connection) -> None:
    stored(connection, 2.4)
    stored(connection, 2.0, START + HOUR, identity=replace(IDENTITY, drafter="org/other"))
    stored(connection, 2.6, START + 2 * HOUR)
    before = identities.store_identity(connection, IDENTITY, START)
    after = identities.store_identity(connection, replace(IDENTITY, drafter="org/other"), START)
    assert shown(connection, "bucket", "acceptance_length", "runs_total", group_by="identity") == [
        (before, 2.5, 2),
        (after, 2.0, 1),
    ]


def test_days_begin_at_midnight_where_the_reader_is(connection: Connection) -> None:
    late_evening = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)
    stored(connection, at=late_evening)
    stored(connection, at=late_evening + HOUR)
    assert shown(connection, "bucket", "runs_total", group_by="day", zone="UTC") == [
        ("2026-03-02T00:00:00+00:00", 1),
        ("2026-03-03T00:00:00+00:00", 1),
    ]
    assert shown(connection, "bucket", "runs_total", group_by="day", zone="Europe/Berlin") == [
        ("2026-03-02T23:00:00+00:00", 2)
    ]


def test_a_day_of_23_hours_is_one_day(connection: Connection) -> None:
    """On 29 March 2026 clocks in Berlin go from 2:00 to 3:00, and the offset from UTC from one hour to two."""
    for at in ("2026-03-28T22:59", "2026-03-28T23:00", "2026-03-29T21:59", "2026-03-29T22:00"):
        stored(connection, at=datetime.fromisoformat(f"{at}+00:00"))
    assert shown(connection, "bucket", "runs_total", group_by="day", zone="Europe/Berlin") == [
        ("2026-03-27T23:00:00+00:00", 1),
        ("2026-03-28T23:00:00+00:00", 2),
        ("2026-03-29T22:00:00+00:00", 1),
    ]


def test_weeks_begin_on_monday_where_the_reader_is(connection: Connection) -> None:
    stored(connection, at=datetime(2026, 3, 1, 16, 0, tzinfo=UTC))
    assert shown(connection, "bucket", group_by="week", zone="Asia/Tokyo") == [("2026-03-01T15:00:00+00:00",)]
    assert shown(connection, "bucket", group_by="week", zone="UTC") == [("2026-02-23T00:00:00+00:00",)]


def test_figures_of_different_sources_or_k_are_never_pooled(connection: Connection) -> None:
    stored(connection, 2.4)
    stored(connection, 2.0, START + HOUR, source=Source.STREAM)
    stored(connection, 3.6, START + 2 * HOUR, k=5)
    assert shown(connection, "source", "k", "acceptance_length", "runs_total", group_by="week") == [
        ("request", 3, 2.4, 1),
        ("stream", 3, 2.0, 1),
        ("request", 5, 3.6, 1),
    ]


NOT_COMPARABLE: dict[str, dict[str, Any]] = {
    "prompt_set_hash": {"prompt_set_hash": "set-2"},
    "concurrency": {"concurrency": 16},
    "sampling": {"sampling": Sampling(temperature=0.7)},
    "cache pass": {"sampling": Sampling(cache="warm")},
    "method": {"identity": replace(IDENTITY, method="eagle")},
    "drafter": {"identity": replace(IDENTITY, drafter="org/other")},
}


@pytest.mark.parametrize("changes", NOT_COMPARABLE.values(), ids=NOT_COMPARABLE)
def test_runs_that_are_not_comparable_are_never_pooled(connection: Connection, changes: dict[str, Any]) -> None:
    stored(connection, 2.4)
    stored(connection, 2.0, START + HOUR, **changes)
    stored(connection, 2.6, START + 2 * HOUR)
    usual, other = history(connection, ROUTE, group_by="week")
    assert (usual["acceptance_length"], usual["runs_total"]) == (2.5, 2)
    assert (other["acceptance_length"], other["runs_total"]) == (2.0, 1)
    names = ("method", "drafter", "prompt_set_hash", "concurrency", "sampling")
    assert len({name for name in names if usual[name] != other[name]}) == 1
    by_context = history_by_context(connection, ROUTE, group_by="week")
    assert [(row["acceptance_length"], row["runs"]) for row in by_context] == [(2.5, 2), (2.0, 1)]
    assert [{name: row[name] for name in names} for row in by_context] == [
        {name: row[name] for name in names} for row in (usual, other)
    ]


def test_an_engine_of_another_version_is_pooled_with_the_one_before(connection: Connection) -> None:
    stored(connection, 2.4)
    stored(connection, 2.6, START + HOUR, identity=replace(IDENTITY, version="0.30.0"))
    assert shown(connection, "acceptance_length", "identity_id", group_by="day") == [(2.5, None)]


def test_a_row_names_every_identity_that_its_valid_runs_have(connection: Connection) -> None:
    newer, moved = replace(IDENTITY, version="0.30.0"), replace(IDENTITY, drafter="org/other")
    for hours, identity in ((0, newer), (1, IDENTITY), (2, moved), (24, newer)):
        stored(connection, at=START + hours * HOUR, identity=identity)
    stored(connection, at=START + 25 * HOUR, identity=IDENTITY, invalid_reason="busy")
    stored(connection, at=START + HOUR, identity=moved, domain="math")
    first, second, third = (identities.store_identity(connection, one, START) for one in (newer, IDENTITY, moved))
    assert shown(connection, "domain", "drafter", "identity_ids", group_by="day") == [
        ("coding", "org/drafter", sorted([first, second])),
        ("math", "org/other", [third]),
        ("coding", "org/other", [third]),
        ("coding", "org/drafter", [first]),
        ("coding", "org/drafter", []),
    ]
    assert shown(connection, "identity_ids", domain="math") == [([third],)]
    by_context = history_by_context(connection, ROUTE, group_by="day", domain="coding")
    assert [row["identity_ids"] for row in by_context] == [sorted([first, second]), [third], [first]]


def test_a_source_that_sees_only_steps_with_drafts_claims_no_coverage(connection: Connection) -> None:
    stored(connection, source=Source.STREAM)
    assert shown(connection, "coverage", group_by="day") == [(None,)]


def test_domains_are_never_pooled(connection: Connection) -> None:
    stored(connection, 2.4)
    stored(connection, 2.0, domain="math")
    assert shown(connection, "domain", "acceptance_length", group_by="day") == [("coding", 2.4), ("math", 2.0)]
    assert shown(connection, "domain", domain="math") == [("math",)]


def test_invalid_runs_are_counted_but_not_pooled(connection: Connection) -> None:
    stored(connection, 2.4)
    half = [make_sample("a", 1.0), make_sample("b", invalid_reason="http_500")]
    stored(connection, samples=tuple(half), invalid_reason="too_few_prompts", at=START + HOUR)
    stored(connection, invalid_reason="busy", at=START + 2 * HOUR)
    pooled, silent = history(connection, ROUTE, group_by="day")
    assert (pooled["runs_valid"], pooled["runs_total"], pooled["acceptance_length"]) == (1, 2, 2.4)
    assert (pooled["acceptance_length_prompt_mean"], pooled["tokens_per_step"]) == pytest.approx((2.4, 2.4))
    assert (silent["source"], silent["runs_valid"], silent["runs_total"]) == (None, 0, 1)
    assert silent["acceptance_length"] is None
    assert silent["ttft_seconds_p50"] is None


def test_runs_that_could_not_see_drafted_tokens_do_not_flatter_the_acceptance_rate(connection: Connection) -> None:
    blind = make_sample("a", counts=Counts(1000, None, 3000, (0, 0, 0, 1000), 1000))
    stored(connection, samples=(blind,))
    assert shown(connection, "acceptance_rate", group_by="day") == [(None,)]
    stored(connection, samples=(make_sample("a", 1.3),), at=START + HOUR)
    assert shown(connection, "acceptance_rate", group_by="day") == [(pytest.approx(0.1),)]


def test_since_counts_in_and_until_does_not(connection: Connection) -> None:
    for hours in range(4):
        stored(connection, at=START + hours * HOUR)
    rows = history(connection, ROUTE, since=START + HOUR, until=START + 3 * HOUR)
    assert [row["first_at"] for row in rows] == ["2026-03-02T11:00:00+00:00", "2026-03-02T12:00:00+00:00"]


def test_a_route_without_runs_has_an_empty_history(connection: Connection) -> None:
    stored(connection, route="batch")
    assert history(connection, ROUTE, group_by="day") == []


LINE = Line("acceptance_length", 0.15)


def judged(connection: Connection, lengths: Lengths, baseline_id: int, at: datetime, **changes: Any) -> int:
    """A run, judged by two rules of which one saw nothing to judge."""
    run_id = stored(connection, lengths, at, **changes)
    candidate = runs.candidate(connection, run_id, LINE.metric)
    verdict = judge_run(candidate, baselines.reference_by_id(connection, baseline_id, LINE.metric), LINE)
    store_verdict(connection, run_id, "drop", verdict, at)
    store_verdict(connection, run_id, "other", judge_run(candidate, None, LINE), at)
    return run_id


def test_a_run_that_was_judged_shows_its_baseline_and_the_change_from_it(connection: Connection) -> None:
    baseline_id = baselines.create_baseline(connection, [stored(connection, [2.0, 3.0] * 12)], "ann", START)
    judged(connection, [1.6, 2.4] * 12, baseline_id, START + HOUR)
    names = ("runs_judged", "metric", "baseline_id", "value", "baseline_value", "change")
    before, now = shown(connection, *names)
    assert before == (0, None, None, None, None, None)
    assert now[:3] == (1, "acceptance_length", baseline_id)
    assert now[3:] == pytest.approx((0.8 * math.sqrt(6), math.sqrt(6), -0.2))


def test_of_several_verdicts_on_a_run_alone_history_keeps_the_largest_fall(connection: Connection) -> None:
    high, low = (
        baselines.create_baseline(connection, [stored(connection, length)], "ann", START) for length in (2.5, 2.0)
    )
    run_id = judged(connection, 2.0, low, START + HOUR)
    candidate = runs.candidate(connection, run_id, LINE.metric)
    for baseline_id, trip_id in ((high, None), (low, None)):
        verdict = judge_run(candidate, baselines.reference_by_id(connection, baseline_id, LINE.metric), LINE)
        store_verdict(connection, run_id, "late", verdict, START + HOUR, trip_id)
    assert shown(connection, "baseline_id", "change")[-1] == (high, pytest.approx(-0.2))


def test_changes_are_pooled_as_ratios_and_never_over_different_baselines(connection: Connection) -> None:
    first, second = (baselines.create_baseline(connection, [stored(connection)], "ann", START) for _ in range(2))
    for hours, length in ((2, 2.4 * 0.5), (3, 2.4)):
        judged(connection, length, second, START + hours * HOUR)
    names = ("runs_judged", "baseline_id", "baseline_value", "change")
    assert shown(connection, *names, group_by="day") == [(2, second, pytest.approx(2.4), pytest.approx(0.5**0.5 - 1))]
    judged(connection, 1.2, first, START + HOUR)
    assert shown(connection, *names, group_by="day") == [(3, None, None, None)]


def events(connection: Connection, **asked: Any) -> list[list[str]]:
    return [[event["text"] for event in row["events"]] for row in history(connection, ROUTE, **asked)]


def test_events_stand_at_the_run_they_belong_to(connection: Connection) -> None:
    first = stored(connection)
    baseline_id = baselines.create_baseline(connection, [first], "ann", START)
    approvals.approve_baseline(connection, baseline_id, "ann", "", START + HOUR / 2)
    moved = replace(IDENTITY, drafter="org/other", k=4)
    other = stored(connection, at=START + HOUR, domain="math", identity=moved)
    before, after = (identities.store_identity(connection, one, START) for one in (IDENTITY, moved))
    changes = moved.changes_from(IDENTITY)
    identities.store_bump(connection, ROUTE, REPLICA, before, after, changes, START + HOUR, other)
    last = stored(connection, at=START + 2 * HOUR, identity=moved)
    broken = IncidentState({"coding": BrokenDomain("drop", "page")})
    incident_id = incidents.save_state(connection, ROUTE, None, broken, START)
    document = {"domain": "coding", "verdict": {"run_ids": [first, last]}}
    incident_events.add_event(connection, incident_id, Transition.OPENED, document, [], START + 2 * HOUR)
    approved, opened = [f"baseline {baseline_id} approved"], [f"incident {incident_id} opened"]
    assert events(connection) == [approved, ["bump: k → 4, drafter → org/other"], opened]
    assert events(connection, domain="coding") == [approved, ["bump: k → 4, drafter → org/other", *opened]]
    assert events(connection, since=START + 2 * HOUR) == [opened]
    assert events(connection, domain="coding", until=START + HOUR) == [approved]
    removed = {"domain": "coding", "verdict": None}
    incident_events.add_event(connection, incident_id, Transition.RESOLVED, removed, [], START + 3 * HOUR)
    assert events(connection)[-1] == [*opened, f"incident {incident_id} resolved"]


def test_by_identity_rows_say_what_was_running(connection: Connection) -> None:
    stored(connection)
    assert [row["identity"]["drafter"] for row in history(connection, ROUTE, group_by="identity")] == ["org/drafter"]


@pytest.fixture
def ninety_days(database: Database) -> Database:
    """Eight routes of two domains: 51,840 runs, as they lie in the store once autovacuum has been by."""
    with database.transaction() as connection:
        store_many_runs(connection, routes=8, domains=2, runs_each=3240, until=START)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE runs"))
    return database


def nodes(plan: dict[str, Any]) -> list[tuple[str, str | None]]:
    """(kind, index) of every node of a plan but those that read the identities, of which there are few."""
    below = [node for child in plan.get("Plans", ()) for node in nodes(child)]
    own = [] if plan.get("Relation Name") == "identities" else [(plan["Node Type"], plan.get("Index Name"))]
    return own + below


def plan_of(database: Database, statement: Select[Any]) -> list[tuple[str, str | None]]:
    compiled = statement.compile(database.engine)
    with database.transaction() as connection:
        explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {compiled}", compiled.params).scalar_one()
    document = json.loads(explained) if isinstance(explained, str) else explained
    return nodes(document[0]["Plan"])


def test_ninety_days_of_a_route_are_read_from_the_index_alone(ninety_days: Database) -> None:
    for group_by, domain in (("hour", None), ("day", None), ("week", "domain-2"), ("identity", None)):
        statement = history_statement("route-1", domain, START - 90 * DAY, START, group_by, "Europe/Berlin")
        kinds = plan_of(ninety_days, statement)
        assert ("Index Only Scan", "ix_runs_route_started_at") in kinds
        assert not [kind for kind, _ in kinds if kind in ("Seq Scan", "Bitmap Heap Scan", "Index Scan")]


def test_ninety_days_of_a_route_add_up(ninety_days: Database) -> None:
    with ninety_days.transaction() as connection:
        rows = history(connection, "route-1", since=START - 90 * DAY, until=START, group_by="day")
    assert sum(row["runs_total"] for row in rows) == 2 * 3240
    assert sum(row["runs_valid"] for row in rows) == 2 * (3240 - 3240 // 200)
    assert {row["domain"] for row in rows} == {"domain-1", "domain-2"}


def test_by_run_more_runs_are_shown_than_a_statement_has_parameters(database: Database) -> None:
    """As many as a route of eleven domains has in half a year."""
    with database.transaction() as connection:
        store_many_runs(connection, routes=1, domains=1, runs_each=66_000, until=START)
        connection.execute(text("UPDATE runs SET warm = '{\"valid\": true}' WHERE id = 65000"))
        rows = history(connection, "route-1", domain="domain-1")
    assert len(rows) == 66_000
    assert [row["bucket"] for row in rows if row["warm"] is not None] == [65_000]


def with_contexts(short: float, long: float, **changes: Any) -> Any:
    """A run of two short prompts and a long one of two turns."""
    samples = (
        make_sample("q00", short, prompt_tokens=200),
        make_sample("q01", short, prompt_tokens=200),
        make_sample("q02", long, prompt_tokens=10_000, chunk_tokens=((1, 2), (1, 2)), chunk_seconds=((0, 1), (0, 1))),
        make_sample("q03", long, prompt_tokens=None),
        make_sample("q04", long, prompt_tokens=10_000, invalid_reason="too_short"),
    )
    return {"samples": samples, **changes}


def test_by_context_what_falls_at_long_contexts_alone_is_seen(connection: Connection) -> None:
    stored(connection, **with_contexts(2.5, 2.0))
    stored(connection, at=START + DAY, **with_contexts(2.5, 1.25))
    stored(connection, at=START + DAY, **with_contexts(2.5, 1.25, invalid_reason="busy"))
    keys = ("bucket", "from_tokens", "to_tokens", "acceptance_length", "prompts", "runs")
    rows = history_by_context(connection, ROUTE, group_by="day")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("2026-03-02T00:00:00+00:00", 0, 256, 2.5, 2, 1),
        ("2026-03-02T00:00:00+00:00", 4096, 16384, 2.0, 1, 1),
        ("2026-03-03T00:00:00+00:00", 0, 256, 2.5, 2, 1),
        ("2026-03-03T00:00:00+00:00", 4096, 16384, 1.25, 1, 1),
    ]


def test_by_context_figures_are_pooled_as_those_of_a_run_are(connection: Connection) -> None:
    run_id = stored(connection, **with_contexts(2.5, 2.0))
    document = runs.get_run(connection, run_id)
    assert document is not None
    of_run = document["by_context"]
    rows = history_by_context(connection, ROUTE, domain="coding", since=START, until=START + HOUR)
    both = sorted(set(of_run[0]) & set(rows[0]))
    assert both == [
        "acceptance_length", "acceptance_length_prompt_mean", "acceptance_rate", "accepted", "drafted", "from_tokens",
        "k", "prompts", "source", "steps", "to_tokens",
    ]  # fmt: skip
    assert [{key: row[key] for key in both} for row in rows] == [{key: row[key] for key in both} for row in of_run]
    assert [(row["group_by"], row["bucket"], row["coverage"]) for row in rows] == [("run", run_id, 1.0)] * 2
    assert [row["tokens_per_step"] for row in rows] == [2.5, pytest.approx(1.999)]


def test_by_context_never_pools_sources_or_k(connection: Connection) -> None:
    stored(connection, 2.5)
    stored(connection, 2.5, source=Source.STREAM)
    stored(connection, 2.5, k=5)
    rows = history_by_context(connection, ROUTE, group_by="week")
    assert {(row["source"], row["k"]) for row in rows} == {("request", 3), ("stream", 3), ("request", 5)}
