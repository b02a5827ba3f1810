"""What /metrics and `routes` read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from monitor.store.identities import store_identity
from monitor.store.snapshot import latest_statement, snapshot
from tests.factories import IDENTITY, START

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.store.database import Database

MANY_RUNS = text("""
    INSERT INTO runs (key, route, domain, replica, reason, identity_id, prompt_set_hash, concurrency, sampling,
        started_at, finished_at, valid, invalid_reason, source, k, survival, steps, accepted, decode_steps,
        completion_tokens, requests, prompts_valid, prompts_total, invalid_reasons, regime, warnings)
    SELECT format('%s %s %s', r, d, n), 'route-' || r, 'domain-' || d, 'http://vllm-0:8000', 'scheduled', :identity_id,
        'set', 4, '{}', :now, :now, n % 2 = 0, CASE WHEN n % 2 = 1 THEN 'busy' END, 'request', 3, '{}', 100, 140, 100,
        240, 32, 32, 32, '{}', '{}', '[]'
    FROM generate_series(1, :runs) n, generate_series(1, :routes) r, generate_series(1, :domains) d
""")


def store_many_runs(connection: Connection, routes: int, domains: int, runs: int) -> None:
    """Every second run is valid."""
    identity_id = store_identity(connection, IDENTITY, START)
    values = {"identity_id": identity_id, "now": START, "routes": routes, "domains": domains, "runs": runs}
    connection.execute(MANY_RUNS, values)


def test_the_latest_valid_and_invalid_run_of_every_domain_is_found(database: Database) -> None:
    with database.transaction() as connection:
        assert snapshot(connection).valid_runs == []
        store_many_runs(connection, routes=3, domains=2, runs=6)
        found = snapshot(connection)
    assert len(found.valid_runs) == 6
    assert len(found.invalid_runs) == 6
    assert [run["valid"] for run in (*found.valid_runs, *found.invalid_runs)] == [True] * 6 + [False] * 6
    assert len(found.pairs) == 6
    assert [(run["route"], run["domain"]) for run in found.valid_runs] == sorted(
        (run["route"], run["domain"]) for run in found.valid_runs
    )


def test_the_latest_runs_are_found_without_reading_every_run(database: Database) -> None:
    with database.transaction() as connection:
        store_many_runs(connection, routes=4, domains=5, runs=2_500)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE runs"))
        for valid in (True, False):
            statement = latest_statement(valid).compile(connection, compile_kwargs={"literal_binds": True})
            plan = "\n".join(connection.execute(text(f"EXPLAIN {statement}")).scalars())
            assert "Seq Scan on runs" not in plan
            assert "ix_runs_" in plan
