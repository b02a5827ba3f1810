"""The counters of speculation and tokens on a /metrics page of vLLM, from whichever front end it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.engines import vllm_metrics as names
from monitor.engines.counters import Counter, Counters, Series
from monitor.engines.failures import failure

if TYPE_CHECKING:
    from monitor.engines.exposition import Metrics

COUNTERS = {
    names.DRAFTS: Counter.STEPS,
    names.DRAFTED: Counter.DRAFTED,
    names.ACCEPTED: Counter.ACCEPTED,
    names.ACCEPTED_AT: Counter.ACCEPTED_AT,
    names.GENERATED: Counter.GENERATED,
    names.PROMPT: Counter.PROMPT,
    names.PREEMPTIONS: Counter.PREEMPTIONS,
}


def counters_in(metrics: Metrics, model: str, url: str, rank: int | None = None, *, lazy: bool) -> Counters:
    """The counters of `model` on a parsed page of the Python front end (alone or multiprocess), the Rust one, or Ray.

    Series of other models on the page are left out; the only model there is taken whatever it is called, since a server
    counts under the first of its names. `rank` (None: all added up): of this data-parallel engine alone, where series
    say of which they are. Without any draft counted, a page that shows zeros has no speculation. `lazy`: of `Counters`.
    Raises TargetError `no_counters` when the page cannot have them.
    """
    if any(name in metrics for name in names.ONLY_V0):
        what = "these are counters of vLLM's V0 engine, which add up running totals and count too much"
        raise failure("no_counters", url, what)
    if names.GENERATED not in metrics and not lazy:
        raise failure("no_counters", url, "the page shows no counters of vLLM; --disable-log-stats hides them")
    metrics = _of_rank(metrics, rank, url, lazy=lazy)
    chosen = _model_on_page(metrics, model, url)
    series: dict[Series, float] = {}
    for name, counter in COUNTERS.items():
        for labels, value in metrics.get(name, ()):
            if chosen in (None, labels.get("model_name")):
                key = _series(counter, labels)
                series[key] = series.get(key, 0.0) + value
    return Counters(series, names.started_at(metrics), lazy)


def _of_rank(metrics: Metrics, rank: int | None, url: str, *, lazy: bool) -> Metrics:
    own = names.of_rank(metrics, rank)
    if names.GENERATED in metrics and names.GENERATED not in own and not lazy:
        engines = sorted({labels["engine"] for labels, _ in metrics[names.GENERATED] if "engine" in labels})
        raise failure("no_counters", url, f"the page counts engines {', '.join(engines)}, and no rank {rank}")
    return own


def _series(counter: Counter, labels: dict[str, str]) -> Series:
    position = labels.get("position", "")
    rest = tuple(sorted((name, value) for name, value in labels.items() if name != "position"))
    return Series(counter, int(position) if position.isdecimal() else None, rest)


def _model_on_page(metrics: Metrics, model: str, url: str) -> str | None:
    """The value of `model_name` to filter by; None when only one model is on the page."""
    found = {labels.get("model_name", "") for name in COUNTERS for labels, _ in metrics.get(name, ())}
    if len(found) <= 1:
        return None
    if model not in found:
        raise failure("no_counters", url, f"the page counts several models, none named {model!r}: {sorted(found)}")
    return model
