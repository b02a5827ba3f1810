"""What a gate is asked over HTTP: the options of `specwatch gate ROUTE`, with the same names and defaults."""

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from monitor.config.limits import MAX_SPEEDUP
from monitor.config.replicas import replica_url
from monitor.config.strict import Line, Link, Names, Number, StrictModel, Switch, Text
from monitor.config.units import Duration, Lossless, Ratio
from monitor.core.gate import MAX_DROP, REFERENCES
from monitor.core.promotion import Promotion

FEWEST_PROMPTS = 12


def _against(value: str) -> str:
    return value if value in REFERENCES else replica_url(value)


Count = Annotated[int, Field(strict=True, ge=FEWEST_PROMPTS)]


class GateRequest(StrictModel):
    """A gate of a route; whoever can send one can make this process call `candidate` with the route's key."""

    route: Text
    candidate: Annotated[Text, AfterValidator(replica_url)]
    against: Annotated[Text, AfterValidator(_against)] = "production"
    candidate_model: Text | None = None
    max_drop: Ratio = MAX_DROP
    metric: Literal["acceptance_length", "tokens_per_step"] = "acceptance_length"
    domains: Names | None = None
    prompts: Count | None = None
    min_prompts: Count = FEWEST_PROMPTS
    timeout: Duration = timedelta(minutes=15)
    plain: Annotated[Text, AfterValidator(replica_url)] | None = None
    min_speedup: Annotated[Number, Field(gt=0, le=MAX_SPEEDUP)] | None = None
    require_lossless: Lossless | None = None
    promote: Switch = False
    by: Line | None = None
    link: Link | None = None

    @model_validator(mode="after")
    def _enough_prompts(self) -> Self:
        if self.prompts is not None and self.prompts < self.min_prompts:
            raise ValueError(f"prompts {self.prompts} is less than the {self.min_prompts} of min_prompts")
        return self

    @model_validator(mode="after")
    def _promoting(self) -> Self:
        if not self.promote and (self.by, self.link) != (None, None):
            raise ValueError("by and link are of a promotion: send promote: true with them")
        return self

    @property
    def promotion(self) -> Promotion | None:
        """Raises ValueError where nobody is named: whoever takes the request names its token."""
        if not self.promote:
            return None
        if self.by is None:
            raise ValueError("by is not set")
        return Promotion(self.by, self.link)
