"""Tables of what the tests measured, printed at the end of the run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Tables:
    """Rows by title; the columns of a table are those of its rows in the order of their first appearance."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        self._texts: dict[str, str] = {}

    def add(self, title: str, **row: object) -> None:
        """Add a row; None and missing columns print as a dash, floats with three decimals."""
        self._rows[title].append(row)

    def show(self, title: str, text: str) -> None:
        """Print the text as it stands, under its title."""
        self._texts[title] = text

    def rendered(self) -> Iterator[tuple[str, list[str]]]:
        """Each title with its aligned lines, then each text."""
        for title, rows in self._rows.items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            cells = [columns, *[[_text(row.get(column)) for column in columns] for row in rows]]
            widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
            yield title, ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in cells]
        for title, text in self._texts.items():
            yield title, text.splitlines()


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
