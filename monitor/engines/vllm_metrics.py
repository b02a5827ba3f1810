"""What the /metrics page of vLLM says about load and speculation."""

from __future__ import annotations

import math
from typing import TypeAlias

from monitor.engines.base import Load

Metrics: TypeAlias = dict[str, list[tuple[dict[str, str], float]]]
"""Values with their labels, by the name of the series."""

DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_CACHE_USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
STARTED_AT = "process_start_time_seconds"
_WANTED = frozenset({DRAFTS, ACCEPTED_AT, RUNNING, WAITING, KV_CACHE_USAGE, PREEMPTIONS, STARTED_AT})


def parse(page: str) -> Metrics:
    """The series named above, from a page in Prometheus or OpenMetrics text; empty when it is neither.

    Only their lines reach the parser: a whole page takes it tens of milliseconds, which a probe would feel.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in page.splitlines() if line.partition("{")[0].partition(" ")[0] in _WANTED]
    found: Metrics = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    found.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except ValueError:
        return {}
    return found


def load_of(metrics: Metrics) -> Load:
    """The load summed over the engines of the server; cache usage is that of the fullest."""
    return Load(
        running=_total(metrics, RUNNING),
        waiting=_total(metrics, WAITING),
        kv_cache_usage_ratio=max((value for _, value in metrics.get(KV_CACHE_USAGE, ())), default=None),
        preemptions=_total(metrics, PREEMPTIONS),
        started_at=max((value for _, value in metrics.get(STARTED_AT, ())), default=None),
    )


def speculates(metrics: Metrics) -> bool | None:
    """Whether the counters of speculation are there; None when the page has no series of vLLM at all."""
    if DRAFTS in metrics or ACCEPTED_AT in metrics:
        return True
    return False if RUNNING in metrics else None


def draft_positions(metrics: Metrics) -> int | None:
    """K, as the number of positions the server counts acceptance for; None without speculation."""
    positions = [
        int(label) for labels, _ in metrics.get(ACCEPTED_AT, ()) if (label := labels.get("position", "")).isdigit()
    ]
    return max(positions) + 1 if positions else None


def _total(metrics: Metrics, name: str) -> float | None:
    values = [value for _, value in metrics.get(name, ())]
    return sum(values) if values else None
