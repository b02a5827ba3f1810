"""What the /metrics page of vLLM says about load and speculation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from monitor.engines import exposition
from monitor.engines.base import Load

if TYPE_CHECKING:
    from monitor.engines.exposition import Metrics

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_CACHE_USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
GENERATED = "vllm:generation_tokens_total"
PROMPT = "vllm:prompt_tokens_total"
STARTED_AT = "process_start_time_seconds"
ONLY_V0 = frozenset(
    {
        "vllm:spec_decode_draft_acceptance_rate",
        "vllm:spec_decode_efficiency",
        "vllm:spec_decode_num_emitted_tokens_total",
    }
)
"""Names of the V0 engine (vLLM 0.9 and older) that V1 never had."""
_SPECULATION = frozenset({DRAFTS, DRAFTED, ACCEPTED, ACCEPTED_AT})
_LOAD = frozenset({RUNNING, WAITING, KV_CACHE_USAGE, PREEMPTIONS, STARTED_AT})
_WANTED = _SPECULATION | _LOAD | {GENERATED, PROMPT} | ONLY_V0
_STEMS = sorted(name.removeprefix("vllm:").removesuffix("_total") for name in _WANTED)
_CANDIDATES = re.compile(rf"^(?:ray_)?(?:vllm[:_])?(?:{'|'.join(_STEMS)})[^\n]*", re.MULTILINE)
"""Lines that may be wanted: a real page has 670, and looking at each in Python costs more than parsing the 30."""
_RAY = re.compile(r"^ray_vllm[:_]", re.MULTILINE)
_PYTHON = re.compile(r"^python_info\b|_created[ {]", re.MULTILINE)


def parse(page: str) -> Metrics:
    """The series named above, from a page in Prometheus or OpenMetrics text; empty when it is neither.

    Ray's names (`ray_vllm_…`, with or without `_total`) are turned into vLLM's. Only the lines of these series reach
    the parser: a whole page takes it tens of milliseconds, which a probe would feel.
    """
    lines = _CANDIDATES.findall(page)
    return exposition.parse(named for line in lines if (named := _in_vllms_words(line.rstrip("\r"))))


def _in_vllms_words(line: str) -> str | None:
    """The line under vLLM's own name; None for a line that is not wanted, comments among them."""
    end = exposition.name_end(line)
    name = line[:end]
    if name.startswith("ray_vllm"):
        name = f"vllm:{name[len('ray_vllm') + 1 :]}"
        name = f"{name}_total" if f"{name}_total" in _WANTED else name
    return name + line[end:] if name in _WANTED else None


def of_rank(metrics: Metrics, rank: int | None) -> Metrics:
    """The series of one data-parallel engine, and those that are of no engine; all of them for None."""
    if rank is None:
        return metrics
    own = {
        name: [(labels, value) for labels, value in series if labels.get("engine") in (None, str(rank))]
        for name, series in metrics.items()
    }
    return {name: series for name, series in own.items() if series}


def is_lazy(page: str) -> bool:
    """Whether series appear on this page only with their first count: the Rust front end's, and Ray's.

    The Python front end shows every series from the start.
    """
    rust = page.rstrip().endswith("# EOF") and _PYTHON.search(page) is None
    return rust or _RAY.search(page) is not None


def started_at(metrics: Metrics) -> float | None:
    """When the server's process started, in seconds since the epoch; None where the page does not tell."""
    return max((value for _, value in metrics.get(STARTED_AT, ())), default=None)


def load_of(metrics: Metrics) -> Load:
    """The load summed over the engines of the server; cache usage is that of the fullest."""
    return Load(
        running=_total(metrics, RUNNING),
        waiting=_total(metrics, WAITING),
        kv_cache_usage_ratio=max((value for _, value in metrics.get(KV_CACHE_USAGE, ())), default=None),
        preemptions=_total(metrics, PREEMPTIONS),
        started_at=started_at(metrics),
    )


def speculates(metrics: Metrics) -> bool | None:
    """Whether the counters of speculation are there; None when the page has no series of vLLM at all."""
    if DRAFTS in metrics or ACCEPTED_AT in metrics:
        return True
    return False if RUNNING in metrics else None


def draft_positions(metrics: Metrics) -> int | None:
    """K, as the number of positions the server counts acceptance for; None without speculation."""
    positions = [
        int(label) for labels, _ in metrics.get(ACCEPTED_AT, ()) if (label := labels.get("position", "")).isdecimal()
    ]
    return max(positions) + 1 if positions else None


def _total(metrics: Metrics, name: str) -> float | None:
    values = [value for _, value in metrics.get(name, ())]
    return sum(values) if values else None
