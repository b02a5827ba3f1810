"""What several commands take from the user: a server's address, which prompt sets, and who is asking."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from monitor.prompts.sets import PromptSet


def words(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Something somebody says, on one line; refused when it says nothing."""
    said = None if value is None else " ".join(value.split())
    if said == "":
        raise click.BadParameter("is empty")
    return said


def as_link(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A URL for people to follow; refused with credentials in it."""
    from monitor.config.strict import web_link

    said = words(ctx, param, value)
    try:
        return said and web_link(said)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


by_option = click.option("--by", metavar="NAME", required=True, callback=words, help="Who is doing this.")


def until_time(_ctx: click.Context, _param: click.Parameter, value: str) -> datetime:
    """An end to come: `7d` from now, a date or an ISO time (local when it has no zone)."""
    from monitor.config.units import parse_duration

    now = datetime.now().astimezone()
    try:
        return now + parse_duration(value)
    except ValueError:
        pass
    except OverflowError:
        raise click.BadParameter(f"{value} is too long") from None
    try:
        until = datetime.fromisoformat(value).astimezone()
    except ValueError:
        message = f"{value!r} is neither a duration such as 7d nor a time such as 2026-12-24T18:00"
        raise click.BadParameter(message) from None
    if until <= now:
        raise click.BadParameter(f"{value} is over")
    return until


def server_url(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """The base URL of a server, or each of a repeatable option, as it is stored."""
    from monitor.config.replicas import replica_url

    try:
        return tuple(map(replica_url, value)) if isinstance(value, tuple) else value and replica_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def chosen_sets(directory: Path | None, domains: Sequence[str]) -> list[PromptSet]:
    """Those of the directory (None: that come with Specwatch), or only the domains named. Raises PromptError."""
    from monitor.prompts.sets import bundled_directory, load_prompt_sets

    sets = load_prompt_sets(directory or bundled_directory())
    if unknown := [domain for domain in domains if domain not in sets]:
        raise click.UsageError(f"no domain {unknown[0]!r}; there are: {', '.join(sets)}")
    return [sets[domain] for domain in dict.fromkeys(domains or sets)]


engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "vllm", "sglang", "trtllm", "llamacpp", "tgi", "openai"]),
    default="auto",
    show_default=True,
    help="What the server is; openai is any other with OpenAI's API.",
)
