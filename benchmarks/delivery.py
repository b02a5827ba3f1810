"""How fast a full outbox is drained to a healthy web hook by one process, beside POSTing the same bodies bare.

    python benchmarks/delivery.py [--deliveries 1000]

Every delivery is claimed under a lease, sent and marked, by the loop that `serve` runs, its pause of a second between
two rounds included. Bare: the same bodies, 50 at once, one client each, as the sender has them, and no database.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stage import machine

from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.posting import Post, post
from monitor.alerting.receivers import build_receivers
from monitor.alerting.sender import Sender
from monitor.config.alerting import Alerting
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.postgres import EmbeddedPostgres
from monitor.service.outgoing import SEND_EVERY_SECONDS
from monitor.store import incident_events, incidents, migrate, outbox
from monitor.store.database import Database

AT_ONCE = 50
BOUND_SECONDS = 60
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
    number = options.parse_args().deliveries
    print(f"{machine.described()}, load {machine.load()}")
    server = Server(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres(Path(directory)) as database_url:
        database = Database(database_url)
        migrate.upgrade(database)
        _fill(database, number)
        seconds = asyncio.run(_drained(database, url))
        database.close()
    bare = asyncio.run(_posted(url, number))
    print(f"{number} deliveries drained in {seconds:.1f} s, bound {BOUND_SECONDS} s for 1000")
    print(f"bare POSTs of the same bodies: {bare:.1f} s; the outbox takes {seconds / bare:.1f} times that")


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


def _fill(database: Database, number: int) -> None:
    now = datetime.now(UTC)
    with database.transaction() as connection:
        for position in range(number):
            document = _document(position)
            incident_id = incidents.save_state(connection, str(document["route"]), None, STATE, now)
            incident_events.add_event(connection, incident_id, Transition.OPENED, document, ["hook"], now)


async def _drained(database: Database, url: str) -> float:
    settings = {
        "rules": [{"name": "acceptance-drop", "drop": "15%"}],
        "receivers": [{"name": "hook", "webhook": {"url": url}}],
    }
    sender = Sender(database, build_receivers(Alerting.model_validate(settings)), lambda: datetime.now(UTC))
    began = time.monotonic()
    while True:
        await sender.send_due()
        with database.transaction() as connection:
            if ("hook", "pending") not in outbox.outbox_counts(connection):
                return time.monotonic() - began
        await asyncio.sleep(SEND_EVERY_SECONDS)


async def _posted(url: str, number: int) -> float:
    bodies = [json.dumps(webhook_body("hook", n, _document(n), None)).encode() for n in range(number)]
    began = time.monotonic()
    for start in range(0, number, AT_ONCE):
        await asyncio.gather(*(post(Post(url, body), 10) for body in bodies[start : start + AT_ONCE]))
    return time.monotonic() - began


if __name__ == "__main__":
    main()
