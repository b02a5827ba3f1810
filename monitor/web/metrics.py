"""`/metrics`: families built from a snapshot at each scrape, so that a removed route leaves no series behind."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from monitor import __version__
from monitor.core.figures import mixed
from monitor.core.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from monitor.config.routes import Route
    from monitor.store.snapshot import Snapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST
ALWAYS_SHOWN = ("pending", "sent", "dead")
"""States of messages that alerts are about: a series that first appears at 1 has no increase that anybody could see."""

FIGURES = {
    "acceptance_length": ("specwatch_acceptance_length", "Acceptance length of the latest valid run, token-weighted."),
    "acceptance_length_prompt_mean": (
        "specwatch_acceptance_length_prompt_mean",
        "Acceptance length of the latest valid run, mean over prompts.",
    ),
    "acceptance_rate": ("specwatch_acceptance_rate_ratio", "Accepted over drafted tokens; not comparable across K."),
    "tokens_per_step": ("specwatch_tokens_per_step", "Tokens per decode step of the latest valid run."),
    "coverage": ("specwatch_coverage_ratio", "Share of decode steps that had a draft."),
}


SPEEDUPS = {
    "ratio": ("specwatch_speedup_ratio", "Time without speculation over time with it; above 1 speculation wins."),
    "low": ("specwatch_speedup_low_ratio", "Lower end of the 95 percent interval of a measured speedup."),
    "high": ("specwatch_speedup_high_ratio", "Upper end of the 95 percent interval of a measured speedup."),
}
RATIOS = {"speedup": "decode", "ttft_speedup": "ttft", "total_speedup": "total"}


class _SnapshotCollector(Collector):
    def __init__(
        self,
        snapshot: Snapshot,
        counters: Mapping[str, float | Tally],
        routes: Sequence[Route],
        receivers: Sequence[str],
    ) -> None:
        self.snapshot = snapshot
        self.receivers = receivers
        self.routes = routes
        self.counters = counters

    def collect(self) -> Iterator[Metric]:
        yield _build_info()
        yield from self._figures()
        yield self._routes()
        yield self._periods()
        yield from self._runs()
        yield from self._incidents()
        yield from self._speedups()
        for name, value in sorted(self.counters.items()):
            yield _counter(name, value)

    def _figures(self) -> Iterable[Metric]:
        for column, (name, text) in FIGURES.items():
            family = GaugeMetricFamily(name, text, labels=["route", "domain", "replica", "source"])
            for run in self.snapshot.valid_runs:
                value = run[column]
                if value is not None:
                    family.add_metric([run["route"], run["domain"], run["replica"], run["source"]], value)
            yield family
        survival = GaugeMetricFamily(
            "specwatch_survival_ratio",
            "Share of drafted steps with more than `position` accepted.",
            labels=["route", "domain", "source", "position"],
        )
        for run in self.snapshot.valid_runs:
            for position, share in enumerate(run["survival"]):
                survival.add_metric([run["route"], run["domain"], run["source"], str(position)], share)
        yield survival
        yield self._by_source()
        yield self._warm()

    def _by_source(self) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_acceptance_length_by_source",
            "Acceptance length of the latest valid run's answers by each source that has it, token-weighted.",
            labels=["route", "domain", "source"],
        )
        for run in self.snapshot.valid_runs:
            for source, length in run["acceptance_by_source"].items():
                family.add_metric([run["route"], run["domain"], source], length)
        return family

    def _warm(self) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_warm_acceptance_length",
            "Acceptance length of the latest valid run's warm pass, token-weighted, where it had a valid one.",
            labels=["route", "domain", "replica", "source"],
        )
        for run in self.snapshot.valid_runs:
            warm = run["warm"]
            if warm is not None and warm["valid"] and warm["acceptance_length"] is not None:
                where = [run["route"], run["domain"], run["replica"], warm["source"]]
                family.add_metric(where, warm["acceptance_length"])
        return family

    def _routes(self) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_route_acceptance_length",
            "Prompt-mean acceptance length of a route's latest valid runs, weighted by the mix it declares.",
            labels=["route", "source"],
        )
        for route in self.routes:
            own = (run for run in self.snapshot.valid_runs if run["route"] == route.name)
            runs = [run for run in own if run["domain"] in route.mix]
            sources = {run["source"] for run in runs}
            value = mixed({run["domain"]: run["acceptance_length_prompt_mean"] for run in runs}, route.mix)
            if value is not None and len(sources) == 1:
                family.add_metric([route.name, sources.pop()], value)
        return family

    def _periods(self) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_route_every_seconds", "Time between two scheduled runs of a domain.", labels=["route"]
        )
        for route in self.routes:
            family.add_metric([route.name], route.every.total_seconds())
        return family

    def _runs(self) -> Iterable[Metric]:
        finished = GaugeMetricFamily(
            "specwatch_last_run_timestamp_seconds",
            "When the latest run finished, by whether it was valid.",
            labels=["route", "domain", "valid"],
        )
        for run in (*self.snapshot.valid_runs, *self.snapshot.invalid_runs):
            at = datetime.fromisoformat(run["finished_at"]).timestamp()
            finished.add_metric([run["route"], run["domain"], str(run["valid"]).lower()], at)
        yield finished

    def _incidents(self) -> Iterable[Metric]:
        opened = GaugeMetricFamily(
            "specwatch_incident_open", "1 while the route has an open incident.", labels=["route", "severity", "kind"]
        )
        for incident in self.snapshot.open_incidents:
            opened.add_metric([incident["route"], incident["severity"], incident["kind"]], 1)
        yield opened
        outbox = GaugeMetricFamily(
            "specwatch_deliveries", "Messages in the outbox by state.", labels=["receiver", "state"]
        )
        empty = {(receiver, state): 0 for receiver in self.receivers for state in ALWAYS_SHOWN}
        for (receiver, state), count in sorted((empty | self.snapshot.outbox).items()):
            outbox.add_metric([receiver, state], count)
        yield outbox
        oldest = GaugeMetricFamily(
            "specwatch_oldest_delivery_timestamp_seconds",
            "Since when the message waits that has waited longest; absent while none does.",
            labels=["receiver"],
        )
        for receiver, since in self.snapshot.oldest_waiting.items():
            oldest.add_metric([receiver], since.timestamp())
        yield oldest

    def _speedups(self) -> Iterable[Metric]:
        """Of configured routes; an interval and outputs only where speedup was measured."""
        names = {route.name for route in self.routes}
        found = [one for one in self.snapshot.speedups if one["route"] in names]
        for bound, (name, text) in SPEEDUPS.items():
            family = GaugeMetricFamily(name, text, labels=["route", "domain", "replica", "basis", "of"])
            for one in found:
                for key, of in RATIOS.items():
                    if one[key] is not None and one[key][bound] is not None:
                        where = [one["route"], one["domain"], one["replica"], one["basis"]]
                        family.add_metric([*where, of], one[key][bound])
            yield family
        yield self._break_even(found)
        yield self._outputs(found)
        yield self._last_speedup(found)

    def _break_even(self, found: Sequence[Mapping[str, Any]]) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_break_even_acceptance_length",
            "Tokens per step below which speculation loses, at the route's concurrency.",
            labels=["route", "domain", "basis"],
        )
        for one in found:
            if one["break_even_acceptance_length"] is not None:
                family.add_metric([one["route"], one["domain"], one["basis"]], one["break_even_acceptance_length"])
        return family

    def _outputs(self, found: Sequence[Mapping[str, Any]]) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_same_output_ratio",
            "Share of greedy outputs that are the same on both servers of `pair`.",
            labels=["route", "domain", "pair"],
        )
        for one in found:
            for pair, agreement in (one["outputs"] or {}).items():
                if agreement["share"] is not None:
                    family.add_metric([one["route"], one["domain"], pair], agreement["share"])
        return family

    def _last_speedup(self, found: Sequence[Mapping[str, Any]]) -> Metric:
        family = GaugeMetricFamily(
            "specwatch_last_speedup_timestamp_seconds",
            "When the latest valid measurement of speedup finished.",
            labels=["route", "domain"],
        )
        for one in found:
            if one["basis"] == "measured":
                at = datetime.fromisoformat(one["finished_at"]).timestamp()
                family.add_metric([one["route"], one["domain"]], at)
        return family


def _counter(name: str, value: float | Tally) -> Metric:
    named, text = f"specwatch_{name}", "Counted by this process since it started."
    if not isinstance(value, Tally):
        return CounterMetricFamily(named, text, value=value)
    family = CounterMetricFamily(named, text, labels=value.labels)
    for values, count in value.counts.items():
        family.add_metric(values, count)
    return family


def _build_info() -> Metric:
    family = GaugeMetricFamily("specwatch_build_info", "Always 1, labelled with the version.", labels=["version"])
    family.add_metric([__version__], 1)
    return family


def render(
    snapshot: Snapshot, counters: Mapping[str, float | Tally], routes: Sequence[Route], receivers: Sequence[str] = ()
) -> bytes:
    """The page in Prometheus' text format; `counters` are this process's own, named without prefix and suffix.

    `receivers`: the names of those that are configured, whose outbox is shown also when it is empty.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SnapshotCollector(snapshot, counters, routes, receivers))
    return generate_latest(registry)
