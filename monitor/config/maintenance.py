"""`maintenance` of alerting.yaml: windows in which messages are held."""

from datetime import datetime, time, timedelta
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from monitor.config.strict import Labels, Name, Names, StrictModel, Text, at_least_one
from monitor.config.units import Duration, format_duration
from monitor.core.maintenance import EVERY_DAY, Schedule, shortest_gap

LONGEST = timedelta(days=30)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


def parse_clock(value: object) -> time:
    """Reads `02:30`. Raises ValueError; a number is what YAML makes of 22:00 without quotes."""
    try:
        return value if isinstance(value, time) else datetime.strptime(str(value), "%H:%M").time()  # noqa: DTZ007
    except ValueError:
        hint = " in quotes" if isinstance(value, int) else ""
        raise ValueError(f'{value!r} is not a time of day; write it{hint}, for example "22:00"') from None


def parse_moment(value: object) -> datetime:
    """Reads `2026-12-24 22:00`, a time without a zone. Raises ValueError."""
    try:
        moment = value if isinstance(value, datetime) else datetime.strptime(str(value), "%Y-%m-%d %H:%M")  # noqa: DTZ007
    except ValueError:
        raise ValueError(f'{value!r} is not a date and time; write for example "2026-12-24 22:00"') from None
    if moment.tzinfo is not None:
        raise ValueError(f"{value} names a zone; name it with timezone instead")
    return moment


class Maintenance(StrictModel):
    """A window, again and again or once, in which messages of what fits it are held as by a silence."""

    name: Name = Field(examples=["weekly-rollout"], description="Name of the window where it is shown; unique.")
    reason: Text = Field(examples=["drafters are rolled out"], description="Why; shown wherever the window is.")
    at: Annotated[time, BeforeValidator(parse_clock)] | None = Field(
        default=None,
        examples=['"22:00"'],
        description="Time of day at which it opens, in quotes. One that clocks skip is the next there is; one that "
        "comes twice is the first. Unset: `once` is given.",
    )
    weekdays: Annotated[tuple[Weekday, ...], AfterValidator(at_least_one)] | None = Field(
        default=None,
        examples=[["tue", "thu"]],
        description="Days on which it opens, of `mon` to `sun`; it may close on another. Unset: every day.",
    )
    once: Annotated[datetime, BeforeValidator(parse_moment)] | None = Field(
        default=None,
        examples=['"2026-12-24 22:00"'],
        description="Date and time at which it opens, once. Unset: `at` is given.",
    )
    lasts: Duration = Field(
        examples=["2h"],
        description="How long it is open, in elapsed time: less than from one opening to the next, 30 days at most.",
    )
    timezone: Text = Field(default="UTC", examples=["Europe/Berlin"], description="Zone of its times.")
    routes: Names | None = Field(default=None, description="Names of the routes it holds. Unset: all of them.")
    match: Labels = Field(
        default_factory=dict, description="Labels that a route must have, with these values. Unset: any."
    )
    severity: Literal["page", "warning"] | None = Field(
        default=None, description="Only incidents of this severity. Unset: of any."
    )

    @property
    def schedule(self) -> Schedule:
        days = EVERY_DAY if self.weekdays is None else frozenset(map(WEEKDAYS.index, self.weekdays))
        return Schedule(ZoneInfo(self.timezone), self.lasts, self.at, days, self.once)

    @field_validator("timezone")
    @classmethod
    def _a_known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a directory is an OSError
            raise ValueError(f"there is no time zone {name!r}; write for example Europe/Berlin or UTC") from None
        return name

    @model_validator(mode="after")
    def _a_schedule_with_an_end(self) -> Self:
        if (self.at is None) == (self.once is None):
            raise ValueError("give exactly one of at and once")
        if self.once is not None and self.weekdays is not None:
            raise ValueError("weekdays are of a window with at; one that opens once has its date")
        if self.lasts > LONGEST:
            raise ValueError("lasts more than 30 days; leave who is never told out of routing")
        if self.at is not None and self.lasts >= shortest_gap(self.schedule.weekdays):
            raise ValueError(f"lasts {format_duration(self.lasts)}, until it opens again: nobody would ever be told")
        return self
