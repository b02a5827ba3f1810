"""`specwatch receivers`: who is told what, and whether a message would arrive."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit, format_option
from monitor.core.format import NOTHING
from monitor.errors import ConfigError, TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from monitor.alerting.receivers import Receiver
    from monitor.cli.context import Context
    from monitor.config.load import Config


@click.group()
def receivers() -> None:
    """List the receivers of alerting.yaml, send one a test message, or again what it refused."""


@receivers.command("list")
@format_option
@click.pass_obj
def list_(context: Context, format_: str) -> None:
    """List the receivers: where their messages go, and of which routes and severities they hear.

    Every peer of an Alertmanager is asked whether it takes alerts, with none in the request.
    """
    config = context.load_config()
    answers = asyncio.run(_answers_of_peers(config))
    rows = [{**row, "peers": answers.get(row["name"])} for row in described(config)]
    emit(rows, [*COLUMNS, *([PEERS] if answers else [])], format_, "no receivers")


@receivers.command()
@click.argument("name")
@click.option(
    "--severity",
    type=click.Choice(["warning", "page"]),
    default="warning",
    show_default=True,
    help="Which severity the test has, for what routes by it.",
)
@click.pass_obj
def test(context: Context, name: str, severity: str) -> None:
    """Send a receiver a test alert and its resolution, as 'serve' sends real ones; exit code 13 when it takes neither.

    The messages are marked as a test in their text, route and labels. No incident is opened and nothing is stored.
    """
    from monitor.alerting.receivers import build_receivers
    from monitor.cli.serve import set_up_logging

    set_up_logging("warning")
    found = build_receivers(context.load_config().alerting)
    _require(name, found)
    asyncio.run(_send(name, found[name], severity))


@receivers.command()
@click.argument("name")
@click.pass_obj
def retry(context: Context, name: str) -> None:
    """Try again what a receiver refused for good or was given up: of incidents that are open, the ends of those that it
    was told of, and the last message.

    For when its cause is corrected without a start of 'serve', which does the same. A running 'serve' sends within a
    second; 'specwatch incidents ID' shows what became of it.
    """
    from monitor.core.format import count
    from monitor.store.dead import retry_dead

    _require(name, [receiver.name for receiver in context.load_config().alerting.receivers])
    with context.database() as database, database.transaction() as connection:
        number = retry_dead(connection, name, datetime.now(UTC))
    click.echo(
        f"{count(number, 'message')} to {name} will be sent again"
        if number
        else f"there is no message to {name} that is to be sent again"
    )


def _require(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise UsageError(f"there is no receiver {name} in alerting.yaml; there are: {', '.join(known)}")


async def _send(name: str, receiver: Receiver, severity: str) -> None:
    from monitor.alerting.message import trial_event
    from monitor.alerting.posting import Failure
    from monitor.core.incidents import Transition
    from monitor.store.outbox import Delivery

    now = datetime.now(UTC)
    for number, transition in enumerate((Transition.OPENED, Transition.RESOLVED)):
        document = trial_event(name, transition, severity, now)
        # An event id of its own for each test, else a receiver that drops repeats would drop the second.
        event_id = int(now.timestamp() * 1000) + number
        answer = await receiver.send(Delivery(0, name, 0, event_id, transition.value, document, 1))
        if isinstance(answer, Failure):
            raise TargetError("not_delivered", f"{name}: the test message was not accepted: {answer.error}")
        click.echo(f"{document['summary']}\n  sent to {name}: {answer.answer}")


def described(config: Config) -> list[dict[str, Any]]:
    """One document per receiver: `name`, `kind`, `trigger_only`, `where`, and `hears`: severity → names of routes."""
    from monitor.alerting.receivers import TRIGGER_ONLY, build_receivers
    from monitor.alerting.routing import heard

    hears = heard(config.alerting, config.routes)
    built = build_receivers(config.alerting)
    return [
        {
            "name": one.name,
            "kind": one.kind,
            "trigger_only": isinstance(one.settings, TRIGGER_ONLY),
            "where": _where(built[one.name]),
            "hears": hears[one.name],
        }
        for one in config.alerting.receivers
    ]


async def _answers_of_peers(config: Config) -> dict[str, dict[str, str]]:
    """Receiver → peer → what it answers now, of every Alertmanager whose headers can be read."""
    from monitor.alerting.receivers import AlertmanagerReceiver, build_receivers

    built = build_receivers(config.alerting)
    asked = {name: receiver for name, receiver in built.items() if isinstance(receiver, AlertmanagerReceiver)}
    await asyncio.gather(*(receiver.post([]) for receiver in asked.values()))
    return {name: receiver.peers.answers for name, receiver in asked.items()}


def hears_text(row: Mapping[str, Any]) -> str:
    """`page of chat, batch; warning of chat`, or that it hears nothing."""
    parts = [f"{severity} of {', '.join(routes)}" for severity, routes in row["hears"].items() if routes]
    return "; ".join(parts) or "nothing"


def _where(receiver: Receiver) -> str:
    try:
        return receiver.where()
    except ConfigError as error:
        return str(error)


COLUMNS = [
    Column("receiver", lambda row: row["name"]),
    Column("kind", lambda row: row["kind"] + (" (trigger-only)" if row["trigger_only"] else "")),
    Column("where", lambda row: row["where"]),
    Column("hears", hears_text),
]
PEERS = Column("peers", lambda row: "; ".join((row["peers"] or {}).values()) or NOTHING)
