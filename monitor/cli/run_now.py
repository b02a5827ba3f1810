"""`specwatch run now`: a run outside the schedule, made and judged by the running `serve`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from monitor.core.format import count, run_line
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.cli.context import Context
    from monitor.config.routes import Route
    from monitor.service.jobs import ProbeJob
    from monitor.store.database import Database

NOBODY_SECONDS = 30.0
"""How long `--wait` waits for a `serve` when none is running: time to start one."""


@click.command("now")
@click.argument("route")
@click.option(
    "--domain", "domains", multiple=True, help="Only this domain; repeatable.  [default: every one of the route]"
)
@click.option("--replica", metavar="URL", help="On this replica.  [default: where the domain's last slot went]")
@click.option("--wait", is_flag=True, help="Wait until the runs are recorded, and print a line for each.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that --wait waits.",
)
@click.pass_obj
def run_now(
    context: Context, route: str, domains: tuple[str, ...], replica: str | None, wait: bool, timeout_seconds: float
) -> None:
    """Ask the running 'serve' to probe a route of routes.yaml now. The runs are judged as scheduled ones are.

    Exit codes: 0 queued, or with --wait every run is valid; 13 a run is invalid or no 'serve' takes it; 4 not recorded
    within --timeout. What is queued stays queued.
    """
    from monitor.service.asking import ask
    from monitor.service.discovery import replicas_now

    found = context.route(route)
    wanted = _domains(found, domains)
    replicas = replicas_now(found)
    if replica is not None and replica not in replicas:
        raise UsageError(f"{replica} is not a replica of {route}; there are: {', '.join(replicas)}")
    with context.database() as database:
        jobs, served = ask(database, found, wanted, replicas, replica, datetime.now(UTC))
        for job in jobs:
            click.echo(f"queued {job.route} · {job.domain} on {job.replica}")
        if not served:
            click.echo("no running 'specwatch serve' works on this store: start one, and it makes them", err=True)
        if wait:
            raise SystemExit(_wait(database, jobs, timeout_seconds))
    if served:
        click.echo(f"the running 'specwatch serve' makes them; 'specwatch runs --route {route}' shows them")


def _domains(route: Route, wanted: Sequence[str]) -> list[str]:
    for domain in wanted:
        if domain not in route.domains:
            raise UsageError(f"{domain} is not a domain of {route.name}; there are: {', '.join(route.domains)}")
    return list(dict.fromkeys(wanted)) or list(route.domains)


def _wait(database: Database, jobs: Sequence[ProbeJob], timeout_seconds: float) -> int:
    """Prints a line for each run as it is recorded; returns the exit code."""
    from monitor.service.asking import Nobody, recorded

    valid = ended = 0
    try:
        for job, run, verdicts in recorded(
            database, jobs, timeout_seconds=timeout_seconds, alone_seconds=NOBODY_SECONDS
        ):
            ended += 1
            if run is None:
                why = "the 'serve' that took it does not have it in its routes.yaml, or failed; see its log"
                click.echo(f"{job.route} · {job.domain}: no run was made: {why}", err=True)
                continue
            valid += run["valid"]
            detail = "" if run["valid"] else f": {' '.join((run['invalid_detail'] or '').split())}"
            click.echo(f"{run_line(run, verdicts)}{detail}")
    except Nobody:
        left = count(len(jobs) - ended, "probe")
        click.echo(f"no 'specwatch serve' took {left} within {NOBODY_SECONDS:.0f} s; what is queued stays", err=True)
        return 13
    except TimeoutError:
        left = count(len(jobs) - ended, "probe")
        click.echo(f"{left} not recorded within {timeout_seconds:.0f} s; what is queued stays", err=True)
        return 4
    return 0 if valid == len(jobs) else 13
