"""`specwatch demo`: the whole product on simulated servers, with time compressed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from monitor.cli.context import Context
from monitor.cli.serve import listen_option, set_up_logging

if TYPE_CHECKING:
    from monitor.config.load import Config


@click.command()
@listen_option
@click.option(
    "--once", is_flag=True, help="Exit once the incident has opened and resolved; exit code 4 after 3 minutes."
)
@click.pass_obj
def demo(context: Context, listen: tuple[str, int], once: bool) -> None:
    """See an acceptance incident open and resolve on simulated servers.

    Two routes, demo-chat and demo-code, are served by a fake vLLM over real HTTP and probed every few seconds. A
    drafter is swapped on one of them, one domain collapses, the alert is printed as it would be sent, the swap is
    undone, the incident resolves. In a directory without routes.yaml the example that comes with Specwatch is played;
    where routes.yaml has both, your own routes are probed beside the simulated ones, on their own schedule. What is
    stored of the simulated routes is forgotten when the demo ends, or, after --once, when the next one begins.
    """
    from monitor.service.demo import Demo

    set_up_logging("warning")
    config = _config(context)
    prompt_sets = context.prompt_sets(config)
    with context.database_and_keeper() as (database, keep_alive):
        show = Demo(config, database, prompt_sets, listen=listen, keep_alive=keep_alive, once=once)
        if not asyncio.run(show.run()):
            raise SystemExit(4)


def _config(context: Context) -> Config:
    """The user's configuration when it has demo routes, else the example that comes with Specwatch."""
    import os

    from monitor.config.load import config_directory

    directory = config_directory(context.config_dir, os.environ)
    if (directory / "routes.yaml").exists():
        return context.load_config()
    from monitor.resources import example_directory

    return Context(str(example_directory()), context.database_url).load_config()
