"""Pages in Prometheus or OpenMetrics text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

Metrics: TypeAlias = dict[str, list[tuple[dict[str, str], float]]]
"""Values with their labels, by the name of the series."""


def parse(lines: Iterable[str]) -> Metrics:
    """The finite values of these lines; empty when they are not such text."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Metrics = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    found.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except ValueError:
        return {}
    return found


def parse_only(page: str, wanted: Collection[str]) -> Metrics:
    """The series named in `wanted`: a whole page takes the parser tens of milliseconds, which a probe would feel."""
    # Not splitlines(): a label may hold characters that it takes for line ends.
    lines = (line.rstrip("\r") for line in page.split("\n"))
    return parse(line for line in lines if line[: name_end(line)] in wanted)


def name_end(line: str) -> int:
    """Where the name of the series ends on its line."""
    return min(place for place in (line.find("{"), line.find(" "), len(line)) if place >= 0)


def combined(metrics: Metrics, name: str, how: Callable[[Iterable[float]], float] = sum) -> float | None:
    """The values of every series of this name, added or otherwise made one; None where there is none."""
    values = [value for _, value in metrics.get(name, ())]
    return how(values) if values else None


def number_in(label: str | None) -> int | None:
    """The whole number in a label; None where it is none."""
    return int(label) if label is not None and label.isdecimal() else None
