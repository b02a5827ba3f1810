"""`serve`: one process that schedules, probes, judges, tells and answers; the composition root of the service."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from procrastinate.exceptions import ConnectorException

from monitor.alerting.dead_letters import DeadLetters
from monitor.alerting.peer_watch import PeerWatch
from monitor.alerting.receivers import RESEND_EVERY_SECONDS, build_receivers
from monitor.alerting.resender import Resender
from monitor.alerting.sender import AT_ONCE, Sender
from monitor.config.load import check_secrets
from monitor.errors import StoreError
from monitor.service import acknowledging, pruning, reminding, silence_ends, stale
from monitor.service.acknowledging import Acknowledging
from monitor.service.budget import workers_for
from monitor.service.bumps import announce
from monitor.service.complaint import Complaint
from monitor.service.discovery import Replicas
from monitor.service.gate_runner import GateRunner
from monitor.service.heartbeat import HeartbeatCaller
from monitor.service.outgoing import Outgoing
from monitor.service.passive import PassiveReading
from monitor.service.prober import Prober
from monitor.service.pruning import Pruning
from monitor.service.reconciling import reconcile
from monitor.service.recording import Recorder
from monitor.service.reminding import Reminding
from monitor.service.rounds import Rounds, in_thread
from monitor.service.scheduler import Scheduler
from monitor.service.silence_ends import SilenceEnds
from monitor.service.stale import StaleWatch
from monitor.service.telling import RunLog
from monitor.service.web_server import listener, warn_of_any_candidate, web_server
from monitor.service.worker import Worker
from monitor.store import gate_requests, migrate
from monitor.web.app import build_app
from monitor.web.bumps import bump_api
from monitor.web.flagger import flagger_api
from monitor.web.gates import gate_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    import uvicorn
    from starlette.applications import Starlette

    from monitor.alerting.receivers import Receiver
    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.core.bumps import Announced
    from monitor.core.records import Run
    from monitor.core.tally import Tally
    from monitor.prompts.sets import PromptSet
    from monitor.service.case import Recorded
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

KEEP_ALIVE_EVERY_SECONDS = 2.0
LOOK_FOR_OVERDUE_EVERY_SECONDS = 30.0
SEND_LAST_SECONDS = 10.0
OTHER_THREADS = 8 + AT_ONCE
"""Threads for the database beside one per probe: scheduler, sender, keeper and some pages at once; and one for each
attempt to send, whose host's name may take long to resolve."""


def now() -> datetime:
    return datetime.now(UTC)


