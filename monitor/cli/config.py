"""`specwatch config`: the two YAML files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from monitor.cli.context import Context


@click.group()
def config() -> None:
    """Check routes.yaml and alerting.yaml."""


@config.command()
@click.pass_obj
def check(context: Context) -> None:
    """Read both files as 'serve' would, secrets and prompt sets included; exit code 2 with every problem found."""
    from monitor.cli.receivers import described, hears_text
    from monitor.config.load import check_secrets
    from monitor.config.units import format_duration
    from monitor.core.format import count

    loaded = context.load_config()
    check_secrets(loaded, os.environ)
    sets = context.prompt_sets(loaded)
    sizes = f"{count(len(loaded.routes), 'route')}, {count(len(loaded.alerting.rules), 'rule')}"
    click.echo(f"{loaded.directory}: {sizes}, no problems")
    for route in loaded.routes:
        prompts = [prompt for domain in route.domains for prompt in sets[domain].prompts]
        answers = sum(len(prompt.turns) for prompt in prompts) if route.endpoint == "chat" else len(prompts)
        hourly = answers * route.max_tokens * (3600 / route.every.total_seconds())
        click.echo(
            f"  {route.name}: {count(len(route.domains), 'domain')} every {format_duration(route.every)}, "
            f"{count(len(prompts), 'prompt')}, "
            f"at most {hourly:,.0f} generated tokens an hour over {count(len(route.replicas), 'replica')}"
        )
    for receiver in described(loaded):
        click.echo(f"  receiver {receiver['name']} → {receiver['where']}: {hears_text(receiver)}")
