"""Durations and shares as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config.units import format_duration, parse_duration, parse_ratio


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("40m", 2400), ("5s", 5), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172_800), ("1m500ms", 60.5), ("90s", 90)],
)
def test_a_duration_is_read_with_its_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["40 minutes", "40", "", "m", "1.5h", "30s1m", "-5m", "5M", " 5m", "٥m"])
def test_a_text_that_is_no_duration_is_refused_with_examples(value: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(value)
    assert str(caught.value) == f"{value!r} is not a duration; write for example 40m, 90s or 1h30m"


@pytest.mark.parametrize("value", [40, 1.5, True, None, ["5m"]])
def test_a_number_without_a_unit_is_not_a_duration(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write for example 40m, 90s or 1h30m"):
        parse_duration(value)


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^'0s' is no time at all; write a duration above zero$"):
        parse_duration("0s")


@pytest.mark.parametrize("value", ["367d", "9" * 40 + "h"])
def test_more_than_a_year_is_refused_and_never_overflows(value: str) -> None:
    with pytest.raises(ValueError, match="is more than a year"):
        parse_duration(value)


def test_a_duration_already_read_stays_as_it_is() -> None:
    assert parse_duration(timedelta(minutes=3)) == timedelta(minutes=3)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=40), "40m"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(milliseconds=1250), "1s250ms"),
        (timedelta(days=1, seconds=1), "1d1s"),
        (timedelta(0), "0s"),
    ],
)
def test_a_duration_is_written_in_its_largest_units(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.integers(min_value=1, max_value=366 * 86_400_000))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("value", "ratio"), [("15%", 0.15), (0.15, 0.15), ("0.15", 0.15), ("7.5%", 0.075), ("15 %", 0.15), ("99%", 0.99)]
)
def test_a_share_is_read_from_percent_or_number(value: object, ratio: float) -> None:
    assert parse_ratio(value) == ratio


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (15, "15 is not between 0% and 100%; did you mean 15%?"),
        ("15", "'15' is not between 0% and 100%; did you mean 15%?"),
        (0, "0 is not between 0% and 100%"),
        ("100%", "'100%' is not between 0% and 100%"),
        (-0.1, "-0.1 is not between 0% and 100%"),
        ("NaN", "'NaN' is not a share; write for example 15% or 0.15"),
        ("inf", "'inf' is not a share; write for example 15% or 0.15"),
        ("٣%", "'٣%' is not a share; write for example 15% or 0.15"),
        ("1e-400%", "'1e-400%' is not between 0% and 100%"),
        ("a lot", "'a lot' is not a share; write for example 15% or 0.15"),
        ("%", "'%' is not a share; write for example 15% or 0.15"),
        (True, "True is not a share; write for example 15% or 0.15"),
        (None, "None is not a share; write for example 15% or 0.15"),
    ],
)
def test_what_is_no_share_is_refused_with_the_reason(value: object, message: str) -> None:
    with pytest.raises(ValueError, match="is not") as caught:
        parse_ratio(value)
    assert str(caught.value) == message
