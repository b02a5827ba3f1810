"""What the name of a side stands for: runs of a route by domain, in pools that are comparable, or baselines.

Guarantee: of a span or an identity at most MOST_RUNS runs of a domain are read, the newest, and never their chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from monitor.core.comparison import Pool, SideKind, SideName
from monitor.errors import UsageError
from monitor.store import approvals
from monitor.store.retention import without_samples
from monitor.store.runs import comparability
from monitor.store.schema import SERVING, identities, runs
from monitor.store.schema import baselines as baseline_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

MOST_RUNS = 300
"""Of one domain on one side: eight days of a run every 40 minutes."""


@dataclass(frozen=True)
class Found:
    """What one side is in one domain. `pools`: of its valid runs whose samples are there.

    `invalid`, `without_samples`: how many more there are that are not valid, or whose samples were removed. `more`:
    whether there are more than were read. `baseline_id`: where the side is a baseline, whose runs `rows` are.
    """

    label: str
    domain: str
    rows: Mapping[int, Row[Any]]
    pools: tuple[Pool, ...]
    invalid: int = 0
    without_samples: int = 0
    more: bool = False
    baseline_id: int | None = None


def own_route(connection: Connection, name: SideName) -> str | None:
    """Of a run or a baseline. Raises UsageError for one that is not there."""
    match name.kind:
        case SideKind.RUN:
            table, see = runs, "specwatch runs"
        case SideKind.BASELINE:
            table, see = baseline_rows, "specwatch baseline list"
        case _:
            return None
    route = connection.execute(select(table.c.route).where(table.c.id == name.number)).scalar_one_or_none()
    if route is None:
        raise UsageError(f"there is no {name.kind.value} {name.number}; see '{see}'")
    return str(route)


def find(connection: Connection, name: SideName, route: str, domains: Sequence[str]) -> dict[str, Found]:
    """What is there by that name, by domain, of all domains or only these. Raises UsageError where there is nothing."""
    match name.kind:
        case SideKind.RUN:
            found = _single_run(connection, name)
        case SideKind.BASELINE:
            found = _of_baselines(connection, {"": name.number or 0})
        case SideKind.GENERATION:
            found = _of_baselines(connection, _generation(connection, name, route))
        case SideKind.DATES:
            c = runs.c
            such = [c.started_at >= name.since] if name.since is not None else []
            such += [c.started_at < name.until] if name.until is not None else []
            found = _of_runs(connection, name.text, route, such)
        case SideKind.IDENTITY | SideKind.FINGERPRINT:
            ids = _identity_ids(connection, name, route)
            found = _of_runs(connection, name.text, route, [runs.c.identity_id.in_(ids)])
    found = {domain: one for domain, one in found.items() if not domains or domain in domains}
    if not found:
        of = f" of {', '.join(domains)}" if domains else ""
        raise UsageError(f"{name.text}: there is no run of route {route}{of} there; {_span(connection, route)}")
    return found


def _span(connection: Connection, route: str) -> str:
    first, last = connection.execute(
        select(func.min(runs.c.started_at), func.max(runs.c.started_at)).where(runs.c.route == route)
    ).one()
    return f"its runs are from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC" if first else "it has none at all"


def _rows(connection: Connection, *such: ColumnElement[bool], limit: int | None = None) -> list[Row[Any]]:
    """Newest first."""
    statement = (
        select(runs, identities.c.document.label("identity"))
        .join(identities, identities.c.id == runs.c.identity_id)
        .where(*such)
        .order_by(runs.c.id.desc())
        .limit(limit)
    )
    return list(connection.execute(statement).all())


def _single_run(connection: Connection, name: SideName) -> dict[str, Found]:
    (row,) = _rows(connection, runs.c.id == name.number)
    pool = Pool(comparability(row), (row.id,), _conditions(row), row.invalid_reason)
    return {row.domain: Found(f"run {row.id}", row.domain, {row.id: row}, (pool,))}


def _of_runs(connection: Connection, label: str, route: str, such: Sequence[ColumnElement[bool]]) -> dict[str, Found]:
    """Without the candidates of gates, which did not serve."""
    c = runs.c
    such = [c.route == route, SERVING, *such]
    found = {}
    for domain in connection.execute(select(c.domain).distinct().where(*such)).scalars().all():
        rows = _rows(connection, c.domain == domain, *such, limit=MOST_RUNS + 1)
        kept = rows[:MOST_RUNS]
        removed = set(without_samples(connection, [row.id for row in kept if row.valid]))
        pools: dict[Any, list[Row[Any]]] = {}
        for row in kept:
            if row.valid and row.id not in removed:
                key = row.prompt_set_hash, row.source, row.k, row.concurrency, repr(row.sampling), _conditions(row)
                pools.setdefault(key, []).append(row)
        found[domain] = Found(
            label,
            domain,
            {row.id: row for row in kept},
            tuple(
                Pool(comparability(alike[0]), tuple(row.id for row in alike), _conditions(alike[0]))
                for alike in pools.values()
            ),
            invalid=sum(not row.valid for row in kept),
            without_samples=len(removed),
            more=len(rows) > MOST_RUNS,
        )
    return found


def _conditions(row: Row[Any]) -> tuple[tuple[str, str | None], ...]:
    return tuple((name, row.identity.get(name)) for name in ("method", "drafter"))


def _of_baselines(connection: Connection, ids: Mapping[str, int]) -> dict[str, Found]:
    found = {}
    for row in connection.execute(select(baseline_rows).where(baseline_rows.c.id.in_(ids.values()))):
        its = {run.id: run for run in _rows(connection, runs.c.id.in_(row.run_ids))}
        pool = Pool(comparability(row), tuple(sorted(row.run_ids, reverse=True)))
        found[row.domain] = Found(f"baseline {row.id}", row.domain, its, (pool,), baseline_id=row.id)
    return found


def _generation(connection: Connection, name: SideName, route: str) -> dict[str, int]:
    """Domain → its baseline of that number, or, without one, the baseline in force."""
    if name.number is None:
        found = approvals.in_force(connection, route)
        if not found:
            raise UsageError(f"{name.text}: route {route} has no approved baseline; see 'specwatch baseline list'")
        return found
    every = approvals.generations(connection, route)
    chosen = {domain: ids[name.number - 1] for domain, ids in every.items() if 1 <= name.number <= len(ids)}
    if not chosen:
        last = max((len(ids) for ids in every.values()), default=0)
        there = f"there are 1 to {last}" if last else "it has no approved baseline"
        raise UsageError(f"{name.text}: route {route} has no such generation; {there}, see 'specwatch baseline list'")
    return chosen


def _identity_ids(connection: Connection, name: SideName, route: str) -> list[int]:
    """Of a number, or of the one fingerprint that begins so; several identities may have it."""
    statement = (
        select(identities.c.id, identities.c.document["fingerprint"].astext.label("fingerprint"))
        .where(identities.c.id.in_(select(runs.c.identity_id).distinct().where(runs.c.route == route)))
        .order_by(identities.c.id)
    )
    known = connection.execute(statement).all()
    if name.kind is SideKind.IDENTITY:
        ids = [row.id for row in known if row.id == name.number]
        if not ids:
            raise UsageError(f"{name.text}: route {route} has no such identity; {_identities(known)}")
        return ids
    found = {row.fingerprint for row in known if row.fingerprint and row.fingerprint.startswith(name.prefix)}
    if len(found) != 1:
        several = f"several fingerprints of route {route} begin so: {', '.join(sorted(found))}"
        none = (
            f"no fingerprint of route {route} begins so, and it is no number of a run, day, span, baseline:ID, "
            f"generation:N or identity:N; {_identities(known)}"
        )
        raise UsageError(f"{name.text}: {several if found else none}")
    return [row.id for row in known if row.fingerprint in found]


def _identities(known: Sequence[Row[Any]]) -> str:
    told = ", ".join(f"identity:{row.id} ({row.fingerprint or 'no fingerprint'})" for row in known)
    return f"there are: {told}" if told else "it has no runs"
