"""`specwatch gate`: whether a candidate may go on, its waivers, and `specwatch gates`: the verdicts that were kept."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.gate_options import GateOptions, gate_options
from monitor.cli.gate_report import FORMATS, report, verdict_word
from monitor.cli.output import RECORD_ID, Column, emit, local_time, short_time, time_column, with_zone
from monitor.cli.parameters import by_option, chosen_sets, until_time, words
from monitor.core.format import NOTHING, change
from monitor.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from monitor.cli.context import Context
    from monitor.core.gate_verdict import GateVerdict
    from monitor.probing.gate import GateStep
    from monitor.store.database import Database


class _Gate(click.Group):
    """Whatever does not begin with the name of a command is a gate."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args and (args[0] in self.commands or args[0] in self.get_help_option_names(ctx))
        return super().parse_args(ctx, args if own else ["run", *args])


@click.group(cls=_Gate, subcommand_metavar="[ROUTE] OPTIONS | COMMAND")
def gate() -> None:
    """Let a candidate in or not: 'specwatch gate ROUTE --candidate URL' is 'specwatch gate run', which has the options.

    Exit codes: 0 pass, 10 regression, 11 inconclusive, 12 no comparable baseline, 13 not measurable, 2 wrong usage, 3
    database out of reach. Only 0 is a pass. A gate that did not pass may be waived; its verdict and code stay.
    """


@gate.command(name="run")
@gate_options
@click.pass_obj
def run_(context: Context, /, *, format_: str, out: Path | None, **given: Any) -> None:
    """Compare a candidate with ROUTE's production, its baseline or another server: pass, fail, or cannot tell.

    Both are replayed in turn, prompt by prompt, until every domain is decided. Without ROUTE it needs no configuration
    and no database; with ROUTE the verdict is kept, see 'specwatch gates'.

    Exit codes: 0 pass, 10 regression, 11 inconclusive, 12 no comparable baseline, 13 not measurable, 2 wrong usage, 3
    database out of reach. Only 0 is a pass.
    """
    options = GateOptions(**given)
    if out is not None and not os.access(out.parent, os.W_OK):  # said before anything is measured, kept or promoted
        raise UsageError(f"cannot write {out}: {out.parent} is no directory that may be written in; name another file")
    with ExitStack() as stack:
        if options.route is None:
            document = _between_servers(options).as_dict()
            _show(document, format_, out)
        else:
            database = stack.enter_context(context.database(reading=False))
            document = _kept(context, options, database, lambda found: _show(found, format_, out))
    raise SystemExit(document["exit_code"])


def _between_servers(options: GateOptions) -> GateVerdict:
    from monitor.core.records import Sampling
    from monitor.probing.comparing import GatePlan, thresholds_of
    from monitor.probing.gate import run_gate
    from monitor.probing.gate_servers import Server
    from monitor.probing.recognise import engine_at
    from monitor.probing.target import Target

    sets, key = chosen_sets(options.prompts_dir, options.domains), options.api_key()
    plan = GatePlan(
        tuple(sets),
        thresholds_of(options, sets, {}),
        Sampling(max_tokens=options.max_tokens),
        options.concurrency,
        "url",
        source=options.source,
        limit=options.prompts,
        twin=None if options.plain is None else Target(options.plain, options.candidate_model or options.model, key),
    )

    async def measured() -> GateVerdict:
        servers = []
        for name, url in (("candidate", options.candidate), ("reference", options.against)):
            model = (options.candidate_model if name == "candidate" else None) or options.model
            target = Target(url, model, key)
            servers.append(Server(name, target, await engine_at(target, options.engine)))
        return await run_gate(servers[0], servers[1], plan, on_step=_tell)

    return asyncio.run(measured())


