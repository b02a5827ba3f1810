"""A store with a past, in one statement: as many runs as a test of a plan or a benchmark needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from monitor.store.identities import store_identity
from tests.factories import IDENTITY

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

FILL = """
INSERT INTO runs (key, route, domain, replica, reason, identity_id, prompt_set_hash, concurrency, sampling, started_at,
    finished_at, valid, invalid_reason, source, k, acceptance_length, acceptance_length_prompt_mean, acceptance_rate,
    survival, tokens_per_step, coverage, steps, drafted, accepted, decode_steps, completion_tokens, requests,
    prompts_valid, prompts_total, invalid_reasons, ttft_seconds_p50, ttft_seconds_p95, tokens_per_second_p50,
    tokens_per_second_p95, regime, warnings)
SELECT 'slot ' || r || ' ' || d || ' ' || n, 'route-' || r, 'domain-' || d, 'http://vllm-' || r,
    'scheduled', :identity_id, 'set-1', 4, CAST(:sampling AS jsonb),
    CAST(:until AS timestamptz) - (:runs_each - n + 1) * interval '40 minutes' + d * interval '3 minutes',
    CAST(:until AS timestamptz) - (:runs_each - n + 1) * interval '40 minutes' + d * interval '4 minutes',
    n % 200 <> 0, CASE WHEN n % 200 = 0 THEN 'busy' END, 'request', 3, 2.4, 2.41, 0.467, '{.7,.45,.25}', 2.4, 1,
    1200, 3600, 1680 + n % 50, 1200, 2912, 32, 32, 32, '{}', 0.05 + n % 7 * 0.001, 0.09, 180, 260, '{}', '[]'
FROM generate_series(1, :runs_each) n, generate_series(1, :routes) r, generate_series(1, :domains) d
ORDER BY n, d, r
"""


def store_many_runs(connection: Connection, *, routes: int, domains: int, runs_each: int, until: datetime) -> None:
    """`runs_each` runs of every route-1… and domain-1…, one every 40 minutes, the last at `until`; 1 in 200 invalid.

    They have no samples: nothing that is tested with so many runs reads them.
    """
    values = {
        "identity_id": store_identity(connection, IDENTITY, until),
        "sampling": '{"seed": 0}',
        "until": until,
        "runs_each": runs_each,
        "routes": routes,
        "domains": domains,
    }
    connection.execute(text(FILL), values)


JUDGE = """
INSERT INTO verdicts (run_id, rule, outcome, metric, baseline_id, baseline_value, change, document, judged_at)
SELECT id, 'acceptance-drop', 'ok', 'acceptance_length', :baseline_id, 2.4, id % 7 * 0.01 - 0.03,
    jsonb_build_object('reason', repeat('a verdict of this length ', 25)), :judged_at
FROM runs WHERE valid ORDER BY id
"""


def judge_many_runs(connection: Connection, *, baseline_id: int, judged_at: datetime) -> None:
    """One verdict per valid run, its document as long as real ones are."""
    connection.execute(text(JUDGE), {"baseline_id": baseline_id, "judged_at": judged_at})
