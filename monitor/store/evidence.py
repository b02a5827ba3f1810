"""What the store knows around the runs of a verdict: the evidence that its explanation is made from."""

from __future__ import annotations

import math
from itertools import chain
from operator import mul
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on

from monitor.core.evidence import Evidence, Load, OrganicMove, PastRun, PromptMove
from monitor.core.figures import SAMPLE_METRICS, metric_values
from monitor.core.organic import WINDOW
from monitor.core.outputs import changes
from monitor.core.records import Counts, Identity, Sample, Source
from monitor.store.baselines import outputs_of, reference_by_id
from monitor.store.replicas import RECENT, replica_difference, runs_beside
from monitor.store.retention import without_samples
from monitor.store.schema import SERVING, baselines, identities, organic, runs, samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

RECENT_RUNS = 200
"""Looked back at: more than five days of a domain that is probed every 40 minutes."""
METRIC = "acceptance_length"
"""What prompts are compared by where the rule's own metric has no value for each of them."""


def evidence(
    connection: Connection,
    run_ids: Sequence[int],
    baseline_id: int | None,
    change: float | None = None,
    metric: str = METRIC,
    change_interval: Sequence[float] | None = None,
) -> Evidence:
    """Around these runs of one domain, one at least, that a verdict is about, as it was known when the last had ended.

    `baseline_id`: what the verdict compared with; None: what judged the last run by another rule, if anything did.
    Guarantee: of at most 200 runs the figures; of these and the baseline's the samples, without their chunks.
    """
    metric = metric if metric in SAMPLE_METRICS else METRIC
    own = connection.execute(select(runs).where(runs.c.id.in_(run_ids)).order_by(runs.c.id)).all()
    last = own[-1]
    baseline = _baseline(connection, last.baseline_id if baseline_id is None else baseline_id)
    found: dict[str, Any] = {} if baseline is None else _against(connection, own, baseline, metric)
    speeds = [run.tokens_per_second_p50 for run in own if run.tokens_per_second_p50]
    return Evidence(
        metric=metric,
        change=last.change if change is None else change,
        change_interval=change_interval,
        other_changes=_other_changes(connection, last),
        replica=last.replica,
        source=last.source or "none",
        survival=_survival(own),
        replica_difference=replica_difference(connection, last.route, last.domain, last.id),
        removed_beside=tuple(without_samples(connection, runs_beside(connection, last.route, last.domain, last.id))),
        recent=_recent(connection, last),
        run_ids=tuple(run.id for run in own),
        tokens_per_second=median(speeds) if speeds else None,
        **found,
    )


def _survival(those: Sequence[Row[Any]]) -> tuple[float, ...]:
    """By position, over all steps of the runs; of positions that all of them have."""
    known = [run for run in those if run.survival and run.steps]
    steps = sum(run.steps for run in known)
    by_position = zip(*(run.survival for run in known), strict=False)
    weights = [run.steps for run in known]
    return tuple(sum(map(mul, shares, weights)) / steps for shares in by_position)


def _baseline(connection: Connection, baseline_id: int | None) -> Row[Any] | None:
    if baseline_id is None:
        return None
    return connection.execute(select(baselines).where(baselines.c.id == baseline_id)).one_or_none()


def _against(connection: Connection, own: Sequence[Row[Any]], baseline: Row[Any], metric: str) -> dict[str, Any]:
    """What only a baseline tells."""
    chosen = select(runs).where(runs.c.id.in_(baseline.run_ids)).order_by(runs.c.id)
    its_runs = connection.execute(chosen).all()
    measured = [_samples(connection, samples.c.run_id == run.id) for run in own]
    greedy = not own[-1].sampling["temperature"]
    return {
        "identity_changes": _identity_changes(connection, baseline.identity_id, [run.identity_id for run in own]),
        "outputs": changes(measured, outputs_of(connection, baseline.id)) if greedy else None,
        "moves": _moves(connection, measured, baseline, metric),
        "baseline_survival": _survival(its_runs),
        "baseline_loads": tuple(_load(row.regime) for row in its_runs),
        "organic": _organic(connection, own[-1], its_runs),
        "baseline_tokens_per_second": tuple(r.tokens_per_second_p50 for r in its_runs if r.tokens_per_second_p50),
    }


def _other_changes(connection: Connection, run: Row[Any]) -> dict[str, float]:
    """Of each other domain's newest judged run at that time, within the last two days."""
    c = runs.c
    statement = (
        select(c.domain, c.change)
        .ext(distinct_on(c.domain))
        .where(c.route == run.route, c.domain != run.domain, c.id <= run.id, c.valid, c.change.is_not(None))
        .where(c.started_at > run.started_at - RECENT)
        .order_by(c.domain, c.id.desc())
    )
    return {row.domain: row.change for row in connection.execute(statement)}


def _identity_changes(connection: Connection, before_id: int, own: Sequence[int]) -> dict[str, tuple[Any, Any]]:
    """What any of the runs shows to be another than the baseline's; as the last of them has it."""
    chosen = select(identities.c.id, identities.c.document).where(identities.c.id.in_({before_id, *own}))
    known = {row.id: Identity.from_dict(row.document) for row in connection.execute(chosen)}
    found: dict[str, tuple[Any, Any]] = {}
    for identity_id in own:
        found.update(known[identity_id].changes_from(known[before_id]))
    return found


