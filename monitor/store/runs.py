"""Runs and samples: writing them once, reading them back whole."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.contexts import by_context
from monitor.core.figures import Aggregate, aggregate, metric_values
from monitor.core.floors import FIRST_POSITION_SURVIVAL, PooledFigure
from monitor.core.judge import Candidate, Comparability
from monitor.core.records import Counts, Run, Sample, Source
from monitor.store.identities import store_identity
from monitor.store.schema import identities, runs, samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row


def store_run(connection: Connection, key: str, run: Run, trip_id: int | None = None) -> int | None:
    """Writes a run with its samples; returns its id, or None when a run of this key is there already.

    The key names the job, so a job repeated after a crash never counts twice.
    """
    figures = aggregate(run.domain, run.samples)
    row = {
        "key": key,
        "route": run.route,
        "domain": run.domain,
        "replica": run.replica,
        "reason": run.reason.value,
        "trip_id": trip_id,
        "identity_id": store_identity(connection, run.identity, run.started_at),
        "prompt_set_hash": run.prompt_set_hash,
        "concurrency": run.concurrency,
        "sampling": run.sampling.as_dict(),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "valid": run.invalid_reason is None,
        "invalid_reason": run.invalid_reason,
        "invalid_detail": run.invalid_detail,
        "regime": asdict(run.regime),
        "warnings": list(run.warnings),
        "acceptance_by_source": dict(run.acceptance_by_source),
        "warm": None if run.warm is None else run.warm.as_dict(),
        **_figure_columns(figures),
    }
    statement = upsert(runs).values(row).on_conflict_do_nothing(index_elements=["key"]).returning(runs.c.id)
    run_id = connection.execute(statement).scalar_one_or_none()
    if run_id is not None and run.samples:
        connection.execute(insert(samples), [_sample_row(run_id, n, s) for n, s in enumerate(run.samples)])
    return run_id


def measured_routes(connection: Connection) -> list[str]:
    """Names of the routes that have runs; walks the index from name to name, so a million runs cost nothing."""
    names: list[str] = []
    statement = select(runs.c.route).order_by(runs.c.route).limit(1)
    found = connection.execute(statement).scalar_one_or_none()
    while found is not None:
        names.append(found)
        found = connection.execute(statement.where(runs.c.route > found)).scalar_one_or_none()
    return names


def runs_by_key(connection: Connection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Key → document, of those that are stored."""
    found = connection.execute(select(runs).where(runs.c.key.in_(keys)))
    return {row.key: run_document(row) for row in found}


def is_recorded(connection: Connection, key: str) -> bool:
    """Whether a run of this key is stored."""
    return connection.execute(select(runs.c.id).where(runs.c.key == key)).one_or_none() is not None


def domains_of(connection: Connection, route: str) -> list[str]:
    """Domains the route has valid runs of."""
    statement = select(runs.c.domain).distinct().where(runs.c.route == route, runs.c.valid).order_by(runs.c.domain)
    return list(connection.execute(statement).scalars())


def measured_domains(connection: Connection, route: str | None = None) -> list[str]:
    """Domains the route, or any route, has runs of, valid or not."""
    statement = select(runs.c.domain).distinct().order_by(runs.c.domain)
    if route is not None:
        statement = statement.where(runs.c.route == route)
    return list(connection.execute(statement).scalars())


def run_started_at(connection: Connection, run_id: int) -> datetime:
    """When the run started."""
    return connection.execute(select(runs.c.started_at).where(runs.c.id == run_id)).scalar_one()


def source_of(run: Run) -> str:
    """The source of the run's valid samples, or `none`."""
    return next((sample.source.value for sample in run.samples if sample.valid and sample.source), "none")


