"""How long after a run's end its message arrives: a real `serve`, simulated replicas that drop, and a web hook.

    python benchmarks/telling.py [--rounds 3] [--routes 6]

In each round the drafter of every route is made worse, until each has paged, and well again, until each has resolved.
A message is counted from the `finished_at` of the last run behind it: of the second confirmation run where it pages,
of the last healing run where it resolves. In between lie storing and judging the run, the outbox, and the sender's
pause of a second between two looks at it. The time of arrival is the web hook's, in a thread of this process.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

from sqlalchemy import text
from stage import fleet, machine, processes

from monitor.core.figures import percentile
from monitor.postgres import EmbeddedPostgres
from monitor.store.database import Database

BOUND_SECONDS = 2.0
EVERY = timedelta(seconds=10)
STEP_SECONDS = 0.005
DOMAIN = "coding"
WELL, WORSE = (0.8, 0.7, 0.6, 0.5), (0.4, 0.3, 0.2, 0.1)
"""Chance that each draft token is accepted when the one before it was."""
ROUND_SECONDS = 120.0
"""Waited at most for every route to page, or to resolve."""
ALERTING = """
rules:
  - {{name: acceptance-drop, metric: acceptance_length, drop: 15%, severity: page}}
receivers:
  - {{name: hook, webhook: {{url: "{url}"}}}}
reopen_within: off
"""
BEHIND = text("""
SELECT event.incident_id, event.transition, max(run.finished_at) AS finished_at
FROM incident_events AS event
JOIN runs AS run ON run.id = ANY (
    SELECT jsonb_array_elements_text(event.document -> 'verdict' -> 'run_ids')::bigint
)
GROUP BY event.incident_id, event.transition
""")
"""When the last run behind each message had ended."""

Message = tuple[int, str]
"""Its incident and its transition: no incident opens or resolves twice here."""


@dataclass
class Hook:
    """A web hook that notes when each message came first."""

    arrived: dict[Message, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrived = self.arrived

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                moment = datetime.now(UTC)
                alert = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"][0]
                message = int(alert["labels"]["incident"]), alert["annotations"]["transition"]
                arrived.setdefault(message, moment)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"

    def wait_for(self, number: int) -> None:
        deadline = time.monotonic() + ROUND_SECONDS
        while len(self.arrived) < number:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(self.arrived)} of {number} messages came within {ROUND_SECONDS:g} s")
            time.sleep(0.1)


def measure(routes: int, rounds: int) -> dict[Message, float]:
    """Seconds from the end of the last run behind a message to its arrival."""
    hook = Hook()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            EmbeddedPostgres(folder / "data") as url,
            fleet.simulators(folder, routes, STEP_SECONDS, in_processes=1) as replicas,
        ):
            set_acceptance(replicas.replicas, WELL)
            config = fleet.configuration(
                folder,
                replicas.replicas,
                EVERY,
                alerting=ALERTING.format(url=hook.url),
                of_route=f"domains: [{DOMAIN}], confirm_after: [1s, 2s]",
            )
            database = Database(url)
            fleet.measured_before(database, config)
            listen = f"127.0.0.1:{fleet.free_port()}"
            serve = ("-m", "monitor", "--config", name, "serve", "--listen", listen)
            environment = {"DATABASE_URL": database.conninfo()}
            with processes.python(*serve, log=folder / "serve.log", environment=environment):
                processes.wait_for(f"http://{listen}/readyz")
                for done in range(rounds):
                    set_acceptance(replicas.replicas, WORSE)
                    hook.wait_for((2 * done + 1) * routes)
                    set_acceptance(replicas.replicas, WELL)
                    hook.wait_for((2 * done + 2) * routes)
            ended = ended_at(database)
            database.close()
    return {message: (moment - ended[message]).total_seconds() for message, moment in hook.arrived.items()}


def set_acceptance(replicas: Sequence[str], conditionals: Sequence[float]) -> None:
    body = json.dumps({"acceptance": {DOMAIN: conditionals}}).encode()
    for url in replicas:
        with urlopen(Request(f"{url}/_sim", body), timeout=10):
            pass


def ended_at(database: Database) -> dict[Message, datetime]:
    with database.transaction() as connection:
        return {(row.incident_id, row.transition): row.finished_at for row in connection.execute(BEHIND)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--routes", type=int, default=6)
    given = options.parse_args()
    print(f"{machine.described()}; {given.routes} routes, {given.rounds} rounds")
    found = measure(given.routes, given.rounds)
    for transition in ("opened", "resolved"):
        seconds = [taken for (_, told), taken in found.items() if told == transition]
        print(
            f"{transition:8}  {len(seconds)} messages, from the run's end to the web hook: median "
            f"{percentile(seconds, 0.5):.2f} s, longest {max(seconds):.2f} s, bound {BOUND_SECONDS:g} s"
        )
    print(f"load {machine.load()}")
    if max(found.values()) > BOUND_SECONDS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
