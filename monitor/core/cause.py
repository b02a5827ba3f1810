"""A cause of a moved acceptance, as an explanation names it. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

FELL = -0.10
"""A change at or past this counts as fallen: about where a rule of 15 percent trips."""
HELD = -0.07
"""A change above this counts as held: where a rule of 15 percent calls a domain well."""

LEVEL = 0.03
"""A change nearer to zero than this has no cause to be looked for, nor has one whose interval holds zero."""


class Kind(enum.StrEnum):
    """What moved. Of causes equally sure, the one that stands first here is told first."""

    TEMPLATE = "template"
    TARGET = "target"
    ENGINE_VERSION = "engine_version"
    DRAFTER = "drafter"
    REPLICA = "replica"
    PREFIX_CACHE = "prefix_cache"
    UPTIME = "uptime"
    LOAD = "load"
    CONTEXT_LENGTH = "context_length"
    CONFIGURATION = "configuration"
    TRAFFIC_MIX = "traffic_mix"


class Strength(enum.IntEnum):
    """How sure the evidence is: it singles the cause out; it fits; it was merely different."""

    WEAK = 1
    MODERATE = 2
    STRONG = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Cause:
    """One line of an explanation; the sentence has the numbers behind it."""

    kind: Kind
    strength: Strength
    sentence: str

    def as_dict(self) -> dict[str, str]:
        """The one JSON shape of a cause (docs/json.md)."""
        return {"kind": self.kind.value, "strength": self.strength.word, "sentence": self.sentence}