def _moves(
    connection: Connection, measured: Sequence[Sequence[Sample]], baseline: Row[Any], metric: str
) -> tuple[PromptMove, ...]:
    """Prompts that both sides have a value for, in the order they were replayed."""
    before = reference_by_id(connection, baseline.id, metric).values
    tokens = _prompt_tokens(_samples(connection, samples.c.run_id.in_(baseline.run_ids)))
    values: dict[str, list[float]] = {}
    for run in measured:
        for question, value in metric_values(run, metric).items():
            values.setdefault(question, []).append(value)
    replayed: dict[str, list[Sample]] = {}
    for sample in chain.from_iterable(measured):
        replayed.setdefault(sample.question_id, []).append(sample)
    return tuple(
        PromptMove(
            question,
            before[question],
            math.exp(fmean(map(math.log, values[question]))),
            next((sample.prompt_tokens for sample in reversed(theirs) if sample.prompt_tokens is not None), None),
            frozenset(tokens.get(question, ())) if len(theirs[-1].chunk_tokens) == 1 else frozenset(),
            min((n for sample in theirs if (n := sample.cached_prompt_tokens) is not None), default=None),
        )
        for question, theirs in replayed.items()
        if question in before and question in values
    )


def _prompt_tokens(found: Sequence[Sample]) -> dict[str, set[int]]:
    """Every number of prompt tokens seen, by question, of prompts of one turn."""
    seen: dict[str, set[int]] = {}
    for sample in found:
        if sample.valid and sample.prompt_tokens is not None and len(sample.chunk_tokens) == 1:
            seen.setdefault(sample.question_id, set()).add(sample.prompt_tokens)
    return seen


def _samples(connection: Connection, such: ColumnElement[bool]) -> list[Sample]:
    """Without their chunks, of which only the number of turns is read."""
    c = samples.c
    wanted = (c.question_id, c.source, c.steps, c.accepted, c.decode_steps, c.prompt_tokens, c.cached_prompt_tokens)
    more = (c.completion_tokens, c.output_hash, c.invalid_reason, func.cardinality(c.turn_chunks).label("turns"))
    decoding = (c.drafted, c.decode_seconds, c.decode_tokens)
    statement = select(*wanted, *more, *decoding).where(such).order_by(c.run_id, c.position)
    return [
        Sample(
            row.question_id,
            None if row.source is None else Source(row.source),
            Counts(row.steps, row.drafted, row.accepted, (), row.decode_steps),
            prompt_tokens=row.prompt_tokens,
            cached_prompt_tokens=row.cached_prompt_tokens,
            completion_tokens=row.completion_tokens,
            decode_seconds=row.decode_seconds,
            decode_tokens=row.decode_tokens,
            chunk_tokens=((),) * row.turns,
            output_hash=row.output_hash,
            invalid_reason=row.invalid_reason,
        )
        for row in connection.execute(statement)
    ]


def _recent(connection: Connection, run: Row[Any]) -> tuple[PastRun, ...]:
    """Valid runs up to this one whose counts can be laid beside its own, cold or warm, oldest first."""
    c = runs.c
    wanted = (c.id, c.replica, c.finished_at, c.acceptance_length, c.change, c.sampling, c.regime)
    statement = (
        select(*wanted)
        .where(c.route == run.route, c.domain == run.domain, c.id <= run.id, c.valid, SERVING)
        .where(c.source == run.source, c.k.is_not_distinct_from(run.k), c.prompt_set_hash == run.prompt_set_hash)
        .where(c.concurrency == run.concurrency, c.acceptance_length.is_not(None))
        .order_by(c.id.desc())
        .limit(RECENT_RUNS)
    )
    rows = connection.execute(statement).all()
    return tuple(
        PastRun(
            row.id,
            row.replica,
            row.finished_at,
            row.acceptance_length,
            row.change,
            row.sampling["cache"],
            _load(row.regime),
            row.regime.get("server_started_at"),
        )
        for row in reversed(rows)
    )


def _load(regime: Mapping[str, Any]) -> Load:
    names = ("running_before", "waiting_max", "kv_cache_usage_max", "preemptions")
    return Load(*(regime.get(name) for name in names))


def _organic(connection: Connection, run: Row[Any], baseline_runs: Sequence[Row[Any]]) -> OrganicMove | None:
    """Everybody's acceptance length on the route: while the baseline was measured, and since, up to an hour before the
    run's end.

    A reading of both times counts as the baseline's. None where either was not read.
    """
    ends = [row.finished_at for row in baseline_runs]
    if not ends:
        return None
    since = max(*ends, run.finished_at - WINDOW)
    c = organic.c
    total = (func.coalesce(func.sum(c.steps), 0), func.coalesce(func.sum(c.accepted), 0))
    of_route = select(*total).where(c.route == run.route)
    begin = min(row.started_at for row in baseline_runs)
    before = connection.execute(of_route.where(c.ended_at >= begin, c.began_at <= max(ends))).one()
    after = connection.execute(of_route.where(c.began_at >= since, c.began_at <= run.finished_at)).one()
    if not before[0] or not after[0]:
        return None
    then, now = (1 + float(accepted) / float(steps) for steps, accepted in (before, after))
    return OrganicMove(then, now, int(before[0]), int(after[0]))
