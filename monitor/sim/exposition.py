"""The `/metrics` page of a simulated server, with vLLM 0.32's names, labels and help texts."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from monitor.sim.engine import FINISH_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from monitor.sim.behaviour import Behaviour
    from monitor.sim.engine import Engine, Histogram

__all__ = ["CONTENT_TYPE_LATEST", "Page"]

BLOCK_TOKENS = 16
CACHE_BLOCKS = 4096

_CACHE_CONFIG = {
    "block_size": str(BLOCK_TOKENS),
    "cache_dtype": "auto",
    "enable_prefix_caching": "True",
    "gpu_memory_utilization": "0.92",
    "kv_cache_size_tokens": str(BLOCK_TOKENS * CACHE_BLOCKS),
    "num_cpu_blocks": "None",
    "num_gpu_blocks": str(CACHE_BLOCKS),
    "prefix_caching_hash_algo": "sha256",
    "sliding_window": "None",
}


class Page(Collector):
    """Collects from `engines` at scrape time, so that serving a token touches plain integers only."""

    def __init__(self, model: str, engines: Sequence[Engine], behaviour: Behaviour, started_seconds: float) -> None:
        self._model, self._engines, self._behaviour = model, engines, behaviour
        self._started_seconds = started_seconds

    def text(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        if self._engines[0].k and not self._behaviour.omit_spec_metrics:
            yield from self._speculation()
        yield from self._requests()
        yield from self._histograms()
        info = GaugeMetricFamily("vllm:cache_config_info", "Information of the LLMEngine CacheConfig")
        for engine in self._engines:
            info.add_sample(info.name, {**_CACHE_CONFIG, "engine": str(engine.index)}, 1.0)
        yield info

    def _process(self) -> Iterator[Metric]:
        python = GaugeMetricFamily("python_info", "Python platform information")
        python.add_sample("python_info", {"implementation": "CPython", "version": platform.python_version()}, 1.0)
        yield python
        start = "Start time of the process since unix epoch in seconds."
        yield GaugeMetricFamily("process_start_time_seconds", start, self._started_seconds)
        cpu = CounterMetricFamily("process_cpu_seconds", "Total user and system CPU time spent in seconds.")
        cpu.add_metric((), time.process_time())
        yield cpu

    def _speculation(self) -> Iterator[Metric]:
        yield self._counter(
            "spec_decode_num_drafts", "Number of spec decoding drafts.", lambda e: sum(e.step_histogram)
        )
        yield self._counter("spec_decode_num_draft_tokens", "Number of draft tokens.", lambda e: e.draft_tokens)
        accepted = "Number of accepted tokens."
        yield self._counter("spec_decode_num_accepted_tokens", accepted, lambda e: sum(_accepted_by_position(e)))
        shared_by = len(self._engines) if self._behaviour.divide_positions else 1
        yield self._labelled_counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            "position",
            lambda e: {str(i): n // shared_by for i, n in enumerate(_accepted_by_position(e))},
        )

    def _requests(self) -> Iterator[Metric]:
        waiting = self._behaviour.waiting
        running = "Number of requests in model execution batches."
        yield self._gauge("num_requests_running", running, lambda e: e.running)
        queued = "Number of requests waiting to be processed."
        yield self._gauge("num_requests_waiting", queued, lambda e: e.waiting if waiting is None else waiting)
        usage = "KV-cache usage. 1 means 100 percent usage."
        yield self._gauge(
            "kv_cache_usage_perc", usage, lambda e: min(1.0, e.tokens_held / (BLOCK_TOKENS * CACHE_BLOCKS))
        )
        queries = "Prefix cache queries, in terms of number of queried tokens."
        yield self._counter("prefix_cache_queries", queries, lambda e: e.prompt_tokens)
        hits = "Prefix cache hits, in terms of number of cached tokens."
        yield self._counter("prefix_cache_hits", hits, lambda e: e.cached_tokens)
        yield self._counter("num_preemptions", "Cumulative number of preemption from the engine.", lambda _: 0)
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", lambda e: e.prompt_tokens)
        generated = "Number of generation tokens processed."
        yield self._counter("generation_tokens", generated, lambda e: e.generation_tokens)
        yield self._labelled_counter(
            "request_success",
            "Count of successfully processed requests.",
            "finished_reason",
            lambda e: {reason: e.finished[reason] for reason in FINISH_REASONS},
        )

    def _histograms(self) -> Iterator[Metric]:
        tokens = "Number of prefill tokens processed."
        yield from self._histogram("request_prompt_tokens", tokens, lambda e: e.request_prompt_tokens)
        tokens = "Number of generation tokens processed."
        yield from self._histogram("request_generation_tokens", tokens, lambda e: e.request_generation_tokens)
        first = "Histogram of time to first token in seconds."
        yield from self._histogram("time_to_first_token_seconds", first, lambda e: e.time_to_first_token)
        latency = "Histogram of e2e request latency in seconds."
        yield from self._histogram("e2e_request_latency_seconds", latency, lambda e: e.latency)

    def _labels(self, engine: Engine, **more: str) -> dict[str, str]:
        return {"engine": str(engine.index), "model_name": self._model, **more}

    def _gauge(self, name: str, text: str, value: Callable[[Engine], float]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text)
        for engine in self._engines:
            family.add_sample(family.name, self._labels(engine), value(engine))
        return family

    def _counter(self, name: str, text: str, value: Callable[[Engine], float]) -> Metric:
        return self._counter_of(name, text, [(e, self._labels(e), value(e)) for e in self._engines])

    def _labelled_counter(
        self, name: str, text: str, label: str, values: Callable[[Engine], Mapping[str, int]]
    ) -> Metric:
        rows = ((e, self._labels(e, **{label: key}), n) for e in self._engines for key, n in values(e).items())
        return self._counter_of(name, text, rows)

    @staticmethod
    def _counter_of(name: str, text: str, rows: Iterable[tuple[Engine, dict[str, str], float]]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text)
        for engine, labels, value in rows:
            family.add_sample(f"{family.name}_total", labels, value)
            family.add_sample(f"{family.name}_created", labels, engine.created_seconds)
        return family

    def _histogram(self, name: str, text: str, value: Callable[[Engine], Histogram]) -> Iterator[Metric]:
        family = HistogramMetricFamily(f"vllm:{name}", text)
        for engine in self._engines:
            labels, histogram, below = self._labels(engine), value(engine), 0
            for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
                below += count
                le = "+Inf" if bound == float("inf") else str(bound)
                family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, below)
            family.add_sample(f"{family.name}_count", labels, below)
            family.add_sample(f"{family.name}_sum", labels, histogram.total)
            family.add_sample(f"{family.name}_created", labels, engine.created_seconds)
        yield family


def _accepted_by_position(engine: Engine) -> list[int]:
    """Steps that accepted more than i tokens, for i below K; their sum is the number of accepted tokens."""
    return [sum(engine.step_histogram[i + 1 :]) for i in range(engine.k)]
