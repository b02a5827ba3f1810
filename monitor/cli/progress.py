"""How far a measurement is, on stderr: a bar on a terminal, elsewhere a line for each part that is done."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from monitor.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as Bar


class Progress:
    """Told of everything and every part that is done, out of `total` `things`; without a `bar` it says lines."""

    def __init__(
        self, total: int, things: str, bar: Bar | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._things = things
        self._done = 0
        self._bar = bar
        self._task = None if bar is None else bar.add_task(things, total=total)
        self._monotonic = monotonic
        self._began = monotonic()

    def sample_done(self, _: object) -> None:
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)

    def point_done(self, concurrency: int, measured: bool) -> None:
        """Of a sweep."""
        self.part_done(f"concurrency {concurrency}", measured=measured)

    def part_done(self, part: str, *, measured: bool = True) -> None:
        if self._bar is None:
            click.echo(f"{part} {'is' if measured else 'cannot be'} measured: {self._so_far()}", err=True)

    def _so_far(self) -> str:
        """The time left as if all took what those so far took, which for a sweep's larger batches is too much."""
        passed = self._monotonic() - self._began
        left = passed * (self._total - self._done) / max(1, self._done)
        so_far = f"{self._done} of {self._total} {self._things} in {_rounded(passed)}"
        return so_far if self._done >= self._total else f"{so_far}, at most about {_rounded(left)} left"


def _rounded(seconds: float) -> str:
    """To the second below two minutes, to the minute above."""
    whole = round(seconds) if seconds < 120 else round(seconds / 60) * 60
    return format_duration(timedelta(seconds=whole))


@contextmanager
def shown_progress(total: int, things: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(total, things)
        return
    columns = (TextColumn(things), BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        yield Progress(total, things, bar)
