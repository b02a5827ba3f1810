"""`specwatch sweep`: where speculation pays and where it stops paying, measured over concurrencies."""

from __future__ import annotations

import json
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.curves import show_sweeps
from monitor.cli.output import format_option
from monitor.cli.parameters import chosen_sets, engine_option, server_url
from monitor.cli.progress import shown_progress
from monitor.cli.sweep_servers import measured, named, of_route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.cli.context import Context
    from monitor.core.sweep import Sweep
    from monitor.prompts.sets import Prompt

PATH = click.Path(path_type=Path)


def _concurrencies(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = sorted({int(word) for word in value.split(",")})
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers; write for example 1,4,16") from None
    if found[0] < 1 or found[-1] > 1024:
        raise click.BadParameter("a concurrency is a number from 1 to 1024")
    return tuple(found)


def _speculative_configs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise click.BadParameter(f"{value!r} is not JSON: {error}") from None
        if not isinstance(document, dict) or "num_speculative_tokens" not in document:
            example = '{"method": "ngram", "num_speculative_tokens": 4}'
            raise click.BadParameter(f"{value!r} is no object with num_speculative_tokens; write for example {example}")
    return values


@click.command()
@click.argument("route", required=False)
@click.option("--plain", callback=server_url, metavar="URL", help="Server of the same model without speculation.")
@click.option(
    "--speculative", multiple=True, callback=server_url, metavar="URL", help="Server with speculation; repeatable."
)
@engine_option
@click.option("--model", metavar="MODEL", help="Start 'vllm serve MODEL' here, plain and speculative in turn.")
@click.option(
    "--speculative-config",
    "configs",
    multiple=True,
    callback=_speculative_configs,
    metavar="JSON",
    help="With --model: what vllm serve is given; repeatable, all are compared with one plain server.",
)
@click.option(
    "--vllm-command",
    default="vllm serve",
    show_default=True,
    metavar="COMMAND",
    help="With --model: what starts a server, before the model's name.",
)
@click.option("--vllm-args", default="", metavar="ARGS", help="With --model: further arguments of both servers.")
@click.option("--log-dir", type=PATH, metavar="DIR", help="With --model: where server logs go.  [default: a new one]")
@click.option(
    "--start-timeout",
    type=click.IntRange(min=1),
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="With --model: until a server must be healthy.",
)
@click.option(
    "--concurrency",
    "concurrencies",
    callback=_concurrencies,
    default="1,2,4,8,16,32,48,64,128",
    show_default=True,
    metavar="LIST",
    help="Requests in flight, one point each.",
)
@click.option(
    "--prompts",
    type=click.IntRange(min=12),
    default=24,
    show_default=True,
    metavar="N",
    help="Prompts that count in a pass; at least as many as the concurrency.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Passes at each concurrency.")
@click.option("--max-tokens", type=click.IntRange(min=16), default=128, show_default=True, help="Tokens per answer.")
@click.option("--domain", "domains", multiple=True, help="Only prompts of this domain; repeatable.  [default: all]")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of one server, for tokens/s per GPU.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key of the servers.")
@click.option("--save", is_flag=True, help="Keep the curve in the store, to see with 'specwatch sweeps'.")
@click.option(
    "--for",
    "for_route",
    metavar="ROUTE",
    help="With --save: the route that the servers stand for, on the same GPUs; its rules with 'below: break_even' and "
    "'specwatch advise' then use the curve.",
)
@format_option
@click.pass_obj
def sweep(
    context: Context,
    route: str | None,
    *,
    plain: str | None,
    speculative: tuple[str, ...],
    engine: str,
    model: str | None,
    configs: tuple[str, ...],
    vllm_command: str,
    vllm_args: str,
    log_dir: Path | None,
    start_timeout: int,
    concurrencies: tuple[int, ...],
    prompts: int,
    repeats: int,
    max_tokens: int,
    domains: tuple[str, ...],
    gpus: int | None,
    api_key_env: str | None,
    save: bool,
    for_route: str | None,
    format_: str,
) -> None:
    """Measure the speedup of speculation over concurrencies, and where it ends.

    Compares running servers (--plain and --speculative), the first replica of ROUTE with its plain_twin, or servers
    that are started here (--model and --speculative-config) one after the other and always stopped. Every point replays
    the same prompts on both sides, warm-up left out; its interval is over prompts and passes.

    This is a load test: point it at servers that nobody else uses. Exit code 13 when a server cannot be measured.
    """
    from monitor.core.records import Sampling
    from monitor.probing.sweep import Plan

    sampling = Sampling(max_tokens=max_tokens)
    modes = [name for name, given in (("ROUTE", route), ("--plain", plain), ("--model", model)) if given]
    if len(modes) != 1:
        raise click.UsageError("give ROUTE, or --plain and --speculative, or --model and --speculative-config")
    if (plain is not None) != bool(speculative):
        raise click.UsageError("--plain and --speculative are given together")
    if (model is not None) != bool(configs):
        raise click.UsageError("--model and --speculative-config are given together")
    if for_route is not None and (not save or route is not None):
        raise click.UsageError("--for ROUTE goes with --save and servers that are named or started here")
    if for_route is not None and (known := context.configured()) and for_route not in known:
        raise click.UsageError(f"--for: there is no route {for_route!r}; there are: {', '.join(known)}")
    if engine != "auto" and plain is None:
        raise click.UsageError("--engine is for --plain and --speculative: a route names its own, --model starts vLLM")
    if route is not None:
        servers, sampling = of_route(context, route, sampling)
    else:
        servers = named(plain, speculative, model, configs, api_key_env, engine)
    command = (*shlex.split(vllm_command), *([model] if model else ()), *shlex.split(vllm_args))
    servers = replace(
        servers,
        command=command,
        log_directory=log_dir or Path(tempfile.mkdtemp(prefix="specwatch-sweep-")) if model else Path(),
        start_seconds=start_timeout,
    )
    plan = Plan(_prompts(domains), sampling, concurrencies, prompts, repeats, gpus=gpus)
    with shown_progress(plan.sent_to_each() * servers.number, "requests") as progress:
        found = measured(plan, servers, progress)
    if save:
        _save(context, found, route or for_route)
    _show(found, format_)


def _prompts(domains: Sequence[str]) -> tuple[Prompt, ...]:
    """The first prompts of every domain, then the second ones, and so on: any beginning is a mix of domains."""
    from itertools import chain, zip_longest

    chosen = [prompt_set.prompts for prompt_set in chosen_sets(None, domains)]
    return tuple(prompt for prompt in chain.from_iterable(zip_longest(*chosen)) if prompt is not None)


def _save(context: Context, found: Sequence[Sweep], route: str | None) -> None:
    """Raises StoreError."""
    from monitor.store import migrate
    from monitor.store.sweeps import store_sweep

    with context.database(reading=False) as database:
        migrate.upgrade(database)
        with database.transaction() as connection:
            ids = [store_sweep(connection, one, route) for one in found]
    for one, sweep_id in zip(found, ids, strict=True):
        kept = "saved" if one.measured else f"nothing was measured of {one.label}, and why not is kept"
        click.echo(f"{kept} as sweep {sweep_id}; see 'specwatch sweeps {sweep_id}'", err=True)


def _show(found: Sequence[Sweep], format_: str) -> None:
    """Prints the curves. Raises TargetError when one of them has no valid point."""
    from monitor.errors import TargetError

    show_sweeps([one.as_dict() for one in found], format_)
    for one in found:
        if not one.measured:
            first = one.points[0]
            raise TargetError(
                first.invalid_reason or "", f"no point of {one.label} could be measured: {first.invalid_detail}"
            )
