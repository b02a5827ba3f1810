"""`specwatch config`: the two YAML files."""

from __future__ import annotations

import asyncio
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
    """Read both files as 'serve' would, secrets and prompt sets included; exit code 2 with every problem found.

    Replicas that are to be found by name, file or HTTP are looked for, and shown.
    """
    from monitor.cli.greeting import configuration_lines
    from monitor.core.format import count
    from monitor.service.discovery import Replicas

    loaded = context.load_config(os.environ)
    sets = context.prompt_sets(loaded)
    replicas = Replicas(loaded.routes)
    asyncio.run(replicas.start())
    sizes = f"{count(len(loaded.routes), 'route')}, {count(len(loaded.alerting.rules), 'rule')}"
    click.echo(f"{loaded.directory}: {sizes}, no problems")
    for line in configuration_lines(loaded, sets, replicas):
        click.echo(f"  {line}")
