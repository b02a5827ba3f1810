"""`specwatch serve`: the service."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from types import FrameType

    from monitor.cli.context import Context


def address(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, int]:
    """HOST:PORT, the host of an IPv6 address in brackets."""
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT; write for example 127.0.0.1:8400")
    return host, int(port)


listen_option = click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8400",
    show_default=True,
    callback=address,
    help="Where /healthz, /readyz and /metrics answer.",
)


@click.command()
@listen_option
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Probes run at once; never two on one replica.  [default: a quarter of the replicas, from 8 to 32]",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running probes may finish after SIGTERM before they go back to the queue.",
)
@click.option(
    "--wait-for-database",
    "patience_seconds",
    type=click.FloatRange(0, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a database that does not answer yet is waited for at the start, before exit code 3.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning"]),
    default="info",
    show_default=True,
    help="How much is written to stderr.",
)
@click.pass_obj
def serve(
    context: Context,
    listen: tuple[str, int],
    workers: int | None,
    grace: float,
    patience_seconds: float,
    log_level: str,
) -> None:
    """Probe every route on schedule, judge, and send alerts.

    Reads routes.yaml and alerting.yaml, upgrades an older schema, and runs until SIGTERM or Ctrl-C.
    """
    from monitor.cli.greeting import greeting
    from monitor.service.discovery import Replicas
    from monitor.service.serve import Service

    set_up_logging(log_level)
    signal.signal(signal.SIGTERM, leave)
    config = context.load_config(os.environ)
    prompt_sets = context.prompt_sets(config)
    replicas = Replicas(config.routes)
    asyncio.run(replicas.start())
    with context.database_and_keeper(patience_seconds) as (database, keep_alive):

        def greet(listening: tuple[str, int]) -> None:
            own = keep_alive is not None
            click.echo(greeting(config, prompt_sets, replicas, database, listening, own=own), err=True)

        service = Service(
            config,
            database,
            prompt_sets,
            listen=listen,
            workers=workers,
            grace_seconds=grace,
            keep_alive=keep_alive,
            replicas=replicas,
            on_started=None if log_level == "warning" else greet,
        )
        asyncio.run(service.run())


def leave(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM before the service takes it: an own Postgres that is being started must not stay behind."""
    raise SystemExit(0)


def set_up_logging(level: str) -> None:
    """Plain lines on stderr; libraries only from warnings on."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("monitor").setLevel(level.upper())
    logging.getLogger("specwatch").setLevel(level.upper())
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # the worker says what is lost, and when it is back
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
