"""Durations and shares as people write them in YAML: `40m`, `1h30m`, `15%`."""

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BeforeValidator

from monitor.core.break_even import BREAK_EVEN
from monitor.core.gate_twin import AS_THE_TWIN

_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
HIGHEST_FLOOR = 100
_LONGEST = timedelta(days=366)


def parse_duration(value: object) -> timedelta:
    """Reads `40m`, `1h30m` or `250ms`; whole numbers with units from `d` to `ms`, largest first.

    Raises ValueError for anything else, for zero and for more than a year.
    """
    if isinstance(value, timedelta):
        duration = value
    else:
        found = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
        if found is None:
            raise ValueError(f"{value!r} is not a duration; write for example 40m, 90s or 1h30m")
        # A number too long for any clock is cut here, so that it is refused below and not an overflow.
        counts = [int((group or "0")[:15]) for group in found.groups()]
        milliseconds = sum(count * unit for count, unit in zip(counts, _MILLISECONDS.values(), strict=True))
        duration = timedelta(milliseconds=min(milliseconds, 2 * _LONGEST // timedelta(milliseconds=1)))
    if duration <= timedelta(0):
        raise ValueError(f"{value!r} is no time at all; write a duration above zero")
    if duration > _LONGEST:
        raise ValueError(f"{value!r} is more than a year")
    return duration


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back as the same duration, to the millisecond."""
    rest = round(duration / timedelta(milliseconds=1))
    text = ""
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def parse_ratio(value: object) -> float:
    """Reads `15%` or 0.15 as 0.15; raises ValueError unless the result is above 0 and below 1."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    try:
        ratio = Decimal(text[:-1]) / 100 if text.endswith("%") else Decimal(text)
    except InvalidOperation:
        ratio = Decimal("NaN")
    if not ratio.is_finite() or not text.isascii():
        raise ValueError(f"{value!r} is not a share; write for example 15% or 0.15")
    if not 0 < float(ratio) < 1:
        hint = f"; did you mean {value}%?" if "%" not in text and 1 <= ratio < 100 else ""
        raise ValueError(f"{value!r} is not between 0% and 100%{hint}")
    return float(ratio)


def parse_lossless(value: object) -> float | str:
    """Reads `twin`, or a share as parse_ratio does and `100%` too."""
    if value == AS_THE_TWIN:
        return AS_THE_TWIN
    if str(value) in ("100%", "1", "1.0"):
        return 1.0
    try:
        return parse_ratio(value)
    except ValueError as error:
        raise ValueError(f"{error}; write for example 95%, 100% or {AS_THE_TWIN}") from None


def parse_floor(value: object) -> float | str:
    """Reads `5%`, 0.05, 1.05 or `break_even`; raises ValueError unless above 0 and at most HIGHEST_FLOOR."""
    if value == BREAK_EVEN:
        return BREAK_EVEN
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if text.endswith("%"):
        return parse_ratio(value)
    try:
        floor = Decimal(text)
    except InvalidOperation:
        floor = Decimal("NaN")
    if not floor.is_finite():
        raise ValueError(f"{value!r} is neither a share nor a number; write for example 5% or 1.0, or {BREAK_EVEN}")
    if not 0 < floor <= HIGHEST_FLOOR:
        raise ValueError(f"{value!r} is not above 0 and at most {HIGHEST_FLOOR}")
    return float(floor)


def parse_duration_or_off(value: object) -> timedelta | None:
    """Reads a duration, or `off`, which YAML may have made False of, as None."""
    return None if value is None or value is False or value == "off" else parse_duration(value)


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Ratio = Annotated[float, BeforeValidator(parse_ratio)]
Lossless = Annotated[float | str, BeforeValidator(parse_lossless)]
Floor = Annotated[float | Literal["break_even"], BeforeValidator(parse_floor)]
DurationOrOff = Annotated[timedelta | None, BeforeValidator(parse_duration_or_off)]
