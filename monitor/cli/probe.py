"""`specwatch probe URL`: one server measured now, without a database or configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import format_option
from monitor.cli.parameters import chosen_sets
from monitor.cli.probe_options import ProbeOptions, probe_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.cli.context import Context
    from monitor.cli.progress import Progress
    from monitor.core.records import Run
    from monitor.prompts.sets import PromptSet


@click.command()
@probe_options
@format_option
@click.pass_obj
def probe(context: Context, /, *, format_: str, **given: Any) -> None:
    """Measure the server at URL now: replay prompts, show acceptance by domain.

    Needs no database and no configuration, unless --save is given. Exit code 13 when nothing could be measured.
    """
    from monitor.cli.probe_report import show

    options = ProbeOptions(**given)
    runs = _replayed(options, chosen_sets(options.prompts_dir, options.domains))
    try:
        if options.save:
            _save(context, runs, options.route)
    finally:
        show(runs, format_)  # what was measured is told, also when it cannot be kept


def _replayed(options: ProbeOptions, sets: Sequence[PromptSet]) -> list[Run]:
    """The runs of all domains one after the other, with progress on stderr; one that does not serve ends it early."""
    import asyncio

    from monitor.cli.progress import shown_progress

    total = options.passes * sum(len(prompt_set.prompts[: options.prompts]) for prompt_set in sets)
    with shown_progress(total, "prompts") as progress:
        return asyncio.run(_replay_all(options, sets, progress))


async def _replay_all(options: ProbeOptions, sets: Sequence[PromptSet], progress: Progress) -> list[Run]:
    from monitor.core.judge import MIN_SHARED_PROMPTS
    from monitor.core.records import Run
    from monitor.engines.failures import GONE, NOT_SERVING
    from monitor.engines.vllm import VllmEngine
    from monitor.probing.recognise import engine_at
    from monitor.probing.replay import replay

    target, sampling, runs = options.target(), options.sampling(), list[Run]()
    engine = await engine_at(target, options.engine)
    if options.data_parallel_rank is not None and not isinstance(engine, VllmEngine):
        raise click.UsageError("--data-parallel-rank is for vLLM, which this server is not")
    for prompt_set in sets:
        run = await replay(
            target,
            engine,
            prompt_set,
            route="",
            sampling=sampling,
            concurrency=options.concurrency,
            source=options.source,
            declared_identity=options.declared(),
            limit=options.prompts,
            min_prompts=MIN_SHARED_PROMPTS if options.save else 1,  # what is kept may become a baseline
            warm=options.cache == "both",
            on_sample=progress.sample_done,
        )
        assert isinstance(run, Run)  # without max_waiting nobody stands aside
        runs.append(run)
        served = any(sample.valid for sample in run.samples)
        if run.invalid_reason in (GONE if served else NOT_SERVING):
            break
        progress.part_done(prompt_set.domain, measured=served)
    return runs


def _save(context: Context, runs: Sequence[Run], route: str) -> None:
    """Stores the runs as manual ones of the route, valid or not. Raises StoreError."""
    from dataclasses import replace
    from uuid import uuid4

    from monitor.store import migrate
    from monitor.store.runs import store_run

    with context.database(reading=False) as database:
        migrate.upgrade(database)
        with database.transaction() as connection:
            ids = [store_run(connection, f"manual {uuid4()}", replace(run, route=route)) for run in runs]
    saved = f"run {ids[0]}" if len(ids) == 1 else f"runs {ids[0]} to {ids[-1]}"
    click.echo(f"saved as {saved} of route {route}", err=True)
