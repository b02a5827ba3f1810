"""How fast a full outbox is drained to a healthy web hook by one process, beside POSTing the same bodies bare, and how
long a message waits there while another web hook takes connections and never answers.

    python benchmarks/delivery.py [--deliveries 1000] [--seconds 30]

Every delivery is claimed under a lease, sent and marked, by the loop that `serve` runs. Bare: the same bodies, 50 at
once, one client each, and no database. Beside the other: a message is queued to the healthy one every half second, and
its wait is from then to its mark in the store.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sqlalchemy import func, select
from stage import machine

from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.posting import Post, post
from monitor.alerting.receivers import build_receivers
from monitor.alerting.sender import Sender
from monitor.config.alerting import Alerting
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.postgres import EmbeddedPostgres
from monitor.service.outgoing import Outgoing
from monitor.store import incident_events, incidents, migrate, outbox
from monitor.store.database import Database
from monitor.store.schema import deliveries

AT_ONCE = 50
BOUND_SECONDS = 60
WAIT_BOUND_SECONDS = 5
HANGS_FOR = "25s"
HANGING = 100
"""Messages that wait for the web hook that never answers: more than are sent at once."""
STATE = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})


class Hook(BaseHTTPRequestHandler):
    """Takes everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002
        return


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as the sender opens."""

    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--deliveries", type=int, default=1000)
    options.add_argument("--seconds", type=int, default=30, help="of sending beside a web hook that never answers")
    asked = options.parse_args()
    number = asked.deliveries
    logging.disable(logging.WARNING)  # of each attempt that is not answered
    print(f"{machine.described()}, load {machine.load()}")
    server = Server(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres(Path(directory)) as database_url:
        database = Database(database_url)
        migrate.upgrade(database)
        _fill(database, range(number), ["hook"])
        seconds = asyncio.run(_drained(database, url))
        waits = asyncio.run(_beside_hanging(database, url, number, asked.seconds))
        database.close()
    bare = asyncio.run(_posted(url, number))
    print(f"{number} deliveries drained in {seconds:.1f} s, bound {BOUND_SECONDS} s for 1000")
    print(f"bare POSTs of the same bodies: {bare:.1f} s; the outbox takes {seconds / bare:.1f} times that")
    shown = f"{statistics.median(waits):.2f} s at the median, {max(waits):.2f} s at most, bound {WAIT_BOUND_SECONDS} s"
    print(f"beside a web hook that never answers: {len(waits)} messages from queued to sent in {shown}")


def _document(number: int) -> dict[str, object]:
    moment = datetime.now(UTC).isoformat()
    route = f"route-{number}"
    return {
        "transition": "opened",
        "route": route,
        "labels": {"team": "chat"},
        "severity": "page",
        "domain": "coding",
        "domains": ["coding"],
        "opened_at": moment,
        "happened_at": moment,
        "link": None,
        "summary": f"PAGE {route} · coding: acceptance length 2.20, 35% below its baseline 3.41",
        "text": f"PAGE {route} · coding\n" + "  evidence   a line of a message as long as they are\n" * 12,
    }


def _fill(database: Database, positions: Sequence[int], receivers: list[str]) -> None:
    now = datetime.now(UTC)
    with database.transaction() as connection:
        for position in positions:
            document = _document(position)
            incident_id = incidents.save_state(connection, str(document["route"]), None, STATE, now)
            incident_events.add_event(connection, incident_id, Transition.OPENED, document, receivers, now)


@contextlib.asynccontextmanager
async def _sending(database: Database, urls: dict[str, str]) -> AsyncIterator[None]:
    """The loop of `serve` runs."""
    settings = {
        "rules": [{"name": "acceptance-drop", "drop": "15%"}],
        "receivers": [{"name": name, "webhook": {"url": url, "timeout": HANGS_FOR}} for name, url in urls.items()],
    }
    receivers = build_receivers(Alerting.model_validate(settings))
    running = asyncio.create_task(Outgoing(Sender(database, receivers, lambda: datetime.now(UTC))).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _drained(database: Database, url: str) -> float:
    began = time.monotonic()
    async with _sending(database, {"hook": url}):
        await _until_sent(database)
        return time.monotonic() - began


async def _beside_hanging(database: Database, url: str, first: int, seconds: int) -> list[float]:
    """Seconds from queued to sent of each message to the healthy one."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as hanging:  # the kernel takes connections, nobody reads
        _fill(database, range(first, first + HANGING), ["hanging"])
        last = first + HANGING + 2 * seconds
        async with _sending(database, {"hook": url, "hanging": f"http://127.0.0.1:{hanging.getsockname()[1]}/"}):
            for position in range(first + HANGING, last):
                await asyncio.to_thread(_fill, database, [position], ["hook"])
                await asyncio.sleep(0.5)
            await _until_sent(database)
    waited = func.extract("epoch", deliveries.c.sent_at - deliveries.c.due_at)
    newest = select(waited).where(deliveries.c.receiver == "hook").order_by(deliveries.c.id.desc()).limit(2 * seconds)
    with database.transaction() as connection:
        return [float(wait) for wait in connection.execute(newest).scalars()]


async def _until_sent(database: Database) -> None:
    sent = False
    while not sent:
        await asyncio.sleep(0.1)
        sent = await asyncio.to_thread(_is_sent, database)


def _is_sent(database: Database) -> bool:
    with database.transaction() as connection:
        return ("hook", "pending") not in outbox.outbox_counts(connection)


async def _posted(url: str, number: int) -> float:
    bodies = [json.dumps(webhook_body("hook", n, _document(n), None)).encode() for n in range(number)]
    began = time.monotonic()
    for start in range(0, number, AT_ONCE):
        await asyncio.gather(*(post(Post(url, body), 10) for body in bodies[start : start + AT_ONCE]))
    return time.monotonic() - began


if __name__ == "__main__":
    main()
