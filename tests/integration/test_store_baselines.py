"""Baselines: made once from runs that belong together, approved by name, never changed."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from monitor.core.records import Sampling, Source
from monitor.errors import UsageError
from monitor.store import approvals, baselines, identities, runs
from monitor.store.forget import forget_route
from tests.factories import COMPARABILITY, DOMAIN, IDENTITY, ROUTE, START, Lengths, make_run

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.core.judge import Comparability

APPROVED_AT = START + timedelta(hours=1)


def stored(connection: Connection, lengths: Lengths = 2.4, **changes: Any) -> int:
    key = f"run {len(runs.list_runs(connection, limit=1000))}"
    run_id = runs.store_run(connection, key, make_run(lengths, **changes))
    assert run_id is not None
    return run_id


def created(connection: Connection, *run_ids: int) -> int:
    return baselines.create_baseline(connection, run_ids, "ann", START)


def approved(connection: Connection, *run_ids: int) -> int:
    baseline_id = created(connection, *run_ids)
    approvals.approve_baseline(connection, baseline_id, "ann", "first", APPROVED_AT)
    return baseline_id


def test_a_baseline_holds_the_geometric_mean_per_prompt_of_its_runs(connection: Connection) -> None:
    run_ids = [stored(connection, [2.0, 3.0]), stored(connection, [2.5, 3.0])]
    document = baselines.get_baseline(connection, created(connection, *run_ids))
    assert document is not None
    figures = document.pop("metrics")["acceptance_length"]
    assert figures["values"] == pytest.approx({"q00": math.sqrt(5), "q01": 3.0})
    assert figures["spreads"] == pytest.approx({"q00": math.log(1.25) / math.sqrt(2), "q01": 0.0})
    assert figures["run_sigma"] == pytest.approx(math.log(1.25) / 2 / math.sqrt(2))
    assert figures["runs"] == 2
    assert document == {
        "id": document["id"],
        "route": ROUTE,
        "domain": DOMAIN,
        "prompt_set_hash": "set-1",
        "source": "request",
        "k": 3,
        "concurrency": 4,
        "sampling": Sampling().as_dict(),
        "identity_id": identities.store_identity(connection, IDENTITY, START),
        "run_ids": run_ids,
        "prompts": 2,
        "acceptance_length_geometric_mean": pytest.approx(math.sqrt(math.sqrt(5) * 3)),
        "run_sigma": figures["run_sigma"],
        "created_at": "2026-03-02T10:00:00+00:00",
        "created_by": "ann",
        "approved_at": None,
        "approved_by": None,
        "why": None,
        "generation": None,
    }


def test_every_metric_a_rule_may_name_has_its_reference(connection: Connection) -> None:
    document = baselines.get_baseline(connection, created(connection, stored(connection, 2.4)))
    assert document is not None
    assert set(document["metrics"]) == {
        "acceptance_length",
        "accepted_per_step",
        "acceptance_rate",
        "tokens_per_step",
        "throughput",
    }
    assert document["metrics"]["tokens_per_step"]["values"]["q07"] == pytest.approx(2.4)


def test_a_run_named_twice_counts_once(connection: Connection) -> None:
    one, other = stored(connection, 2.0), stored(connection, 2.5)
    document = baselines.get_baseline(connection, created(connection, one, other, one, one))
    assert document is not None
    assert (document["run_ids"], document["metrics"]["acceptance_length"]["runs"]) == ([one, other], 2)


def test_nothing_that_happens_later_changes_a_baseline(connection: Connection) -> None:
    run_id = stored(connection, 2.4)
    baseline_id = approved(connection, run_id)
    before = baselines.get_baseline(connection, baseline_id)
    approved(connection, stored(connection, 1.5), run_id)
    stored(connection, 4.0)
    assert baselines.get_baseline(connection, baseline_id) == before


def test_a_baseline_needs_a_run(connection: Connection) -> None:
    with pytest.raises(UsageError, match="at least one valid run"):
        created(connection)


def test_a_run_that_is_not_there_is_named(connection: Connection) -> None:
    with pytest.raises(UsageError, match=r"there is no run 99; see 'specwatch runs'"):
        created(connection, stored(connection), 99)


def test_an_invalid_run_is_refused_with_its_reason(connection: Connection) -> None:
    run_id = stored(connection, invalid_reason="busy")
    with pytest.raises(UsageError, match=rf"run {run_id} is invalid \(busy\) and cannot be part of a baseline"):
        created(connection, run_id)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": "math"}, "is of chat-prod/math, run 1 of chat-prod/coding"),
        ({"route": "batch"}, "is of batch/coding, run 1 of chat-prod/coding"),
        ({"k": 5}, "is not comparable with run 1: K 5 is not the baseline's 3"),
        ({"source": Source.STREAM}, "is not comparable with run 1: source stream is not the baseline's request"),
        ({"prompt_set_hash": "set-2"}, "is not comparable with run 1: prompt set set-2 is not the baseline's set-1"),
        ({"concurrency": 8}, "is not comparable with run 1: concurrency 8 is not the baseline's 4"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    connection: Connection, changes: dict[str, Any], message: str
) -> None:
    first, second = stored(connection), stored(connection, **changes)
    assert first == 1
    with pytest.raises(UsageError, match=f"run {second} {message}"):
        created(connection, first, second)


def test_a_baseline_counts_from_its_approval_on(connection: Connection) -> None:
    baseline_id = created(connection, stored(connection))
    assert not approvals.has_approved(connection, ROUTE, DOMAIN)
    assert baselines.reference(connection, ROUTE, DOMAIN, "acceptance_length", COMPARABILITY) is None
    approvals.approve_baseline(connection, baseline_id, "ann", "looks right", APPROVED_AT)
    assert approvals.has_approved(connection, ROUTE, DOMAIN)
    document = baselines.get_baseline(connection, baseline_id)
    assert document is not None
    assert (document["approved_at"], document["approved_by"], document["why"]) == (
        "2026-03-02T11:00:00+00:00",
        "ann",
        "looks right",
    )


def test_a_baseline_that_is_not_there_cannot_be_approved(connection: Connection) -> None:
    with pytest.raises(UsageError, match="there is no baseline 3; see 'specwatch baseline list'"):
        approvals.approve_baseline(connection, 3, "ann", "why not", APPROVED_AT)


def test_the_reference_is_what_the_judge_needs_of_the_metric(connection: Connection) -> None:
    baseline_id = approved(connection, stored(connection, [2.0, 3.0]), stored(connection, [2.0, 3.0]))
    found = baselines.reference(connection, ROUTE, DOMAIN, "acceptance_length", COMPARABILITY)
    assert found is not None
    assert (found.id, found.runs, found.run_sigma, found.comparability) == (baseline_id, 2, 0.01, COMPARABILITY)
    assert found.values == pytest.approx({"q00": 2.0, "q01": 3.0})
    assert baselines.reference_by_id(connection, baseline_id, "acceptance_length") == found


def reference_id(connection: Connection, run: Comparability) -> int:
    found = baselines.reference(connection, ROUTE, DOMAIN, "acceptance_length", run)
    assert found is not None
    return found.id


def test_of_several_approved_baselines_the_last_one_approved_counts(connection: Connection) -> None:
    first, second = (created(connection, stored(connection, length)) for length in (2.4, 2.5))
    for baseline_id in (second, first):
        approvals.approve_baseline(connection, baseline_id, "ann", "", APPROVED_AT)
    assert reference_id(connection, COMPARABILITY) == first
    approvals.approve_baseline(connection, second, "ann", "after all", APPROVED_AT)
    assert reference_id(connection, COMPARABILITY) == second


def test_a_run_is_compared_with_the_last_approved_baseline_it_is_comparable_with(connection: Connection) -> None:
    shallow = approved(connection, stored(connection))
    deep = approved(connection, stored(connection, k=5))
    assert reference_id(connection, COMPARABILITY) == shallow
    assert reference_id(connection, replace(COMPARABILITY, k=5)) == deep


def test_a_run_comparable_with_none_is_held_against_the_last_approved_so_that_it_says_how_it_differs(
    connection: Connection,
) -> None:
    approved(connection, stored(connection))
    deep = approved(connection, stored(connection, k=5))
    assert reference_id(connection, replace(COMPARABILITY, k=7)) == deep


def test_another_domain_or_route_has_no_baseline(connection: Connection) -> None:
    approved(connection, stored(connection))
    assert not approvals.has_approved(connection, ROUTE, "math")
    assert baselines.reference(connection, "batch", DOMAIN, "acceptance_length", COMPARABILITY) is None


def test_runs_for_a_baseline_are_chosen_among_the_comparable_and_valid(connection: Connection) -> None:
    deep = stored(connection, k=5)
    first = stored(connection)
    stored(connection, invalid_reason="busy")
    stored(connection, domain="math")
    stored(connection, source=Source.STREAM)
    stored(connection, sampling=Sampling(temperature=1.0))
    second, third = stored(connection), stored(connection)
    assert baselines.first_valid_runs(connection, third, 2) == [first, second]
    assert baselines.first_valid_runs(connection, third, 10) == [first, second, third]
    assert baselines.first_valid_runs(connection, deep, 10) == [deep]
    assert baselines.last_valid_runs(connection, ROUTE, DOMAIN, 2) == [second, third]
    assert baselines.last_valid_runs(connection, ROUTE, "qa", 2) == []


def test_the_first_baseline_is_of_one_identity_and_counts_anew_after_a_bump(connection: Connection) -> None:
    stored(connection)
    moved = replace(IDENTITY, drafter="org/other")
    second, third = stored(connection, identity=moved), stored(connection, identity=moved)
    assert baselines.first_valid_runs(connection, third, 3) == [second, third]


def test_a_baseline_in_force_is_not_approved_twice(connection: Connection) -> None:
    baseline_id = approved(connection, stored(connection))
    later = APPROVED_AT + timedelta(days=1)
    found = approvals.approve_baseline(connection, baseline_id, "bob", "again", later)
    assert found is not None
    assert (found.approved_by, found.approved_at) == ("ann", APPROVED_AT)
    document = baselines.get_baseline(connection, baseline_id)
    assert document is not None
    assert document["approved_by"] == "ann"
    approved(connection, stored(connection))
    assert approvals.approve_baseline(connection, baseline_id, "bob", "back to it", later) is None


@pytest.mark.parametrize("change", ["UPDATE baselines SET metrics = '{}'", "DELETE FROM baselines"])
def test_the_database_itself_refuses_to_change_a_baseline(connection: Connection, change: str) -> None:
    baseline_id = created(connection, stored(connection))
    with pytest.raises(DBAPIError, match=f"baseline {baseline_id} is immutable"):
        connection.execute(text(change))


def test_only_a_route_that_is_forgotten_takes_its_baselines_with_it(connection: Connection) -> None:
    approved(connection, stored(connection))
    kept = approved(connection, stored(connection, route="batch"))
    forget_route(connection, ROUTE)
    assert [document["id"] for document in baselines.list_baselines(connection)] == [kept]
    with pytest.raises(DBAPIError, match="immutable"):
        connection.execute(text("DELETE FROM baselines"))


def test_runs_whose_k_is_unknown_are_comparable_with_each_other(connection: Connection) -> None:
    samples = [replace(sample, k=None) for sample in make_run().samples]
    unknown = [stored(connection, samples=tuple(samples)) for _ in range(2)]
    stored(connection)
    assert baselines.first_valid_runs(connection, unknown[1], 5) == unknown


def test_baselines_are_listed_newest_first(connection: Connection) -> None:
    one = approved(connection, stored(connection))
    two = created(connection, stored(connection, domain="math"))
    three = created(connection, stored(connection, route="batch"))

    def ids(**asked: str) -> list[int]:
        return [document["id"] for document in baselines.list_baselines(connection, **asked)]

    assert ids() == [three, two, one]
    assert ids(route=ROUTE) == [two, one]
    assert ids(route=ROUTE, domain=DOMAIN) == [one]
    assert baselines.get_baseline(connection, 99) is None