def list_runs(
    connection: Connection,
    route: str | None = None,
    domain: str | None = None,
    limit: int = 50,
    valid_only: bool = False,
) -> list[dict[str, Any]]:
    """Newest runs first, each as its document."""
    statement = select(runs).order_by(runs.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(runs.c.route == route)
    if domain is not None:
        statement = statement.where(runs.c.domain == domain)
    if valid_only:
        statement = statement.where(runs.c.valid)
    return [run_document(row) for row in connection.execute(statement)]


def get_run(connection: Connection, run_id: int) -> dict[str, Any] | None:
    """One run's document with its identity, its figures by length of context, and every sample's raw counts."""
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        return None
    identity = connection.execute(select(identities.c.document).where(identities.c.id == row.identity_id)).scalar_one()
    rows = connection.execute(select(samples).where(samples.c.run_id == run_id).order_by(samples.c.position))
    found = [_sample(row) for row in rows]
    return {
        **run_document(row),
        "identity": identity,
        "by_context": by_context(found),
        "samples": [sample.as_dict() for sample in found],
        "samples_removed": row.prompts_total > 0 and not found,
    }


def stored_run(connection: Connection, run_id: int) -> dict[str, Any]:
    """A stored run's document without its samples; the run exists."""
    return run_document(connection.execute(select(runs).where(runs.c.id == run_id)).one())


def run_document(row: Row[Any]) -> dict[str, Any]:
    """The one JSON shape of a stored run: its figures as everywhere, and under what they were measured."""
    return {
        "id": row.id,
        "route": row.route,
        "replica": row.replica,
        "reason": row.reason,
        "started_at": row.started_at.isoformat(),
        "finished_at": row.finished_at.isoformat(),
        "valid": row.valid,
        "invalid_reason": row.invalid_reason,
        "invalid_detail": row.invalid_detail,
        "identity_id": row.identity_id,
        "prompt_set_hash": row.prompt_set_hash,
        "concurrency": row.concurrency,
        "sampling": row.sampling,
        "regime": row.regime,
        "warnings": row.warnings,
        "acceptance_by_source": _best_first(row.acceptance_by_source),
        "warm": row.warm,
        **_aggregate(row).as_dict(),
    }


def _best_first(by_source: dict[str, float]) -> dict[str, float]:
    """In the order of Source, which JSONB does not keep."""
    return {source.value: by_source[source] for source in Source if source in by_source}


def candidate(connection: Connection, run_id: int, metric: str, measured: Sequence[Sample] | None = None) -> Candidate:
    """A stored run as the judge sees it: per-prompt values of the metric, recomputed from raw counts.

    `measured`: its samples, when they are still at hand; reading them back costs more than everything else here.
    """
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one()
    if measured is None:
        found = connection.execute(select(samples).where(samples.c.run_id == run_id).order_by(samples.c.position))
        measured = [_sample(row) for row in found]
    gone = "its samples are no longer kept" if row.prompts_total and not measured else None
    return Candidate(run_id, comparability(row), metric_values(measured, metric), row.invalid_reason or gone)


def prompt_values(connection: Connection, run_ids: Sequence[int], metric: str) -> dict[int, dict[str, float]]:
    """Run id → question id → value of the metric, from raw counts without chunks; only runs that have any."""
    c = samples.c
    wanted = (
        *(c.run_id, c.question_id, c.source, c.steps, c.drafted, c.accepted, c.decode_steps, c.completion_tokens),
        *(c.decode_seconds, c.decode_tokens, c.turn_chunks, c.invalid_reason),
    )
    by_run: dict[int, list[Sample]] = {}
    for row in connection.execute(select(*wanted).where(c.run_id.in_(run_ids))):
        sample = Sample(
            row.question_id,
            None if row.source is None else Source(row.source),
            Counts(row.steps, row.drafted, row.accepted, (), row.decode_steps),
            completion_tokens=row.completion_tokens,
            decode_seconds=row.decode_seconds,
            decode_tokens=row.decode_tokens,
            chunk_tokens=tuple(() for _ in row.turn_chunks),
            invalid_reason=row.invalid_reason,
        )
        by_run.setdefault(row.run_id, []).append(sample)
    return {run_id: values for run_id, found in by_run.items() if (values := metric_values(found, metric))}


def pooled_figure(connection: Connection, run_id: int, metric: str) -> PooledFigure:
    """A stored run as an absolute rule of this metric sees it."""
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one()
    first = row.survival[0] if row.survival else None
    value = first if metric == FIRST_POSITION_SURVIVAL else getattr(row, metric)
    return PooledFigure(
        run_id, value, row.steps, row.prompts_valid, row.source or "none", row.invalid_reason, metric=metric
    )


def comparability(row: Row[Any]) -> Comparability:
    return Comparability(row.prompt_set_hash, row.source or "none", row.k, row.concurrency, row.sampling)


def _figure_columns(figures: Aggregate) -> dict[str, Any]:
    columns = asdict(figures)
    del columns["domain"]
    return {**columns, "domain": figures.domain, "source": figures.source, "survival": list(figures.survival)}


def _aggregate(row: Row[Any]) -> Aggregate:
    return Aggregate(
        domain=row.domain,
        source=None if row.source is None else Source(row.source),
        k=row.k,
        acceptance_length=row.acceptance_length,
        acceptance_length_prompt_mean=row.acceptance_length_prompt_mean,
        acceptance_rate=row.acceptance_rate,
        survival=tuple(row.survival),
        tokens_per_step=row.tokens_per_step,
        coverage=row.coverage,
        steps=row.steps,
        drafted=row.drafted,
        accepted=row.accepted,
        decode_steps=row.decode_steps,
        completion_tokens=row.completion_tokens,
        requests=row.requests,
        prompts_valid=row.prompts_valid,
        prompts_total=row.prompts_total,
        invalid_reasons=row.invalid_reasons,
        ttft_seconds_p50=row.ttft_seconds_p50,
        ttft_seconds_p95=row.ttft_seconds_p95,
        tokens_per_second_p50=row.tokens_per_second_p50,
        tokens_per_second_p95=row.tokens_per_second_p95,
    )


def _sample_row(run_id: int, position: int, sample: Sample) -> dict[str, Any]:
    """Chunks of all turns lie flat: a Postgres array of four-byte numbers takes a quarter of their JSON."""
    flat = {
        "turn_chunks": [len(turn) for turn in sample.chunk_tokens],
        "chunk_tokens": list(chain.from_iterable(sample.chunk_tokens)),
        "chunk_seconds": list(chain.from_iterable(sample.chunk_seconds)),
    }
    return {"run_id": run_id, "position": position, **sample.as_dict(), **flat}


def _turns(row: Row[Any], values: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    rest = iter(values)
    return tuple(tuple(islice(rest, chunks)) for chunks in row.turn_chunks)


def _sample(row: Row[Any]) -> Sample:
    return Sample(
        question_id=row.question_id,
        source=None if row.source is None else Source(row.source),
        counts=Counts(row.steps, row.drafted, row.accepted, tuple(row.histogram), row.decode_steps),
        k=row.k,
        prompt_tokens=row.prompt_tokens,
        cached_prompt_tokens=row.cached_prompt_tokens,
        completion_tokens=row.completion_tokens,
        ttft_seconds=row.ttft_seconds,
        decode_seconds=row.decode_seconds,
        decode_tokens=row.decode_tokens,
        total_seconds=row.total_seconds,
        chunk_tokens=_turns(row, row.chunk_tokens),
        chunk_seconds=_turns(row, row.chunk_seconds),
        loop_lag_seconds=row.loop_lag_seconds,
        finish_reason=row.finish_reason,
        output_hash=row.output_hash,
        invalid_reason=row.invalid_reason,
        invalid_detail=row.invalid_detail,
    )
