"""What a target writes and what a drafter gets accepted, as pure functions of their names and the prompt."""

from __future__ import annotations

import hashlib
import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Literal, get_args

from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Method = Literal["draft_model", "eagle", "ngram", "suffix"]
Step = tuple[int, int]
"""Tokens drafted and accepted in one decode step; (0, 0) is a step without a draft."""

END_OF_TEXT = 1
VOCABULARY_SIZE = 2048
_FIRST_WORD = 3

# d ln(AL) / d logit is about 0.4 for a usual drafter (conditional acceptance near 0.7, K = 4).
_LOGITS_PER_LOG_LENGTH = 2.5

# n-gram lookup found a draft on 662 of 1,785 decode steps of a real server.
_COVERAGE_RATIO: Mapping[str, float] = {"ngram": 0.37}


def seeded(*parts: str) -> Random:
    """A generator that depends on `parts` alone, the same in every process and Python version."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return Random(int.from_bytes(digest[:8]))  # noqa: S311  a simulation, not a secret


@dataclass(frozen=True)
class Drafter:
    """Proposes tokens; `method` None is a server without speculation.

    `acceptance` maps a domain to conditional acceptance by position (the chance that position i is accepted when all
    before it were); a tuple shorter than K goes on with its last value. `prompt_spread_ratio` is the standard
    deviation of ln AL between prompts, `run_noise_ratio` the one of the same prompt between runs. `coverage_ratio` is
    the share of decode steps with a draft; None means the method's own. `cached_drop_ratio` is by how much ln AL is
    lower, about, where the prefix cache had the prompt.
    """

    method: Method | None = "draft_model"
    name: str = "models/tiny-draft"
    num_speculative_tokens: int = 4
    acceptance: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    default_acceptance: tuple[float, ...] = (0.75, 0.70, 0.70, 0.70)
    coverage_ratio: float | None = None
    prompt_spread_ratio: float = 0.25
    run_noise_ratio: float = 0.03
    cached_drop_ratio: float = 0.0

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in get_args(Method):
            raise UsageError(f"drafter method {self.method!r} is not known; use one of {', '.join(get_args(Method))}")
        if not 1 <= self.num_speculative_tokens <= 64:
            raise UsageError(f"num_speculative_tokens is {self.num_speculative_tokens}; it must be 1 to 64")
        for domain, values in {**self.acceptance, "default": self.default_acceptance}.items():
            if not values or not all(0.0 <= value <= 1.0 for value in values):
                raise UsageError(f"acceptance of {domain!r} is {values!r}; give one or more numbers from 0 to 1")

    @property
    def k(self) -> int:
        return self.num_speculative_tokens if self.method else 0

    @property
    def model(self) -> str | None:
        """The draft model as the configuration names it: lookup methods are their own name."""
        return self.method if self.method in ("ngram", "suffix") else self.name if self.method else None

    def with_acceptance(self, domain: str, values: tuple[float, ...]) -> Drafter:
        """The same drafter with another acceptance on one domain; 'default' is every domain not named."""
        if domain == "default":
            return replace(self, default_acceptance=values)
        return replace(self, acceptance={**self.acceptance, domain: values})

    def survival(self, prompt: str, domain: str, salt: str | None = None, *, cached: bool = False) -> tuple[float, ...]:
        """Chance that a step with a draft accepts more than i tokens, for this prompt (and this run, given a salt)."""
        logits = seeded("prompt", prompt).gauss(0.0, self.prompt_spread_ratio)
        logits -= self.cached_drop_ratio if cached else 0.0
        if salt is not None:
            logits += seeded("run", prompt, self.name, salt).gauss(0.0, self.run_noise_ratio)
        given = self.acceptance.get(domain, self.default_acceptance)
        conditionals = (given + given[-1:] * self.k)[: self.k]
        shifted = (_shift(value, logits * _LOGITS_PER_LOG_LENGTH) for value in conditionals)
        return tuple(itertools.accumulate(shifted, lambda survived, value: survived * value))

    def expected_acceptance_length(self, prompt: str, domain: str) -> float:
        """AL of an endless answer to this prompt, without run-to-run noise."""
        return 1.0 + sum(self.survival(prompt, domain))

    def steps(self, prompt: str, domain: str, salt: str, *, cached: bool = False) -> Iterator[Step]:
        """Decode steps for ever: the same for the same prompt, drafter name and salt.

        Runs of one prompt share their random numbers whatever the salt, so a greedy replay differs by
        `run_noise_ratio` only, and a changed acceptance shows on every prompt.
        """
        if self.method is None:
            yield from itertools.repeat((0, 0))
        draw = seeded("steps", prompt, self.name).random
        thresholds = [1.0 - chance for chance in self.survival(prompt, domain, salt, cached=cached)]
        own = _COVERAGE_RATIO.get(self.method or "", 1.0)
        coverage = own if self.coverage_ratio is None else self.coverage_ratio
        while True:
            has_draft, accepted, spare = draw() < coverage, bisect_left(thresholds, draw()), draw()
            if not has_draft:
                yield 0, 0
            elif self.method == "suffix":
                # Suffix decoding drafts as far as its tree reaches, not always K.
                shortest = max(1, accepted)
                yield shortest + int(spare * (self.k - shortest + 1)), accepted
            else:
                yield self.k, accepted


def _shift(probability: float, logits: float) -> float:
    if not 0.0 < probability < 1.0:
        return probability
    return 1.0 / (1.0 + (1.0 / probability - 1.0) * math.exp(-logits))


@dataclass(frozen=True)
class Target:
    """Writes the answer: token ids that depend on its name and the prompt alone, whatever drafts for it.

    A `stop_ratio` of all prompts end by themselves after 40 to 400 tokens; the others only at the limit.
    """

    name: str = "models/tiny-target"
    stop_ratio: float = 0.25

    def output(self, prompt: str, limit_tokens: int, *, min_tokens: int = 0, ignore_eos: bool = False) -> list[int]:
        """Token ids of the whole answer, at most `limit_tokens`; END_OF_TEXT is last where it stopped by itself."""
        rng = seeded("output", self.name, prompt)
        stops, natural_tokens = rng.random() < self.stop_ratio, max(rng.randint(40, 400), min_tokens)
        stopped = stops and not ignore_eos and natural_tokens <= limit_tokens
        length = natural_tokens - 1 if stopped else limit_tokens
        ids = rng.choices(range(_FIRST_WORD, VOCABULARY_SIZE), k=length)
        return [*ids, END_OF_TEXT] if stopped else ids


@lru_cache(maxsize=1024)
def prompt_token_ids(prompt: str) -> tuple[int, ...]:
    """About one token per four characters; the ids depend on the text alone."""
    return tuple(seeded("tokens", prompt).choices(range(_FIRST_WORD, VOCABULARY_SIZE), k=max(1, len(prompt) // 4)))


def fingerprint(version: str, target: Target, drafter: Drafter) -> str:
    """`vllm-<version>-<hash8>`: changes with the target, the draft model and speculation on or off, never with K.

    Like a real server's it cannot tell n-gram from suffix drafting.
    """
    lookup = drafter.method in ("ngram", "suffix")
    digest = hashlib.sha256(f"{target.name}|{'lookup' if lookup else drafter.model}".encode()).hexdigest()
    return f"vllm-{version}-{digest[:8]}"


def _vocabulary() -> tuple[str, ...]:
    """Text of every token: three special ones without text, a line break, then made-up words."""
    syllables = [
        a + b + c
        for c in ("", "n", "r", "s", "l", "m", "t", "ck", "nd", "st")
        for b in "aeiou"
        for a in "bdfgklmnprstvz"
    ]
    words = (f" {first}{second}" for second in ("", "ra", "lo") for first in syllables)
    return ("", "", "", "\n", *itertools.islice(words, VOCABULARY_SIZE - 4))


VOCABULARY = _vocabulary()
