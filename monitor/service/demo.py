"""The demo's plot: wait for baselines, swap a drafter, wait for the incident, swap back, wait for the resolution."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from monitor.alerting.posting import Arrival
from monitor.alerting.receivers import LogReceiver, build_receivers
from monitor.core.incidents import Transition
from monitor.errors import UsageError
from monitor.prompts.sets import bundled_directory
from monitor.service.serve import Service
from monitor.service.telling import run_line
from monitor.sim import Drafter, ServerConfig, SimulatedServer, Target
from monitor.sim.domains import domains_in
from monitor.store import migrate
from monitor.store.forget import forget_route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from monitor.alerting.posting import Failure
    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.core.records import Run
    from monitor.prompts.sets import PromptSet
    from monitor.service.case import Recorded
    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

PREFIX = "demo-"
"""Routes of this name on loopback are served by simulators, at their only replica's port."""
TIME_LIMIT_SECONDS = 180.0

CLOSING = """
The service and its simulated servers go on, quietly, until Ctrl-C; then what is
stored of them is forgotten. Until then, in another shell:

  specwatch incidents {incident:<16} what was told, and when
  specwatch routes                     how every domain stands
  specwatch history {route:<18} the swap in figures
  specwatch run show ID                one run, down to its prompts
  specwatch probe http://HOST:8000     a server of your own, without any set-up
"""

GOOD = Drafter(
    name="demo/drafter-v1",
    acceptance={
        "coding": (0.84, 0.82, 0.80, 0.78),
        "math": (0.82, 0.80, 0.79, 0.78),
        "writing": (0.68, 0.62, 0.6, 0.58),
    },
)
BAD = Drafter(
    name="demo/drafter-v2",
    acceptance={"coding": (0.62, 0.55, 0.5, 0.5), "math": (0.81, 0.79, 0.78, 0.78), "writing": (0.67, 0.62, 0.6, 0.57)},
)


class Demo:
    """Runs the service beside its simulated servers and tells the story on the terminal."""

    def __init__(
        self,
        config: Config,
        database: Database,
        prompt_sets: Mapping[str, PromptSet],
        *,
        listen: tuple[str, int],
        keep_alive: Callable[[], object] | None,
        once: bool,
    ) -> None:
        self.routes = [route for route in config.routes if _is_simulated(route)]
        if not self.routes:
            raise UsageError(
                f"routes.yaml here has no route named {PREFIX}… at 127.0.0.1, which the demo could simulate; "
                "run the demo in another directory, or use 'specwatch serve' for your own routes"
            )
        self.config = config
        self.database = database
        self.once = once
        self.started = time.monotonic()
        self.baselines: set[str] = set()
        self.seen: dict[Transition, asyncio.Event] = {transition: asyncio.Event() for transition in Transition}
        self.ready = asyncio.Event()
        self.over = False
        self.incident_id = 0
        receivers = build_receivers(config.alerting)
        printing = {name: self for name, receiver in receivers.items() if isinstance(receiver, LogReceiver)}
        self.service = Service(
            config,
            database,
            prompt_sets,
            listen=listen,
            grace_seconds=5,
            keep_alive=keep_alive,
            receivers={**receivers, **printing},
            on_recorded=self.recorded,
            closes_removed=False,  # the store may hold incidents of routes that are none of the demo's
        )

    async def run(self) -> bool:
        """Plays the demo; True when the incident opened and resolved, or when the user ended it."""
        with ExitStack() as stack:
            servers = {route.name: self._simulate(stack, route) for route in self.routes}
            await asyncio.to_thread(self._forget)
            serving = asyncio.create_task(self.service.run())
            plot = asyncio.create_task(self._plot(servers[self.routes[0].name]))
            await asyncio.wait({serving, plot}, return_when=asyncio.FIRST_COMPLETED)
            ended_by_user = serving.done()
            if not ended_by_user and not self.once and plot.result():
                await self.service.stopping.wait()
            plot.cancel()
            self.service.stop()
            await serving
            if not self.once:
                await asyncio.to_thread(self._forget)
            return ended_by_user or (plot.done() and not plot.cancelled() and plot.result())

    def _forget(self) -> None:
        """What is recorded of the simulated routes goes, at the start in case the last demo was killed, and at the end.

        Only while the simulators hold these routes' ports: then no server of the user's is behind them.
        """
        migrate.upgrade(self.database)
        with self.database.transaction() as connection:
            for route in self.routes:
                forget_route(connection, route.name)

    def _simulate(self, stack: ExitStack, route: Route) -> SimulatedServer:
        port = urlsplit(route.listed[0]).port or 80
        settings = ServerConfig(
            model=route.model or "demo",
            target=Target("demo/target"),
            drafter=GOOD,
            domains=domains_in(self.config.prompts or bundled_directory()),
            seed=port,
        )
        server = SimulatedServer(settings)
        try:
            stack.enter_context(server.run_in_thread(port=port))
        except OSError as error:
            raise UsageError(
                f"port {port} of route {route.name} in routes.yaml: {error.strerror}; "
                "the demo serves this route itself: end what listens there, or give it another port"
            ) from None
        return server

    async def _plot(self, server: SimulatedServer) -> bool:
        route = self.routes[0].name
        self._say(f"two simulated vLLM servers are up; probing {', '.join(r.name for r in self.routes)}")
        try:
            async with asyncio.timeout(TIME_LIMIT_SECONDS):
                await self.ready.wait()
                self._say("every domain has its baseline")
                await asyncio.sleep(2 * self.routes[0].every.total_seconds())
                self._say(f"now the drafter of {route} is swapped for a worse one: {GOOD.name} → {BAD.name}")
                server.swap_drafter(BAD)
                await self.seen[Transition.OPENED].wait()
                await asyncio.sleep(self.routes[0].every.total_seconds())
                self._say(f"the swap is undone: {BAD.name} → {GOOD.name}")
                server.swap_drafter(GOOD)
                await self.seen[Transition.RESOLVED].wait()
        except TimeoutError:
            self._say(f"the demo did not end within {TIME_LIMIT_SECONDS:.0f} s; the machine may be too busy")
            return False
        self._say(f"done: opened and resolved {time.monotonic() - self.started:.0f} s after the start")
        self.over = True
        if not self.once:
            click.echo(CLOSING.format(incident=self.incident_id, route=route))
        return True

    def recorded(self, run: Run, recorded: Recorded) -> None:
        """One line per run, until the story has been told."""
        if recorded.baseline_id is not None:
            self.baselines.add(f"{run.route}/{run.domain}")
        if len(self.baselines) == sum(len(route.domains) for route in self.routes):
            self.ready.set()
        if not self.over:
            self._say(run_line(run, recorded))

    def where(self) -> str:
        return "this terminal"

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        """A receiver: prints the message in a box, as an engineer would get it."""
        text = delivery.document["text"]
        width = min(max(map(len, text.splitlines())), 118)
        click.echo(
            f"┌{'─' * (width + 2)}\n" + "\n".join(f"│ {line}" for line in text.splitlines()) + f"\n└{'─' * (width + 2)}"
        )
        if delivery.incident_id:  # else it is about a bump
            self.incident_id = delivery.incident_id
            self.seen[Transition(delivery.transition)].set()
        return Arrival("printed")

    def _say(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self.started:6.1f} s  {text}")


def _is_simulated(route: Route) -> bool:
    """A route of this name elsewhere is somebody's own: it is probed, never simulated nor forgotten."""
    hosts = [urlsplit(replica).hostname for replica in route.listed]
    return route.name.startswith(PREFIX) and hosts == ["127.0.0.1"]
