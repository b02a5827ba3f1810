"""Two sides beside each other as they are stored: their runs by domain, paired, in one document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from monitor.core.comparison import Comparison, Side, SideKind, SideName, alike, compare, pooled_values, spread_known
from monitor.core.records import Identity
from monitor.core.statistics import BaselineValues
from monitor.errors import UsageError
from monitor.store import baselines
from monitor.store.runs import prompt_values
from monitor.store.sides import Found, find, own_route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row

    from monitor.core.comparison import Pool

    Sides = tuple[Found | None, Found | None]

OF_ONE_DOMAIN = (SideKind.RUN, SideKind.BASELINE)


def compared(
    connection: Connection,
    names: tuple[SideName, SideName],
    route: str | None,
    domains: Sequence[str],
    metric: str,
    known: Sequence[str],
) -> dict[str, Any]:
    """The earlier side and the later one, a part for each domain that either has (docs/json.md).

    `route`: of sides that are no run and no baseline; None: the other side's, or the only one of the `known`.
    `domains`: only these; empty: all. Raises UsageError for a name that stands for nothing, or for several things, and
    says what there is.
    """
    own = [own_route(connection, name) for name in names]
    other = route or own[0] or own[1] or (known[0] if len(known) == 1 else None)
    if other is None:
        raise UsageError(f"name the route with --route; there are: {', '.join(known) or 'none'}")
    routes = [mine or other for mine in own]
    before, now = (find(connection, name, of, domains) for name, of in zip(names, routes, strict=True))
    return {
        "metric": metric,
        "before": {**names[0].as_dict(), "route": routes[0]},
        "now": {**names[1].as_dict(), "route": routes[1]},
        "domains": [
            _part(connection, domain, sides, names, metric) for domain, sides in _by_domain(before, now, names).items()
        ],
    }


def _by_domain(
    before: Mapping[str, Found], now: Mapping[str, Found], names: tuple[SideName, SideName]
) -> dict[str, Sides]:
    """Every domain of either side; only its own where one side is of one domain; two such are one part in any case."""
    single = [next(iter(side)) for side, name in zip((before, now), names, strict=True) if name.kind in OF_ONE_DOMAIN]
    if len(single) == len(names):
        return {single[1]: (before[single[0]], now[single[1]])}
    return {domain: (before.get(domain), now.get(domain)) for domain in single or sorted({*before, *now})}


def _part(
    connection: Connection, domain: str, sides: Sides, names: tuple[SideName, SideName], metric: str
) -> dict[str, Any]:
    before, now = sides
    pools: Sequence[Pool | None]
    if before is None or now is None or not before.pools or not now.pools:
        pools = [None if one is None or not one.pools else one.pools[0] for one in sides]
        lacking = [name.text for name, pool in zip(names, pools, strict=True) if pool is None]
        found = Comparison((f"{' and '.join(lacking)} has no valid run of {domain} with samples",))
    else:
        pools = chosen = alike(before.pools, now.pools)
        found = _compared(connection, before, now, chosen, metric)
    documents = [None if one is None else _document(one, pool) for one, pool in zip(sides, pools, strict=True)]
    return {
        "domain": domain,
        "source": None if pools[1] is None else pools[1].comparability.source,
        "before": documents[0],
        "now": documents[1],
        "identity_changes": _identity_changes(documents),
        **found.as_dict(),
    }


def _compared(connection: Connection, before: Found, now: Found, pools: tuple[Pool, Pool], metric: str) -> Comparison:
    if before.domain != now.domain:
        return Comparison((f"domain {now.domain} is not {before.domain}",))
    sides = [
        Side(found.label, pool, _values(connection, found, pool, metric))
        for found, pool in zip((before, now), pools, strict=True)
    ]
    return compare(*sides)


def _values(connection: Connection, found: Found, pool: Pool, metric: str) -> BaselineValues | None:
    """Those a baseline keeps, else those of the runs whose samples are there."""
    if found.baseline_id is not None:
        kept = baselines.reference_by_id(connection, found.baseline_id, metric)
        held = BaselineValues(dict(kept.values), {}, kept.run_sigma, kept.runs)
        return spread_known(held) if kept.values else None
    values = prompt_values(connection, pool.run_ids, metric)
    return pooled_values(list(values.values())) if values else None


def _document(found: Found, pool: Pool | None) -> dict[str, Any]:
    """One side of one domain: what was compared, pooled over its runs, and what was left out of it and why."""
    rows = [found.rows[run_id] for run_id in (pool.run_ids if pool else ()) if run_id in found.rows]
    newest: Row[Any] | None = rows[0] if rows else None
    steps = sum(row.steps for row in rows)
    conditions = None if pool is None else pool.comparability
    return {
        "run_ids": [] if pool is None else list(pool.run_ids),
        "baseline_id": found.baseline_id,
        "first_at": None if newest is None else rows[-1].started_at.isoformat(),
        "last_at": None if newest is None else newest.started_at.isoformat(),
        "replicas": sorted({row.replica for row in rows}),
        "identity_ids": sorted({row.identity_id for row in rows}),
        "identity_runs": {
            str(number): runs for number, runs in sorted(Counter(row.identity_id for row in rows).items())
        },
        "identity": None if newest is None else newest.identity,
        "source": None if conditions is None else conditions.source,
        "k": None if conditions is None else conditions.k,
        "concurrency": None if conditions is None else conditions.concurrency,
        "prompt_set_hash": None if conditions is None else conditions.prompt_set_hash,
        "sampling": None if conditions is None else conditions.sampling,
        "acceptance_length": 1 + sum(row.accepted for row in rows) / steps if steps else None,
        "survival": _survival(rows),
        "left_out": _left_out(found, pool),
    }


def _survival(rows: Sequence[Row[Any]]) -> list[float]:
    """By position, pooled over the steps of the runs, which have one K."""
    steps = sum(row.steps for row in rows)
    positions = min((len(row.survival) for row in rows if row.steps), default=0)
    return [sum(row.steps * row.survival[i] for row in rows if row.steps) / steps for i in range(positions)]


def _left_out(found: Found, pool: Pool | None) -> list[dict[str, Any]]:
    told: Counter[str] = Counter()
    for other in found.pools:
        if pool is not None and other is not pool:
            told[other.left_out_because(pool)] += len(other.run_ids)
    told.update({"invalid": found.invalid} if found.invalid else {})
    told.update({"their samples were removed": found.without_samples} if found.without_samples else {})
    left = [{"why": why, "runs": runs} for why, runs in told.items()]
    return [*left, {"why": f"older than the newest {len(found.rows)}", "runs": None}] if found.more else left


def _identity_changes(documents: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """From the newest run of one side to that of the other."""
    first, second = (None if one is None else one["identity"] for one in documents)
    if first is None or second is None:
        return {}
    changes = Identity.from_dict(second).changes_from(Identity.from_dict(first))
    return {name: list(pair) for name, pair in changes.items()}
