"""The command line: a thin layer over functions that live elsewhere. Commands load only when they are used."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import Any

import click

from monitor import __version__
from monitor.errors import SpecwatchError, UsageError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

COMMANDS = {
    "probe": ("monitor.cli.probe:probe", "Measure one server now; needs no database and no configuration."),
    "serve": ("monitor.cli.serve:serve", "Probe every route on schedule, judge, and send alerts."),
    "demo": ("monitor.cli.demo:demo", "See an acceptance incident open and resolve on simulated servers."),
    "routes": ("monitor.cli.routes:routes", "Show the routes and their latest figures."),
    "history": ("monitor.cli.history:history", "Show figures of a route over time."),
    "speedup": ("monitor.cli.speedup:speedup", "Show how much faster routes are than without speculation."),
    "export": ("monitor.cli.export:export", "Write the history of a route to a file for other programs."),
    "runs": ("monitor.cli.runs:runs", "List the latest runs."),
    "run": ("monitor.cli.runs:run", "Ask for a run now, or look into one, down to single prompts."),
    "compare": ("monitor.cli.compare:compare", "Compare runs, days, identities or baselines prompt by prompt."),
    "bump": ("monitor.cli.bump:bump", "Announce a change of model, drafter or engine, and probe at once."),
    "bumps": ("monitor.cli.bump:bumps", "List bumps, announced or noticed, and what became of the route."),
    "incidents": (
        "monitor.cli.incidents:incidents",
        "List incidents, show one with its timeline, acknowledge or note.",
    ),
    "explain": ("monitor.cli.explain:explain", "Say why a verdict is what it is, and what moved."),
    "runbook": ("monitor.cli.runbook:runbook", "Show what to do about an alert."),
    "silence": ("monitor.cli.silence:silence", "Hold back messages for a while, and see what is held back."),
    "receivers": ("monitor.cli.receivers:receivers", "List who is told of incidents, and send a test message."),
    "baseline": ("monitor.cli.baseline:baseline", "Create, show, approve and list baselines."),
    "gate": ("monitor.cli.gate:gate", "Let a candidate in or not: compare it with production, for a pipeline."),
    "gates": ("monitor.cli.gate:gates", "List the verdicts of gates, or show one."),
    "sweep": ("monitor.cli.sweep:sweep", "Measure where speculation pays, over concurrencies."),
    "sweeps": ("monitor.cli.curves:sweeps", "List saved sweeps, or show one."),
    "reference": ("monitor.cli.references:reference", "Import figures of other tools to look at beside ours."),
    "advise": ("monitor.cli.advise:advise", "Say what to set for a route, with the evidence."),
    "noise": ("monitor.cli.noise:noise", "Measure how noisy a route is, and what its rules give on that."),
    "prompts": ("monitor.cli.prompts:prompts", "List, show, lint and import prompt sets."),
    "config": ("monitor.cli.config:config", "Check routes.yaml and alerting.yaml."),
    "prune": ("monitor.cli.prune:prune", "Remove old samples and passive readings, or tell what would go."),
    "db": ("monitor.cli.db:db", "Upgrade the database schema or show its state."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and one-line help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which is for crashes; `| head` is none
            _write_no_more()
            ctx.exit(0)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            _write_no_more()
            where = error.filename or "the output"
            raise UsageError(f"cannot write {where}: {error.strerror}; make room, or write elsewhere") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _write_no_more() -> None:
    """What is left in buffers must not fail once more when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    "config_dir",
    metavar="DIR",
    help="Directory of routes.yaml and alerting.yaml.  [SPECWATCH_CONFIG, else .]",
)
@click.option("--database-url", metavar="URL", help="Another store than DATABASE_URL or the program's own Postgres.")
@click.version_option(__version__, prog_name="specwatch", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config_dir: str | None, database_url: str | None) -> None:
    """Specwatch watches the acceptance of speculative decoding on vLLM servers.

    Start with 'specwatch demo', or 'specwatch probe http://HOST:8000' on a server of yours.

    Exit codes: 0 done, 2 wrong usage or configuration, 3 database out of reach, 13 server could not be measured.
    """
    from monitor.cli.context import Context

    ctx.obj = Context(config_dir, database_url)


def main() -> None:
    """Runs the command line; every error meant for people ends as one message and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without our characters still gets the figures
    try:
        cli(standalone_mode=False, prog_name="specwatch")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SpecwatchError as error:
        click.echo(f"specwatch: {error}", err=True)
        sys.exit(error.exit_code)
