"""`specwatch probe URL`: one server measured now, without a database or configuration."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option
from monitor.core.format import NOTHING, figure, survival_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.cli.context import Context
    from monitor.core.records import Run, Sampling
    from monitor.probing.client import Target
    from monitor.probing.outcome import SourceWish
    from monitor.prompts.sets import PromptSet

SURVIVAL_SHOWN = 5
PATH = click.Path(path_type=Path)


def _url(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    from monitor.config.routes import replica_url

    try:
        return replica_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _headers(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    from monitor.config.settings import header_name

    headers = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not name or not equals:
            raise click.BadParameter("write NAME=VALUE")  # not the text itself, which may be a secret
        try:
            headers[header_name(name)] = content
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return headers


def _json_object(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, Any]:
    try:
        document = json.loads(value, parse_constant=_no_constant) if value else {}
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise click.BadParameter('write a JSON object, for example {"priority": 10}')
    return document


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is a number that JSON cannot carry")


def _finite(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):  # passes any range
        raise click.BadParameter("nan is not a number from 0 to 2")
    return value


def _route_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    from monitor.config.strict import plain_name

    try:
        return plain_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("url", callback=_url)
@click.option("--domain", "domains", multiple=True, help="Only this domain; repeatable.  [default: all]")
@click.option("--prompts", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts of each domain.")
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Prompts in flight.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens per answer.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "vllm", "sglang", "trtllm", "llamacpp", "tgi", "openai"]),
    default="auto",
    show_default=True,
    help="What the server is; openai is any other with OpenAI's API.",
)
@click.option("--model", help="Model to ask for.  [default: the only one that is served]")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key.")
@click.option("--api-key-file", type=PATH, metavar="PATH", help="File that holds the key.")
@click.option("--ca-file", type=PATH, metavar="PATH", help="Certificates to trust besides the usual ones.")
@click.option("--header", "headers", multiple=True, callback=_headers, metavar="NAME=VALUE", help="Repeatable.")
@click.option(
    "--endpoint",
    type=click.Choice(["chat", "completions"]),
    default="chat",
    show_default=True,
    help="Whole conversations through the chat template, or first turns as raw text.",
)
@click.option(
    "--source",
    type=click.Choice(["auto", "request", "stream", "counters"]),
    default="auto",
    show_default=True,
    help="Where counts come from: the server's own per request, tokens per chunk, or its metrics page around each "
    "prompt, one at a time.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    default=0.0,
    show_default=True,
    callback=_finite,
    help="Of sampling; 0 is greedy.",
)
@click.option("--thinking/--no-thinking", default=None, help="Set enable_thinking.  [default: the model decides]")
@click.option("--prompts-dir", type=PATH, metavar="DIR", help="Your own prompt sets, one DOMAIN.jsonl each.")
@click.option("--extra-body", callback=_json_object, metavar="JSON", help="Further keys of every request.")
@click.option(
    "--save",
    is_flag=True,
    help="Keep the runs in the store, to see with 'specwatch history'; under 12 valid prompts a run is invalid.",
)
@click.option(
    "--route",
    default="probe",
    show_default=True,
    callback=_route_name,
    help="Route the saved runs are kept under.",
)
@format_option
@click.pass_obj
def probe(
    context: Context,
    url: str,
    *,
    domains: tuple[str, ...],
    prompts: int | None,
    concurrency: int,
    max_tokens: int,
    engine: str,
    model: str | None,
    api_key_env: str | None,
    api_key_file: Path | None,
    ca_file: Path | None,
    headers: dict[str, str],
    endpoint: str,
    source: SourceWish,
    temperature: float,
    thinking: bool | None,
    prompts_dir: Path | None,
    extra_body: dict[str, Any],
    save: bool,
    route: str,
    format_: str,
) -> None:
    """Measure the server at URL now: replay prompts, show acceptance by domain.

    Needs no database and no configuration, unless --save is given. Exit code 13 when nothing could be measured.
    """
    from monitor.core.judge import MIN_SHARED_PROMPTS
    from monitor.core.records import Sampling
    from monitor.probing.client import Target

    target = Target(url, model, _api_key(api_key_env, api_key_file), headers, ca_file)
    sampling = Sampling(
        endpoint=endpoint,
        max_tokens=max_tokens,
        temperature=temperature,
        chat_template_kwargs=() if thinking is None else (("enable_thinking", thinking),),
        extra_body=tuple(extra_body.items()),
    )
    chosen = _chosen_sets(prompts_dir, domains)
    min_prompts = MIN_SHARED_PROMPTS if save else 1  # what is kept may become a baseline
    runs = _replayed(target, engine, chosen, sampling, concurrency, source, prompts, min_prompts)
    if save:
        _save(context, runs, route)
    _show(runs, format_)


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
    click.echo(f"saved as runs {ids[0]} to {ids[-1]} of route {route}", err=True)


def _api_key(env: str | None, file: Path | None) -> str | None:
    """Raises ConfigError for a variable that is not set or a file that cannot be read."""
    from monitor.config.secrets import Secret

    if env is not None and file is not None:
        raise click.UsageError("give --api-key-env or --api-key-file, not both")
    if env is None and file is None:
        return None
    return Secret(env=env, file=file).reveal(os.environ)


def _chosen_sets(directory: Path | None, domains: Sequence[str]) -> list[PromptSet]:
    """Raises PromptError for unreadable sets."""
    from monitor.prompts.sets import bundled_directory, load_prompt_sets

    sets = load_prompt_sets(directory or bundled_directory())
    if unknown := [domain for domain in domains if domain not in sets]:
        raise click.UsageError(f"no domain {unknown[0]!r}; there are: {', '.join(sets)}")
    return [sets[domain] for domain in dict.fromkeys(domains or sets)]


def _replayed(
    target: Target,
    engine_name: str,
    sets: Sequence[PromptSet],
    sampling: Sampling,
    concurrency: int,
    source: SourceWish,
    limit: int | None,
    min_prompts: int,
) -> list[Run]:
    """The runs of all domains one after the other, with progress on stderr; a replica that is gone ends it early."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from monitor.core.records import Run
    from monitor.engines.failures import GONE
    from monitor.probing.recognise import engine_at
    from monitor.probing.replay import replay

    async def replay_all(progress: Progress) -> list[Run]:
        runs: list[Run] = []
        engine = await engine_at(target, engine_name)
        for prompt_set in sets:
            task = progress.add_task(prompt_set.domain, total=len(prompt_set.prompts[:limit]))
            run = await replay(
                target,
                engine,
                prompt_set,
                route="",
                sampling=sampling,
                concurrency=concurrency,
                source=source,
                limit=limit,
                min_prompts=min_prompts,
                on_sample=lambda _, task=task: progress.advance(task),  # type: ignore[misc]
            )
            assert isinstance(run, Run)  # without max_waiting nobody stands aside
            runs.append(run)
            if run.invalid_reason in GONE:
                break
        return runs

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        return asyncio.run(replay_all(progress))


