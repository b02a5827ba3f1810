"""What `specwatch probe` is asked: its arguments, each refused here when it cannot be used."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.parameters import engine_option, server_url
from monitor.config.limits import MAX_CONCURRENCY, MAX_GPUS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.core.records import Identity, Sampling
    from monitor.probing.outcome import SourceWish
    from monitor.probing.target import Target

PATH = click.Path(path_type=Path)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The options of one probe as they were given; the parameters of the command by name."""

    url: str
    domains: tuple[str, ...]
    prompts: int | None
    concurrency: int
    max_tokens: int
    engine: str
    data_parallel_rank: int | None
    model: str | None
    method: str | None
    api_key_env: str | None
    api_key_file: Path | None
    ca_file: Path | None
    headers: dict[str, str]
    endpoint: str
    source: SourceWish
    temperature: float
    cache: str
    thinking: bool | None
    prompts_dir: Path | None
    extra_body: dict[str, Any]
    save: bool
    route: str

    def __post_init__(self) -> None:
        """Raises UsageError for a warm pass of a drafter that learns."""
        from monitor.core.learning import learns_from_replay

        if self.cache == "both" and learns_from_replay(self.engine, self.method):
            raise click.UsageError(
                f"--method {self.method} drafts from answers it has seen, so that a warm pass shows them and not the "
                "cache; use --cache cold"
            )

    def target(self) -> Target:
        """The server to ask. Raises ConfigError for a key that cannot be had."""
        from monitor.probing.target import Target

        return Target(
            self.url,
            self.model,
            self._api_key(),
            self.headers,
            self.ca_file,
            data_parallel_rank=self.data_parallel_rank,
        )

    def sampling(self) -> Sampling:
        from monitor.core.records import Sampling

        return Sampling(
            endpoint=self.endpoint,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            cache="warm" if self.cache == "warm" else "cold",
            chat_template_kwargs=() if self.thinking is None else (("enable_thinking", self.thinking),),
            extra_body=tuple(self.extra_body.items()),
        )

    @property
    def passes(self) -> int:
        """How often each prompt is asked."""
        return 2 if self.cache == "both" else 1

    def declared(self) -> Identity:
        from monitor.core.records import Identity

        return Identity() if self.method is None else Identity(method=self.method, declared=("method",))

    def _api_key(self) -> str | None:
        """Raises ConfigError for a variable that is not set or a file that cannot be read."""
        from monitor.config.secrets import Secret

        if self.api_key_env is not None and self.api_key_file is not None:
            raise click.UsageError("give --api-key-env or --api-key-file, not both")
        if self.api_key_env is None and self.api_key_file is None:
            return None
        return Secret(env=self.api_key_env, file=self.api_key_file).reveal(os.environ)


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


def _extra_body(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, Any]:
    from monitor.config.settings import extra_body

    try:
        document = json.loads(value, parse_constant=_no_constant) if value else {}
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise click.BadParameter('write a JSON object, for example {"priority": 10}')
    try:
        return dict(extra_body(document))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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


OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.argument("url", callback=server_url),
    click.option("--domain", "domains", multiple=True, help="Only this domain; repeatable.  [default: all]"),
    click.option("--prompts", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts of each domain."),
    click.option(
        "--concurrency",
        type=click.IntRange(1, MAX_CONCURRENCY),
        default=4,
        show_default=True,
        help="Prompts in flight.",
    ),
    click.option(
        "--max-tokens", type=click.IntRange(1, MAX_TOKENS), default=128, show_default=True, help="Tokens per answer."
    ),
    engine_option,
    click.option(
        "--data-parallel-rank",
        type=click.IntRange(0, MAX_GPUS),
        metavar="N",
        help="Only this data-parallel engine of vLLM.  [default: the server chooses]",
    ),
    click.option("--model", help="Model to ask for.  [default: the only one that is served]"),
    click.option(
        "--method",
        metavar="NAME",
        help="How drafts are made, where the server does not tell: draft_model, eagle, mtp, ngram, suffix ...",
    ),
    click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the key."),
    click.option("--api-key-file", type=PATH, metavar="PATH", help="File that holds the key."),
    click.option("--ca-file", type=PATH, metavar="PATH", help="Certificates to trust besides the usual ones."),
    click.option("--header", "headers", multiple=True, callback=_headers, metavar="NAME=VALUE", help="Repeatable."),
    click.option(
        "--endpoint",
        type=click.Choice(["chat", "completions"]),
        default="chat",
        show_default=True,
        help="Whole conversations through the chat template, or first turns as raw text.",
    ),
    click.option(
        "--source",
        type=click.Choice(["auto", "request", "stream", "counters"]),
        default="auto",
        show_default=True,
        help="Where counts come from: the server's own per request, tokens per chunk, or its metrics page around each "
        "prompt, one at a time.",
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(0, 2),
        default=0.0,
        show_default=True,
        callback=_finite,
        help="Of sampling; 0 is greedy.",
    ),
    click.option(
        "--cache",
        type=click.Choice(["cold", "warm", "both"]),
        default="cold",
        show_default=True,
        help="Keep the run apart from what earlier requests left in the prefix cache, or let it meet that; both: the "
        "first, then the same prompts once more, warm.",
    ),
    click.option("--thinking/--no-thinking", default=None, help="Set enable_thinking.  [default: the model decides]"),
    click.option("--prompts-dir", type=PATH, metavar="DIR", help="Your own prompt sets, one DOMAIN.jsonl each."),
    click.option("--extra-body", callback=_extra_body, metavar="JSON", help="Further keys of every request."),
    click.option(
        "--save",
        is_flag=True,
        help="Keep the runs in the store, to see with 'specwatch history'; under 12 valid prompts a run is invalid.",
    ),
    click.option(
        "--route",
        default="probe",
        show_default=True,
        callback=_route_name,
        help="Route the saved runs are kept under.",
    ),
)


def probe_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command every parameter of ProbeOptions, shown in its help in the order they stand here."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