class Service:
    """Everything `serve` runs; `keep_alive`, when given, is called every two seconds to hold up an own Postgres.

    `replicas`, where routes.yaml says only where to find them, must have been found. With `closes_removed`,
    incidents of what this configuration does not have are closed at the start.
    """

    def __init__(
        self,
        config: Config,
        database: Database,
        prompt_sets: Mapping[str, PromptSet],
        *,
        listen: tuple[str, int],
        workers: int | None = None,
        grace_seconds: float = 30.0,
        keep_alive: Callable[[], object] | None = None,
        receivers: Mapping[str, Receiver] | None = None,
        on_started: Callable[[tuple[str, int]], None] | None = None,
        on_recorded: Callable[[Run, Recorded], None] | None = None,
        closes_removed: bool = True,
        replicas: Replicas | None = None,
    ) -> None:
        check_secrets(config, os.environ)
        replicas = replicas or Replicas(config.routes)
        self.config = config
        self.database = database
        self.keep_alive = keep_alive
        self.listen = listen
        self.counters: dict[str, float] = {"runs": 0, "invalid_runs": 0, "bumps": 0, "incident_transitions": 0}
        self._on_started = on_started
        self._on_recorded = on_recorded
        self._run_log = RunLog(config.routes, now)
        self._closes_removed = closes_removed
        self.recorder = Recorder(config, replicas)
        receivers = receivers or build_receivers(config.alerting)
        self.dead_letters = DeadLetters(config.alerting, config.routes)
        self.sender = Sender(database, receivers, now, config.alerting.maintenance, self.dead_letters)
        self.outgoing = Outgoing(self.sender)
        self.scheduler = Scheduler(database, config.routes, now, replicas)
        self.resender = Resender(database, receivers, now, PeerWatch(config.alerting, config.routes))
        self.heartbeat = HeartbeatCaller(database, config, now)
        self.reminding = Reminding(database, config, now)
        self.acknowledging = Acknowledging(database, config, now)
        self.silence_ends = SilenceEnds(database, config, now)
        prober = Prober(database, self.recorder, prompt_sets, on_recorded=self._recorded, now=now, replicas=replicas)
        concurrency = workers or workers_for(replicas.number())
        self.gates = GateRunner(database, config.routes, prompt_sets, replicas, now, config.gates)
        self.worker = Worker(database, prober, self.gates, concurrency=concurrency, grace_seconds=grace_seconds)
        self.passive = PassiveReading(database, config.routes, now, self._leads, replicas=replicas)
        self.stale = StaleWatch(database, config, now)
        self.pruning = Pruning(database, config.retention, now)
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        self.stopping.set()

    async def run(self) -> None:
        """Runs until SIGTERM, SIGINT or `stop`; then scheduling ends, probes finish, messages go out, last the web.

        A part that fails ends the others in the same order, and its error is raised: nothing runs on half alive.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_unheard)
        loop.set_default_executor(ThreadPoolExecutor(self.worker.concurrency + OTHER_THREADS))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        with listener(*self.listen) as listening:
            await asyncio.to_thread(migrate.upgrade, self.database)
            await asyncio.to_thread(self._reconcile)
            if self._on_started is not None:
                await asyncio.to_thread(self._on_started, listening.getsockname()[:2])
            warn_of_any_candidate(self.config, self.listen[0])
            server = web_server(self._app())
            rounds = {name: asyncio.create_task(one.run()) for name, one in self._rounds().items()}
            parts = {
                **rounds,
                "scheduler": asyncio.create_task(self.scheduler.run()),
                "worker": asyncio.create_task(self.worker.run()),
                "passive reader": asyncio.create_task(self.passive.run()),
                "sender": asyncio.create_task(self.outgoing.run()),
                "keeper": asyncio.create_task(self._keep_alive()),
                "web": asyncio.create_task(server.serve(sockets=[listening])),
            }
            await self._wait(parts)
            await self._end(parts, rounds, server)
        _raise_first(parts.values())

    async def _wait(self, parts: Mapping[str, asyncio.Task[None]]) -> None:
        """Until `stop`, or until one of the parts has ended, which it never does by itself."""
        stopping = asyncio.create_task(self.stopping.wait())
        await asyncio.wait([*parts.values(), stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for name, part in parts.items():
            if part.done():
                logger.error("the %s has failed, so everything ends", name)
        logger.info("stopping: running probes finish or go back to the queue")
        self.stop()

    def _rounds(self) -> dict[str, Rounds]:
        """What the process that leads does again and again, beside scheduling."""
        work: dict[str, tuple[Callable[[datetime], Awaitable[object]], float]] = {
            "stale watch": (in_thread(self.stale.look), stale.LOOK_EVERY_SECONDS),
            "resender": (lambda _: self.resender.send_again(), RESEND_EVERY_SECONDS),
            "reminder": (in_thread(lambda _: self.reminding.remind()), reminding.LOOK_EVERY_SECONDS),
            "acknowledgements": (in_thread(lambda _: self.acknowledging.tell()), acknowledging.LOOK_EVERY_SECONDS),
            "silences": (in_thread(lambda _: self.silence_ends.tell()), silence_ends.LOOK_EVERY_SECONDS),
            "pruning": (lambda _: self.pruning.look(), pruning.LOOK_EVERY_SECONDS),
            "bumps": (in_thread(lambda _: self._tell_overdue()), LOOK_FOR_OVERDUE_EVERY_SECONDS),
        }
        heartbeat = self.config.alerting.heartbeat
        if heartbeat is not None:
            work["heartbeat"] = (self.heartbeat.beat, heartbeat.every.total_seconds())
        return {name: Rounds(one, every, self._leads, now) for name, (one, every) in work.items()}

    def _leads(self) -> bool:
        return self.scheduler.leads

    async def _end(
        self,
        parts: Mapping[str, asyncio.Task[None]],
        rounds: Mapping[str, asyncio.Task[None]],
        server: uvicorn.Server,
    ) -> None:
        for part in (parts["scheduler"], parts["passive reader"], *rounds.values()):
            part.cancel()
        self.worker.stop()
        await asyncio.wait([parts["scheduler"], parts["passive reader"], parts["worker"]])
        self.outgoing.end()
        await asyncio.wait([parts["sender"]], timeout=SEND_LAST_SECONDS)
        parts["sender"].cancel()
        parts["keeper"].cancel()
        server.should_exit = True
        await asyncio.wait(parts.values())

    def _app(self) -> Starlette:
        tokens = self.config.api_tokens
        api = [
            *bump_api(self.database, self.config.routes, tokens, self._announce),
            *gate_api(self.database, tokens, self.gates.ask, now),
            *flagger_api(self.database, tokens, self.gates.ask),
        ]
        return build_app(
            self.database,
            self._problems,
            self._counted,
            self.config.routes,
            api,
            heartbeat=lambda: self.heartbeat.trouble if self._leads() else None,
            receivers=tuple(self.sender.receivers),
        )

    def _announce(
        self, route: Route, what: Announced, by: str, **said: str | None
    ) -> tuple[dict[str, Any], list[dict[str, str]] | None]:
        replicas = self.scheduler.replicas.known(route)
        with self.database.transaction() as connection:
            document, jobs = announce(connection, route, replicas, what, by, now(), **said)
        return document, None if jobs is None else [{"domain": job.domain, "replica": job.replica} for job in jobs]

    def _problems(self) -> list[str]:
        return [] if not self.stopping.is_set() else ["stopping"]

    def _counted(self) -> dict[str, float | Tally]:
        return {
            **self.counters,
            "slots_left_out": self.scheduler.left_out,
            "errors": self.worker.errors,
            "samples_removed": self.pruning.removed.samples,
            "organic_removed": self.pruning.removed.organic,
            "heartbeats": self.heartbeat.calls,
            "delivery_attempts": self.sender.attempts,
            "delivery_failures": self.sender.failures,
            "delivery_pauses": self.sender.pauses,
            "deliveries_given_up": self.sender.given_up,
            "peer_attempts": self.resender.peer_attempts,
            "peer_failures": self.resender.peer_failures,
        }

    def _recorded(self, run: Run, recorded: Recorded) -> None:
        self.counters["runs"] += 1
        self.counters["invalid_runs"] += run.invalid_reason is not None
        self.counters["bumps"] += recorded.bump_id is not None
        self.counters["incident_transitions"] += len(recorded.transitions)
        if recorded.transitions:
            self.outgoing.hurry()
        if self._on_recorded is not None:
            self._on_recorded(run, recorded)
        else:
            self._run_log.tell(run, recorded)

    def _tell_overdue(self) -> None:
        """Bumps whose probes did not come in time are told of all the same; so are gates over whose command died."""
        with self.database.transaction() as connection:
            self.recorder.tell_overdue(connection, now())
            gate_requests.end_left_behind(connection, now())

    def _reconcile(self) -> None:
        reconcile(self.database, self.config, self.dead_letters, now(), closes_removed=self._closes_removed)

    async def _keep_alive(self) -> None:
        down = Complaint(logger, "Specwatch's own Postgres is down", "Specwatch's own Postgres is up again")
        while True:
            try:
                if self.keep_alive is not None:
                    await asyncio.to_thread(self.keep_alive)
                    down.end()
            except StoreError as error:
                down.raise_for(error)
            await asyncio.sleep(KEEP_ALIVE_EVERY_SECONDS)


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A job that ended while the database was away is not finished in the queue: it is taken up again later."""
    if isinstance(context.get("exception"), ConnectorException):
        logger.debug("%s: %s", context.get("message"), context["exception"])
    else:
        loop.default_exception_handler(context)


def _raise_first(parts: Iterable[asyncio.Task[None]]) -> None:
    for part in parts:
        error = None if part.cancelled() else part.exception()
        if error is not None:
            raise error
