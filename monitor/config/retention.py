"""What of old measurements is removed: nothing, unless it is written."""

from datetime import timedelta

from pydantic import Field, field_validator

from monitor.config.strict import StrictModel
from monitor.config.units import DurationOrOff

SHORTEST = timedelta(days=7)


class Retention(StrictModel):
    """How long the bulk of old measurements is kept; `serve` removes what is older, once a day.

    Runs with their figures, verdicts, incidents, baselines, speedups and gates are always kept.
    """

    samples: DurationOrOff = Field(
        default=None,
        examples=["90d"],
        description="Age from which the samples of a run are removed, prompt by prompt the counts, times and output "
        "hashes that its figures were made from; a week at least, a year at most. Those behind a baseline or an "
        "incident are kept. [What can no longer be had](operations.md#removing-old-samples). Unset or `off`: all are "
        "kept.",
    )
    organic: DurationOrOff = Field(
        default=None,
        examples=["180d"],
        description="The same for passive readings of replicas, a row for each and ten minutes; those from the time of "
        "a baseline's runs, or the hour before an incident was confirmed, are kept. Unset or `off`: all are kept.",
    )

    @field_validator("samples", "organic")
    @classmethod
    def _not_at_once(cls, age: timedelta | None) -> timedelta | None:
        if age is not None and age < SHORTEST:
            raise ValueError("what is a few days old is still judged and explained by; write a week at least, as 90d")
        return age
