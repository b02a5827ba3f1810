"""What `specwatch gate` is asked: its arguments, each refused here when it cannot be used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.gate_report import FORMATS
from monitor.cli.parameters import as_link, engine_option, server_url, words
from monitor.config.limits import MAX_CONCURRENCY, MAX_SPEEDUP, MAX_TOKENS
from monitor.config.units import parse_duration, parse_lossless, parse_ratio
from monitor.core.gate import METRICS, REFERENCES
from monitor.core.promotion import Promotion

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from monitor.probing.outcome import SourceWish

DEFAULTS = {"model": None, "engine": "auto", "concurrency": 4, "max_tokens": 128, "source": "auto", "api_key_env": None}
"""Of what routes.yaml says for a route."""


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """The options of one gate as they were given; the parameters of the command by name."""

    route: str | None
    candidate: str
    against: str
    candidate_model: str | None
    max_drop: float
    metric: str
    domains: tuple[str, ...]
    prompts: int | None
    min_prompts: int
    timeout: timedelta
    model: str | None
    engine: str
    concurrency: int
    max_tokens: int
    source: SourceWish
    api_key_env: str | None
    prompts_dir: Path | None
    plain: str | None
    min_speedup: float | None
    require_lossless: float | str | None
    promote: bool
    by: str | None
    link: str | None

    def __post_init__(self) -> None:
        if self.route is None and self.against in REFERENCES:
            raise click.UsageError("without ROUTE, name the server to hold the candidate against: --against URL")
        if self.prompts is not None and self.prompts < self.min_prompts:
            raise click.UsageError(f"--prompts {self.prompts} is less than the {self.min_prompts} that must be valid")
        self._check_promotion()
        if self.route is None and self.plain is None and (self.min_speedup, self.require_lossless) != (None, None):
            raise click.UsageError("a plain twin is needed: name it with --plain URL, or a ROUTE that has a plain_twin")
        given = [name for name, default in DEFAULTS.items() if getattr(self, name) != default]
        if self.route is not None and (given or self.prompts_dir):
            name = (given or ["prompts_dir"])[0].replace("_", "-")
            raise click.UsageError(f"--{name} is for a gate without ROUTE; a route's own is in routes.yaml")

    def _check_promotion(self) -> None:
        if self.promote and self.route is None:
            raise click.UsageError("--promote is of a route: its baselines and its bump; name ROUTE")
        if self.promote and self.by is None:
            raise click.UsageError("--promote is kept with who promotes: say --by NAME")
        if not self.promote and (self.by, self.link) != (None, None):
            raise click.UsageError("--by and --link are of a promotion: say --promote with them")

    @property
    def promotion(self) -> Promotion | None:
        return Promotion(self.by or "", self.link) if self.promote else None

    def api_key(self) -> str | None:
        """Raises ConfigError for a variable that is not set."""
        from monitor.config.secrets import Secret

        return None if self.api_key_env is None else Secret(env=self.api_key_env).reveal(os.environ)


def _against(context: click.Context, parameter: click.Parameter, value: str) -> Any:
    return value if value in REFERENCES else server_url(context, parameter, value)


def _read(parse: Callable[[object], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A value as the configuration reads it."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.argument("route", required=False),
    click.option("--candidate", required=True, callback=server_url, metavar="URL", help="The server to let in or not."),
    click.option(
        "--against",
        default="production",
        show_default=True,
        callback=_against,
        metavar="production|baseline|URL",
        help="A replica of ROUTE, its approved baselines, or any other server.",
    ),
    click.option(
        "--candidate-model",
        metavar="NAME",
        help="Its model where it is served by another name.  [default: the reference's]",
    ),
    click.option(
        "--max-drop",
        default="10%",
        show_default=True,
        callback=_read(parse_ratio),
        metavar="SHARE",
        help="What it may lose.",
    ),
    click.option(
        "--metric", type=click.Choice(METRICS), default=METRICS[0], show_default=True, help="The figure that decides."
    ),
    click.option("--domain", "domains", multiple=True, help="Only this domain; repeatable.  [default: all]"),
    click.option(
        "--prompts", type=click.IntRange(min=12), metavar="N", help="Only the first N prompts of each domain."
    ),
    click.option(
        "--min-prompts",
        type=click.IntRange(min=12),
        default=12,
        show_default=True,
        metavar="N",
        help="Fewer valid prompts of a domain are no measurement.",
    ),
    click.option(
        "--timeout",
        default="15m",
        show_default=True,
        callback=_read(parse_duration),
        metavar="DURATION",
        help="For all of it; what is not decided by then is inconclusive.",
    ),
    click.option("--model", help="Without ROUTE: the model to ask for.  [default: the only one that is served]"),
    engine_option,
    click.option(
        "--concurrency",
        type=click.IntRange(1, MAX_CONCURRENCY),
        default=DEFAULTS["concurrency"],
        show_default=True,
        help="Without ROUTE: prompts in flight.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1, MAX_TOKENS),
        default=DEFAULTS["max_tokens"],
        show_default=True,
        help="Without ROUTE: tokens per answer.",
    ),
    click.option(
        "--source",
        type=click.Choice(["auto", "request", "stream", "counters"]),
        default=DEFAULTS["source"],
        show_default=True,
        help="Without ROUTE: where counts come from.",
    ),
    click.option("--api-key-env", metavar="NAME", help="Without ROUTE: environment variable that holds the key."),
    click.option(
        "--prompts-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Without ROUTE: your own prompt sets, one DOMAIN.jsonl each.",
    ),
    click.option(
        "--plain",
        callback=server_url,
        metavar="URL",
        help="The candidate's own plain twin: its speedup beside it decides too.  [default: ROUTE's, where needed]",
    ),
    click.option(
        "--min-speedup",
        type=click.FloatRange(0, MAX_SPEEDUP, min_open=True),
        metavar="FACTOR",
        help="How many times as fast as its plain twin the candidate must be.  [default: 1 with a twin]",
    ),
    click.option(
        "--require-lossless",
        callback=_read(parse_lossless),
        metavar="SHARE|twin",
        help="Of the greedy outputs so many must be the plain twin's, or as many as the twin repeats of its own.",
    ),
    click.option(
        "--promote",
        is_flag=True,
        help="On a pass announce the bump of ROUTE, and propose the candidate's runs as its next baselines.",
    ),
    click.option("--by", metavar="NAME", callback=words, help="With --promote: who is doing this."),
    click.option("--link", metavar="URL", callback=as_link, help="With --promote: the pipeline or change request."),
    click.option(
        "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write it there in that format, and print the table.",
    ),
)


def gate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command every parameter of GateOptions, shown in its help in the order they stand here."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
