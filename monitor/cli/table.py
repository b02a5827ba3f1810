"""Lays a table out in the columns of a terminal: what is too wide is broken or stacked, and no figure is ever cut.

Sentences that make rows too long go under them, also where nothing says how wide the terminal is.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

from monitor.core.format import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GAP = 2
COMFORTABLE = 24
"""Text is not made narrower than this as long as something else can give way."""
READABLE = 100
"""Columns: where rows are longer, also in a pipe, what may stand under them does."""
LONGEST_WORD = 16
"""A longer word of a text, such as a model's path, may be broken within."""


@dataclass(frozen=True)
class Cells:
    """One column: its heading and a text for each row, figures on the `right`. `whole` texts are never broken.

    Headings and figures are broken at their spaces only, figures as the last of all. What may stand `under` its row
    does so, after its heading, where rows are too long.
    """

    heading: str
    texts: tuple[str, ...]
    right: bool = False
    whole: bool = False
    under: bool = False

    @property
    def natural(self) -> int:
        return max(cell_len(text) for text in (self.heading, *self.texts))

    @property
    def narrowest(self) -> int:
        longest = _longest_word(*self.texts)
        return max(_longest_word(self.heading), longest if self.right else min(longest, LONGEST_WORD), self._unbroken)

    @property
    def narrow(self) -> int:
        return max(_longest_word(self.heading), *map(cell_len, self.texts)) if self.right else self.narrowest

    @property
    def comfortable(self) -> int:
        return max(self.narrow, 0 if self.right or self.whole else min(self.natural, COMFORTABLE))

    @property
    def _unbroken(self) -> int:
        return max(map(cell_len, self.texts)) if self.whole else 0


def _longest_word(*texts: str) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=1)


def laid_out(columns: Sequence[Cells], width: int) -> str:
    """The lines of the table, at most `width` wide; a row in a block of its own where its figures do not fit beside.

    Only a figure that is wider than the terminal itself makes a line longer.
    """
    readable = min(width, READABLE)
    beside, under = _parted(columns, readable)
    if under and _natural(beside) <= width:
        return "\n".join(_lines_under(beside, under, readable)) + "\n"
    widths = _widths(columns, width - GAP * (len(columns) - 1))
    return "\n".join(_stacked(columns, width)) + "\n" if widths is None else _table(columns, widths)


def _parted(columns: Sequence[Cells], room: int) -> tuple[list[Cells], list[Cells]]:
    """What stands beside each other, and what under it: as much as makes the rows fit, the last first."""
    beside, under = list(columns), list[Cells]()
    for column in reversed(columns):
        if column.under and _natural(beside) > room:
            beside.remove(column)
            under.insert(0, column)
    return beside, under


def _natural(columns: Sequence[Cells]) -> int:
    return sum(column.natural for column in columns) + GAP * (len(columns) - 1)


def _lines_under(beside: Sequence[Cells], under: Sequence[Cells], width: int) -> Iterator[str]:
    """Each row in one line, and under it what it has of the other columns."""
    indent = " " * (beside[0].natural + GAP)
    headed = max(cell_len(column.heading) for column in under) + GAP
    heading, rule, *rows = _table(beside, [column.natural for column in beside]).splitlines()
    yield from (heading, rule)
    for row, line in enumerate(rows):
        yield line
        for column in under:
            if column.texts[row] not in ("", NOTHING):
                yield from textwrap.wrap(
                    column.texts[row],
                    width,
                    initial_indent=indent + column.heading + " " * (headed - cell_len(column.heading)),
                    subsequent_indent=indent + " " * headed,
                    break_on_hyphens=False,
                    break_long_words=False,
                )


def _widths(columns: Sequence[Cells], room: int) -> list[int] | None:
    """The last column gives way first; None when all that can give way is not enough."""
    widths = [column.natural for column in columns]
    for least in zip(*((c.comfortable, c.narrow, c.narrowest) for c in columns), strict=True):
        for place in reversed(range(len(columns))):
            excess = max(0, sum(widths) - room)
            widths[place] -= min(excess, widths[place] - least[place])
    return widths if sum(widths) <= room else None


def _table(columns: Sequence[Cells], widths: Sequence[int]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column, width in zip(columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.right else "left"
        heading = Text("\n".join(textwrap.wrap(column.heading, width)))
        table.add_column(heading, justify=side, width=width, no_wrap=column.whole, overflow="fold")
    for texts in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*map(Text, texts))
    console = Console(width=sum(widths) + GAP * len(columns), highlight=False)
    with console.capture() as shown:
        console.print(table)
    return shown.get()


def _stacked(columns: Sequence[Cells], width: int) -> Iterator[str]:
    """A line for each cell, a blank one between rows; a long text goes on under its beginning."""
    indent = GAP + max(cell_len(column.heading) for column in columns)
    for row in range(len(columns[0].texts)):
        if row:
            yield ""
        for column in columns:
            start = column.heading + " " * (indent - cell_len(column.heading))
            if column.whole:
                yield f"{start}{column.texts[row]}"
            else:
                yield from textwrap.wrap(
                    column.texts[row],
                    max(width, indent + column.narrowest),
                    initial_indent=start,
                    subsequent_indent=" " * indent,
                    break_on_hyphens=False,
                ) or [start.rstrip()]