def _show(runs: Sequence[Run], format_: str) -> None:
    """Prints the result. Raises TargetError when no sample of any run is valid."""
    from monitor.errors import TargetError

    document = document_of(runs)
    measured = any(domain["prompts_valid"] for domain in document["domains"])
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    elif measured:
        emit(document["domains"], COLUMNS, format_, "")
    if not measured:
        first = next(run for run in runs if run.invalid_reason)
        raise TargetError(first.invalid_reason or "", first.invalid_detail or "")
    if format_ in ("table", "markdown"):
        click.echo(f"\n{_identity_line(document['identity'])}")
    for warning in document["warnings"]:
        click.echo(f"warning: {warning}", err=True)


def document_of(runs: Sequence[Run]) -> dict[str, Any]:
    """The JSON of a one-shot probe (docs/json.md): identity, figures by domain, raw counts by prompt, warnings."""
    from monitor.core.figures import aggregate

    return {
        "identity": runs[0].identity.as_dict(),
        "replica": runs[0].replica,
        "concurrency": runs[0].concurrency,
        "sampling": runs[0].sampling.as_dict(),
        "domains": [
            {
                **aggregate(run.domain, run.samples).as_dict(),
                "prompt_set_hash": run.prompt_set_hash,
                "started_at": run.started_at.isoformat(),
                "finished_at": run.finished_at.isoformat(),
                "invalid_reason": run.invalid_reason,
                "invalid_detail": run.invalid_detail,
                "acceptance_by_source": dict(run.acceptance_by_source),
            }
            for run in runs
        ],
        "samples": [{"domain": run.domain, **sample.as_dict()} for run in runs for sample in run.samples],
        "warnings": _warnings(runs),
    }


def _warnings(runs: Sequence[Run]) -> list[str]:
    """Those of every run once, those of some with their domain, and why prompts are invalid."""
    everywhere = [w for w in runs[0].warnings if all(w in run.warnings for run in runs)]
    found = list(everywhere)
    for run in runs:
        found += [f"{run.domain}: {warning}" for warning in run.warnings if warning not in everywhere]
        invalid = [sample for sample in run.samples if not sample.valid]
        if invalid:
            why = f"{invalid[0].invalid_reason}: {invalid[0].invalid_detail}"
            found.append(f"{run.domain}: {len(invalid)} of {len(run.samples)} prompts are invalid, the first {why}")
    return found


def _identity_line(identity: Mapping[str, Any]) -> str:
    names = ("engine", "version", "model", "root", "method", "drafter", "k", "fingerprint")
    known = [f"{'K' if name == 'k' else name} {identity[name]}" for name in names if identity[name] is not None]
    return " · ".join(known) or "identity unknown"


def _lengths(row: Mapping[str, Any]) -> str:
    pooled, mean = row["acceptance_length"], row["acceptance_length_prompt_mean"]
    return NOTHING if pooled is None else f"{figure('', pooled)} ({figure('', mean)})"


def _survival(row: Mapping[str, Any]) -> str:
    shares = row["survival"]
    return survival_text(shares[:SURVIVAL_SHOWN]) + (" …" if len(shares) > SURVIVAL_SHOWN else "")


COLUMNS = (
    Column("domain", lambda row: str(row["domain"])),
    Column("AL (mean)", _lengths, right=True),
    Column("survival", _survival),
    Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
    Column("tok/step", lambda row: figure("tokens_per_step", row["tokens_per_step"]), right=True),
    Column("tok/s", lambda row: figure("tokens_per_second", row["tokens_per_second"]["p50"]), right=True),
    Column("TTFT", lambda row: figure("ttft_seconds", row["ttft_seconds"]["p50"]), right=True),
    Column("valid", lambda row: f"{row['prompts_valid']}/{row['prompts_total']}", right=True),
    Column("source", lambda row: row["source"] or NOTHING),
)