def _kept(
    context: Context, options: GateOptions, database: Database, show: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Measures it in its turn and shows the verdict, also where the store is lost meanwhile. Raises StoreError."""
    from monitor.core.gate import GateReason
    from monitor.service.discovery import replicas_now
    from monitor.service.gating import sides_of
    from monitor.service.own_gate import OwnGate
    from monitor.service.promoting import Promoting
    from monitor.store import migrate

    migrate.upgrade(database)
    config, route = context.load_config(), context.route(options.route or "")
    replicas = replicas_now(route) if options.promote or options.against == "production" else ()
    sides = sides_of(database, route, options, context.prompt_sets(config), lambda: replicas)
    promoting = Promoting(route, lambda: replicas)
    gate = OwnGate(database, sides, promoting, lambda: datetime.now(UTC), lambda said: click.echo(said, err=True))
    try:
        verdict = asyncio.run(gate.measure(_tell))
    except UsageError as error:
        gate.give_up(GateReason.RUN_INVALID, str(error))
        raise
    except BaseException as error:
        with suppress(StoreError):  # then others end it, once its lease is over
            gate.give_up(GateReason.INTERRUPTED, f"the command was stopped: {type(error).__name__}")
        raise
    document = {} if verdict is None else verdict.as_dict()
    try:
        document = gate.keep(verdict)
        click.echo(f"kept as gate {gate.id}; see 'specwatch gates {gate.id}'", err=True)
    finally:
        if document:
            show(document)
    return document


def _tell(step: GateStep) -> None:
    """Progress, a line at a time: pipelines keep a log."""
    look = step.look
    so_far = "" if look is None else f" {change(look.change)} after {look.pairs} pairs:"
    left = f"; about {step.seconds_left:.0f} s left" if step.seconds_left >= 1 else ""
    left += f", {step.seconds_over:.0f} s more than --timeout allows" if left and step.seconds_over >= 1 else ""
    state = "not decided yet" if step.reason is None else step.reason.value
    click.echo(f"{step.domain}:{so_far} {state}{left}", err=True)


@gate.command()
@click.argument("gate_id", metavar="ID", type=RECORD_ID)
@by_option
@click.option("--reason", required=True, callback=words, help="Why; shown wherever the waiver is.")
@click.option(
    "--until", required=True, callback=until_time, metavar="TIME", help="7d from now, or a time: 2026-12-24T18:00."
)
@click.pass_obj
def waive(context: Context, gate_id: int, by: str, reason: str, until: datetime) -> None:
    """Record that gate ID did not pass and that somebody goes on nevertheless.

    Its verdict and exit code stay as they are, and so are those of later gates: each gate of the route shows the waiver
    until it ends. Kept for good.
    """
    from monitor.store.waivers import add_waiver

    with context.database() as database, database.transaction() as connection:
        made = add_waiver(connection, gate_id, by, reason, until, datetime.now(UTC))
    before = made["waived"]
    click.echo(
        f"gate {gate_id} ({verdict_word(before['verdict'])}, {before['reason']}) is waived "
        f"until {local_time(made['until'])} by {by}: {reason}; its verdict stands"
    )


def _show(document: Mapping[str, Any], format_: str, out: Path | None) -> None:
    if out is None:
        click.echo(report(document, format_))
        return
    try:
        out.write_text(report(document, format_) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; name another file") from None
    finally:
        click.echo(report(document, "table"))


@click.command()
@click.argument("gate_id", metavar="[ID]", type=RECORD_ID, required=False)
@click.option("--route", help="Only those of this route.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
)
@click.pass_obj
def gates(context: Context, gate_id: int | None, route: str | None, limit: int, format_: str) -> None:
    """List the gates of routes, newest first, or show one."""
    from monitor.store.gates import get_gate, list_gates

    if gate_id is None and format_ == "junit":
        raise click.UsageError("junit is of one gate; name its ID")
    with context.database() as database, database.transaction() as connection:
        if gate_id is None:
            rows = list_gates(connection, route, limit)
            emit(rows, _list_columns(), format_, "no gates yet; 'specwatch gate ROUTE' keeps its verdict")
            return
        found = get_gate(connection, gate_id)
    if found is None:
        raise UsageError(f"there is no gate {gate_id}; see 'specwatch gates'")
    if found["verdict"] is None and format_ != "json":
        raise UsageError(f"gate {gate_id} is {found['status']}: it {found['text']}; --format json shows what is known")
    click.echo(report(found, format_))


def _list_columns() -> list[Column]:
    return [
        Column("gate", lambda row: str(row["id"]), right=True),
        time_column("finished", "finished_at"),
        Column("route", lambda row: row["route"] or NOTHING, once=True),
        Column("verdict", lambda row: verdict_word(row["verdict"] or row["status"])),
        Column(with_zone("waived until"), _waived, if_any=True),
        Column("candidate", lambda row: row["candidate"]["replica"]),
        Column("against", lambda row: row["against"]),
        Column("why", lambda row: row["text"], under=True),
    ]


def _waived(row: Mapping[str, Any]) -> str:
    own = [f"{short_time(one['until'])} by {one['by']}" for one in row["waivers"] if one["gate"] == row["id"]]
    return ", ".join(own) or NOTHING
