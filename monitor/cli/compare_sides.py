"""How `specwatch compare` reads what a side is called: a run, a day or span, an identity, a baseline."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import RECORD_ID, parse_time
from monitor.core.comparison import SideKind, SideName

if TYPE_CHECKING:
    from datetime import date

_NUMBERED = re.compile(r"(run|baseline|generation|identity):(\d+)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d?-\d\d?", re.ASCII)
YEARS = range(1970, 3000)
_DAYS = {"today": 0, "yesterday": 1}


class SideParameter(click.ParamType[SideName]):
    """An argument that names one side of a comparison."""

    name = "side"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SideName:
        if isinstance(value, SideName):
            return value
        text = str(value).strip()
        if text.isdecimal():
            text = f"run:{text}"
        if found := _NUMBERED.fullmatch(text):
            return SideName(value, SideKind(found[1]), RECORD_ID.convert(found[2], param, ctx))
        if text == "baseline":
            return SideName(text, SideKind.GENERATION)
        try:
            span = self._span(text, param, ctx)
        except ValueError as error:
            self.fail(str(error))
        if span is not None:
            return SideName(text, SideKind.DATES, since=span[0], until=span[1])
        if not text:
            self.fail("is empty; name a run, a day, a span, baseline:ID, generation:N, identity:N or a fingerprint")
        return SideName(text, SideKind.FINGERPRINT, prefix=text)

    def _span(
        self, text: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[datetime | None, datetime | None] | None:
        """None for what is neither a day nor a span. Raises ValueError for a day that no calendar here has."""
        begin, dots, end = text.partition("..")
        if not dots:
            day = _day(text)
            return None if day is None else (_midnight(day), _midnight(day + timedelta(days=1)))
        since, until = (self._end(part, param, ctx) for part in (begin, end))
        last = _day(end)
        if last is not None:
            until = _midnight(last + timedelta(days=1))
        if since is None and until is None:
            self.fail(f"{text!r} has neither a beginning nor an end; write for example 7d.. or 2026-11-01..2026-11-07")
        if since is not None and until is not None and until <= since:
            self.fail(f"{text!r} ends before it begins")
        return since, until

    def _end(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime | None:
        if not text:
            return None
        day = _day(text)
        if day is not None:
            return _midnight(day)
        assert ctx is not None
        assert param is not None
        return parse_time(ctx, param, text)


def _day(text: str) -> date | None:
    """A calendar day here: `2026-11-01`, today, yesterday; None for anything else.

    Raises ValueError for what looks like a day and is none, or is outside of YEARS.
    """
    if text in _DAYS:
        return datetime.now().astimezone().date() - timedelta(days=_DAYS[text])
    if not _DAY.fullmatch(text):
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007  (a day has no zone until it begins)
    except ValueError:
        raise ValueError(f"{text!r} is no day; write for example 2026-11-01") from None
    if day.year not in YEARS:
        raise ValueError(f"{text!r} is not in the years {YEARS[0]} to {YEARS[-1]}")
    return day


def _midnight(day: date) -> datetime:
    """The day's beginning in local time."""
    return datetime.combine(day, time.min).astimezone()
