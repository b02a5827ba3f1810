"""Shows documents: as a table that fits the terminal, as JSON, as CSV or as Markdown.

Times are local; a table says their zone in the heading, and in a cell only where it is another (summer and winter).
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import textwrap
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.core.format import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import tzinfo

WIDE_ENOUGH = 10_000
"""Columns where nothing says how many there are: in a pipe or a file no text beside another is broken."""
UNBROKEN = "\u00a0"
FORMATS = ("table", "json", "csv", "markdown")

format_option = click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
)
document_format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)


class _RecordId(click.types.IntParamType):
    """An id as Postgres counts them: a bigint."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not 0 <= found < 2**63:
            self.fail(f"{found} is not an id", param, ctx)
        return found


RECORD_ID = _RecordId()


@dataclass(frozen=True)
class Column:
    """One column of a table: its heading and how a row's document becomes its text."""

    heading: str
    text: Callable[[Mapping[str, Any]], str]
    right: bool = False
    whole: bool = False
    """Never broken over two lines: times and numbers."""
    once: bool = False
    """Said once above a table where it is the same in every row."""
    under: bool = False
    """Stands under its row where the rows are too long: sentences and lists."""
    if_any: bool = False
    """Left out where no row has it."""


def time_column(
    heading: str, name: str, *, date: bool = False, zone: tzinfo | None = None, if_any: bool = False
) -> Column:
    """When, as `short_time` writes it; JSON and CSV have it all."""

    def text(row: Mapping[str, Any]) -> str:
        return NOTHING if row[name] is None else short_time(row[name], date=date, zone=zone)

    return Column(with_zone(heading, zone), text, whole=True, if_any=if_any)


def with_zone(heading: str, zone: tzinfo | None = None) -> str:
    """The heading of a column of times: opened (UTC)."""
    return f"{heading} ({datetime.now(zone).astimezone(zone).tzname()})"


def short_time(value: str, *, date: bool = False, zone: tzinfo | None = None) -> str:
    """An ISO time to the minute (`date`: to the day), without the year while it is this one: 12-03 12:09.

    Its zone only where that is another than now.
    """
    now, at = datetime.now(zone).astimezone(zone), datetime.fromisoformat(value).astimezone(zone)
    day = at.strftime("%m-%d" if at.year == now.year and not date else "%Y-%m-%d")
    other_zone = "" if at.tzname() == now.tzname() else f" {at.tzname()}"
    return day if date else f"{day} {at:%H:%M}{other_zone}"


def emit(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], format_: str, nothing: str, below: str = ""
) -> None:
    """Prints the rows. JSON and CSV hold the documents whole; `nothing` is said on stderr when there are none.

    `below` explains a table's columns.
    """
    if format_ == "json":
        click.echo(json.dumps(list(rows), ensure_ascii=False, indent=2))
    elif format_ == "csv":
        click.echo(csv_text(rows) if rows else "", nl=False)
    elif not rows:
        click.echo(nothing, err=True)
    elif format_ == "markdown":
        click.echo(markdown_text(rows, _known(rows, columns)))
    else:
        print_table(rows, columns)
        click.echo(f"\n{below}" if below else "", nl=bool(below))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """As wide as the terminal at most, no figure cut; as wide as it needs where no terminal is."""
    click.echo(table_text(rows, columns), nl=False)


def table_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """What `print_table` prints."""
    from monitor.cli.table import Cells, laid_out

    columns = _known(rows, columns)
    same = {c.heading: c.text(rows[0]) for c in columns if c.once and rows and len({c.text(row) for row in rows}) == 1}
    above = " · ".join(f"{heading} {text}" for heading, text in same.items()) + "\n\n" if same else ""
    shown = [
        Cells(column.heading, tuple(column.text(row) for row in rows), column.right, column.whole, column.under)
        for column in columns
        if column.heading not in same
    ]
    return above + laid_out(shown, _width())


def _known(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[Column]:
    """Those that any row has, of those that are left out otherwise."""
    return [column for column in columns if not column.if_any or any(column.text(row) != NOTHING for row in rows)]


def _width() -> int:
    """Of the terminal, COLUMNS before what it says itself."""
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDE_ENOUGH
    return shutil.get_terminal_size().columns


def local_time(value: str | None) -> str:
    """An ISO time as local wall time with its zone."""
    if value is None:
        return NOTHING
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def wrapped(label: str, *parts: str) -> str:
    """A labelled line of a document, at most 80 columns wide and broken between its parts only where it can be."""
    kept = " ".join(part.replace(" ", UNBROKEN) for part in parts)
    wrapper = textwrap.TextWrapper(
        width=80,
        initial_indent=f"  {label:9} ",
        subsequent_indent=" " * 12,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(wrapper.wrap(kept)).replace(UNBROKEN, " ")


def parse_time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    """An option's time: `24h` or `7d` ago, a date, or an ISO time (local when it has no zone)."""
    if value is None:
        return None
    from monitor.config.units import parse_duration

    now = datetime.now().astimezone()
    try:
        return now - parse_duration(value)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        message = f"{value!r} is neither an age such as 24h or 7d nor a time such as 2026-11-30T08:00"
        raise click.BadParameter(message) from None


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A heading and a line per row; lists and objects within are JSON."""
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([cell(row.get(name)) for name in names])
    return out.getvalue()


def cell(value: Any) -> Any:
    """The value where only one fits: lists and objects as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def markdown_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(c.heading for c in columns) + " |"]
    lines.append("|" + "|".join(" ---: " if c.right else " --- " for c in columns) + "|")
    lines += ["| " + " | ".join(c.text(row).replace("|", "\\|") for c in columns) + " |" for row in rows]
    return "\n".join(lines)
