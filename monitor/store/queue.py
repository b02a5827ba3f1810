"""What the queue holds, read from Procrastinate's own tables: its public interface cannot ask this in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from monitor.core.records import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

WAITING = text(
    "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo' "
    "AND args->'job'->>'route' = :route AND args->'job'->>'domain' = :domain "
    "AND args->'job'->>'replica' = :replica AND args->'job'->>'reason' = :reason)"
)
DUE = text(
    "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND args->'job'->>'route' = :route "
    "AND (scheduled_at IS NULL OR scheduled_at <= now())"
)
STATES = text(
    "SELECT args->'job'->>'key' AS key, status::text AS state FROM procrastinate_jobs "
    "WHERE args->'job'->>'key' = ANY(:keys)"
)
ALIVE = text(
    "SELECT EXISTS (SELECT FROM procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => :seconds))"
)
PROBED = text(
    "SELECT DISTINCT lock FROM procrastinate_jobs JOIN procrastinate_workers ON procrastinate_workers.id = worker_id "
    "WHERE status = 'doing' AND task_name = 'probe' AND lock = ANY(:locks) "
    "AND last_heartbeat > now() - make_interval(secs => :seconds)"
)
FORGET = text("DELETE FROM procrastinate_jobs WHERE status <> 'doing' AND args->'job'->>'route' = :route")


def scheduled_waits(
    connection: Connection, route: str, domain: str, replica: str, reason: Reason = Reason.SCHEDULED
) -> bool:
    """Whether such a probe of these has been queued and not begun; one that stands aside waits too."""
    values = {"route": route, "domain": domain, "replica": replica, "reason": reason.value}
    found = connection.execute(WAITING, values)
    return bool(found.scalar_one())


def due_jobs(connection: Connection, route: str) -> int:
    """How many probes of the route are due and not begun."""
    return int(connection.execute(DUE, {"route": route}).scalar_one())


def job_states(connection: Connection, keys: Sequence[str]) -> dict[str, str]:
    """Key → `todo`, `doing` or `failed`; a job that is done, or dropped, is no longer there."""
    return {row.key: row.state for row in connection.execute(STATES, {"keys": list(keys)})}


def worker_lives(connection: Connection, seconds: float) -> bool:
    """Whether any process that works the queue has said within the last `seconds` that it lives."""
    return bool(connection.execute(ALIVE, {"seconds": seconds}).scalar_one())


def probed_servers(connection: Connection, servers: Sequence[str], seconds: float) -> list[str]:
    """Those that a probe is being made on, by a worker that has said within the last `seconds` that it lives."""
    found = connection.execute(PROBED, {"locks": [server_lock(server) for server in servers], "seconds": seconds})
    locks = set(found.scalars())
    return [server for server in servers if server_lock(server) in locks]


def server_lock(server: str) -> str:
    """The lock of jobs that are done on this server one after the other."""
    return f"replica {server}"


def forget_jobs(connection: Connection, route: str) -> None:
    """Jobs of a route that nobody is working on leave the queue."""
    connection.execute(FORGET, {"route": route})
