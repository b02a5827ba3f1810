"""Finds figures in what the program says, and the sources named with them."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCES = ("request", "stream", "counters", "organic", "imported", "measured", "modelled")
"""The last two are the basis of a speedup: both sides' times, or a model of them."""
FIGURES = re.compile(
    r"(acceptance|survival|tokens_per_step|coverage|speedup|^value$|^baseline_value$|^change$|^mean_accept_length)"
)
IN_WORDS = re.compile(r"\b(AL|AR|tok/step|coverage|survival|speedup|acceptance length|judged|K=\d+)\b")
NUMBER = re.compile(r"(?<![\d.])\d*\.\d+(?![\d.])")
SOURCE = re.compile(rf"\b({'|'.join(SOURCES)})\b")
NOT_A_FIGURE = frozenset({"acceptance_by_source", "resolve_change", "trip_change", "accept_length_model"})
"""`acceptance_by_source` has its sources as keys; the lines of a rule and the name of a model are settings."""


FIGURE = re.compile(r"(?<![\d.])\d+\.\d\d\b(?!\.\d)")
"""With two decimals; a version has more parts."""


def nameless_in_document(document: Any, where: str = "", named: bool = False) -> Iterator[str]:
    """Paths of figures whose source neither their object nor one around it names."""
    if isinstance(document, list):
        for number, item in enumerate(document):
            yield from nameless_in_document(item, f"{where}[{number}]", named)
    if not isinstance(document, dict):
        return
    named = _names(document) or named
    for key, value in document.items():
        if key in NOT_A_FIGURE:
            continue
        path = f"{where}.{key}"
        if FIGURES.search(key) and _is_figure(value) and not named:
            yield path
        yield from nameless_in_document(value, path, named)


def _names(document: Mapping[str, Any]) -> bool:
    conditions = document.get("measurement_conditions") or {}
    return any(one in SOURCES for one in (document.get("source"), document.get("basis"), conditions.get("source")))


def _is_figure(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_figure, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def nameless_in_csv(text: str) -> list[str]:
    rows = [{name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]
    return list(nameless_in_document(rows))


def _cell(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return text


def nameless_in_text(text: str) -> list[str]:
    """Paragraphs with figures that name no source themselves nor in the heading just above, and rows with none of it.

    A heading is a paragraph without a table before one with it: what is said once for every row.
    """
    found, above = [], ""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if IN_WORDS.search(paragraph) and NUMBER.search(paragraph) and not SOURCE.search(f"{above}\n{paragraph}"):
            found.append(paragraph)
        found += _nameless_rows(paragraph)
        above = "" if "──" in paragraph else paragraph
    return found


def _nameless_rows(paragraph: str) -> list[str]:
    """Rows that show figures below a heading with a column for the source."""
    lines = paragraph.splitlines()
    for number, line in enumerate(lines[:-1]):
        is_heading = re.match(r"^─|^\|[-: |]+$", lines[number + 1])
        if is_heading and "source" in line and IN_WORDS.search(line):
            return [row for row in lines[number + 2 :] if FIGURE.search(row) and not SOURCE.search(row)]
    return []


def nameless_series(page: str) -> list[str]:
    """Series of figures whose labels have neither a source nor a basis."""
    return [
        f"{sample.name}{sample.labels}"
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if FIGURES.search(family.name.removeprefix("specwatch_"))
        and not {sample.labels.get("source"), sample.labels.get("basis")} & {*SOURCES}
        and not family.name.endswith("_timestamp_seconds")
    ]
