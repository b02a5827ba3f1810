"""How far a sweep is, on stderr: a bar on a terminal, elsewhere a line for each point that is done."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from monitor.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress


class SweepProgress:
    """Told of every request and every point that is done, out of `total` requests; without a `bar` it says lines."""

    def __init__(
        self, total: int, bar: Progress | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._done = 0
        self._bar = bar
        self._task = None if bar is None else bar.add_task("sweep", total=total)
        self._monotonic = monotonic
        self._began = monotonic()

    def sample_done(self, _: object) -> None:
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)

    def point_done(self, concurrency: int) -> None:
        if self._bar is None:
            click.echo(f"concurrency {concurrency} is measured: {self._so_far()}", err=True)

    def _so_far(self) -> str:
        """The time left as if every request took what those so far took, which larger batches make too much."""
        passed = self._monotonic() - self._began
        left = passed * (self._total - self._done) / max(1, self._done)
        so_far = f"{self._done} of {self._total} requests in {_rounded(passed)}"
        return so_far if self._done >= self._total else f"{so_far}, at most about {_rounded(left)} left"


def _rounded(seconds: float) -> str:
    """To the second below two minutes, to the minute above."""
    whole = round(seconds) if seconds < 120 else round(seconds / 60) * 60
    return format_duration(timedelta(seconds=whole))


@contextmanager
def shown_progress(total: int) -> Iterator[SweepProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield SweepProgress(total)
        return
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield SweepProgress(total, bar)
