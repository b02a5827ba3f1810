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
    tokens_per_second_p95, judged_metric, baseline_id, baseline_value, change, regime, warnings)
SELECT 'slot ' || r || ' ' || d || ' ' || n, 'route-' || r, 'domain-' || d, 'http://vllm-' || r,
    'scheduled', :identity_id, 'set-1', 4, CAST(:sampling AS jsonb),
    CAST(:until AS timestamptz) - (:runs_each - n + 1) * interval '40 minutes' + d * interval '3 minutes',
    CAST(:until AS timestamptz) - (:runs_each - n + 1) * interval '40 minutes' + d * interval '4 minutes',
    n % 200 <> 0, CASE WHEN n % 200 = 0 THEN 'busy' END, 'request', 3, 2.4, 2.41, 0.467, '{.7,.45,.25}', 2.4, 1,
    1200, 3600, 1680 + n % 50, 1200, 2912, 32, 32, 32, '{}', 0.05 + n % 7 * 0.001, 0.09, 180, 260,
    CASE WHEN n % 200 <> 0 THEN 'acceptance_length' END, CASE WHEN n % 200 <> 0 THEN 1 END,
    CASE WHEN n % 200 <> 0 THEN 2.4 END, CASE WHEN n % 200 <> 0 THEN n % 7 * 0.01 - 0.03 END, '{}', '[]'
FROM generate_series(1, :runs_each) n, generate_series(1, :routes) r, generate_series(1, :domains) d
ORDER BY n, d, r
"""

SAMPLES = """
INSERT INTO samples (run_id, position, question_id, source, k, steps, drafted, accepted, histogram, decode_steps,
    prompt_tokens, cached_prompt_tokens, completion_tokens, ttft_seconds, decode_seconds, decode_tokens, total_seconds,
    turn_chunks, chunk_tokens, chunk_seconds, loop_lag_seconds, finish_reason, output_hash)
SELECT r.id, p, 'q' || p, 'request', 3, 54, 162, 74, '{10,20,18,6}', 54, 40, 0, 128, 0.05, 0.8, 127, 0.85, '{54}',
    array_fill(2, ARRAY[54]), (SELECT array_agg((n * 0.0153 + random() * 0.001)::real) FROM generate_series(1, 54) n),
    0.001, 'length', md5(r.id::text || p)
FROM (SELECT id FROM runs WHERE valid ORDER BY id LIMIT :runs) r, generate_series(1, :prompts) p
"""


def store_many_runs(connection: Connection, *, routes: int, domains: int, runs_each: int, until: datetime) -> None:
    """`runs_each` runs of every route-1… and domain-1…, one every 40 minutes, the last at `until`.

    One in 200 is invalid, the others are judged. They have no samples.
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


def store_old_samples(connection: Connection, *, runs: int, prompts: int) -> None:
    """Samples of the oldest valid runs, of one turn and 54 chunks each."""
    connection.execute(text(SAMPLES), {"runs": runs, "prompts": prompts})
