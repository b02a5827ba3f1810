"""A gate's candidate beside its own plain twin: is it fast enough, and are its greedy outputs the twin's? Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

from monitor.core.format import agreement_text, count, figure
from monitor.core.gate import SEVEREST_FIRST, Decision, GateReason
from monitor.core.outputs import Agreement, Outputs
from monitor.core.speedup import POINT_KEYS
from monitor.core.statistics import RatioEstimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Identity
    from monitor.core.speedup import Speedup

LEAST_SPEEDUP = 1.0
"""What a candidate with a twin must reach where nothing else is said: speculation that loses is let in by nobody."""
AS_THE_TWIN = "twin"
"""In place of a share of outputs: as often as the twin repeats its own."""
SLACK_RATIO = 0.10
"""By so much less of the outputs may be the twin's than the twin repeats of its own: verification computes other shapes
than plain decoding, and near-ties flip there too."""
ALPHA = 0.05
"""Chance of a wrong pass, and of a wrong fail, where outputs are held against the twin's own agreement."""
SPREAD_FLOOR = math.sqrt(SLACK_RATIO * (1 - SLACK_RATIO))
"""Least spread over prompts believed: that of outputs which are just so much less alike. Of few prompts none may differ
by luck, and their own spread would be 0."""
MEASURED = (*POINT_KEYS, "outputs", "invalid_reason", "invalid_detail")
"""Of a speedup's document, what a domain of a gate has of it."""


@dataclass(frozen=True)
class TwinDomain:
    """One domain of the candidate beside its plain twin, and what that says of the gate."""

    reason: GateReason
    text: str
    found: Speedup | None = None

    @property
    def speedup(self) -> RatioEstimate | None:
        return self.found.point.speedup if self.found is not None and self.found.point is not None else None

    @property
    def outputs(self) -> Outputs | None:
        return None if self.found is None else self.found.outputs

    @property
    def unmeasured(self) -> bool:
        """It ended before there was anything to compare, for the reason it has."""
        return not is_pass((self.reason, self.text)) and (self.found is None or self.found.point is None)

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of it (docs/json.md)."""
        measured = {} if self.found is None else self.found.as_dict()
        return {**verdict_of((self.reason, self.text)), **{name: measured.get(name) for name in MEASURED}}


@dataclass(frozen=True)
class GateTwin:
    """The candidate's own plain twin in a gate: what the candidate must show beside it, and what it did, by domain.

    `lossless`: the share of greedy outputs that must be the twin's, or AS_THE_TWIN; None: whatever they are.
    `min_prompts`: of each domain so many outputs must be comparable. `weights`: of the domains in the mix.
    """

    replica: str
    min_speedup: float
    lossless: float | str | None
    min_prompts: int
    weights: Mapping[str, float]
    identity: Identity | None = None
    domains: Mapping[str, TwinDomain] = field(default_factory=dict)

    def parts(self, domains: Sequence[str]) -> list[tuple[GateReason, str]]:
        """How each of these domains ended, their mix, and the outputs: a domain that was not measured is no pass."""
        missing = TwinDomain(GateReason.SPEEDUP_INVALID, "not measured beside its plain twin")
        beside = {domain: self.domains.get(domain, missing) for domain in domains}
        found = [(one.reason, f"{domain}: {one.text}") for domain, one in beside.items()]
        if self.mix is not None and len(domains) > 1:
            found.append((self.mix.reason, f"mix of the domains: {self.mix.text}"))
        if self._lossless is not None:
            found.append((self._lossless[0], f"outputs: {self._lossless[1]}"))
        return found

    @property
    def speedup(self) -> RatioEstimate | None:
        """Of the mix."""
        return mixed_speedup({name: one.speedup for name, one in self.domains.items() if one.speedup}, self.weights)

    @property
    def mix(self) -> TwinDomain | None:
        return None if self.speedup is None else TwinDomain(*speedup_ending(self.speedup, self.min_speedup))

    @property
    def outputs(self) -> Outputs | None:
        """Of all domains."""
        return pooled_outputs({name: one.outputs for name, one in self.domains.items() if one.outputs})

    @property
    def _outputs_text(self) -> str:
        """Of outputs that are only reported; empty without any."""
        if self.outputs is None:
            return ""
        return outputs_text(self.outputs, {name: len(prompts_of(one.outputs)) for name, one in self.domains.items()})

    @property
    def _lossless(self) -> tuple[GateReason, str] | None:
        """None where nothing is required, or nothing was measured yet."""
        if self.lossless is None or not self.domains:
            return None
        if missing := [(one.reason, f"{name}: {one.text}") for name, one in self.domains.items() if one.unmeasured]:
            return min(missing, key=lambda part: SEVEREST_FIRST.index(part[0].decision))
        outputs = {name: one.outputs for name, one in self.domains.items()}
        return lossless_ending(outputs, self.lossless, self.min_prompts)

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of it (docs/json.md)."""
        speedup = {} if self.speedup is None else self.speedup.as_dict()
        outputs = {} if self.outputs is None else self.outputs.as_dict()
        mix = None if self.mix is None else (self.mix.reason, self.mix.text)
        told = {} if self.lossless is not None else {"text": self._outputs_text or None}
        return {
            "replica": self.replica,
            "identity": None if self.identity is None else self.identity.as_dict(),
            "speedup": {
                **verdict_of(mix),
                **{name: speedup.get(name) for name in ("ratio", "low", "high", "n", "repeats")},
            },
            "outputs": {
                **verdict_of(self._lossless),
                **told,
                **{name: outputs.get(name) for name in ("replica_and_twin", "twin_and_itself")},
            },
        }


def is_pass(ending: tuple[GateReason, str]) -> bool:
    return ending[0].decision is Decision.PASS


def both(acceptance: tuple[GateReason, str], beside: TwinDomain | None) -> tuple[GateReason, str]:
    """Of acceptance; where that has passed and the plain twin was measured, of both."""
    if beside is None or not is_pass(acceptance):
        return acceptance
    if beside.reason.decision is not Decision.PASS:
        return beside.reason, beside.text
    return acceptance[0], f"{acceptance[1]}; {beside.text}"


def verdict_of(ending: tuple[GateReason, str] | None) -> dict[str, str | None]:
    """Verdict, reason and text of a part of a gate; all None where it decides nothing."""
    if ending is None:
        return dict.fromkeys(("verdict", "reason", "text"))
    return {"verdict": ending[0].decision.value, "reason": ending[0].value, "text": ending[1]}


def speedup_ending(found: RatioEstimate, least: float) -> tuple[GateReason, str]:
    """A pass where the whole interval reaches `least`, a fail where none of it does."""
    if found.low >= least:
        reason = GateReason.NO_REGRESSION
    else:
        reason = GateReason.TOO_SLOW if found.high < least else GateReason.SPEEDUP_UNDECIDED
    told = f"{figure('', found.ratio)} (95 % interval {figure('', found.low)} to {figure('', found.high)})"
    return reason, f"speedup {told} over {found.n} prompts in {found.repeats} passes, {least:g} asked"


def mixed_speedup(domains: Mapping[str, RatioEstimate], weights: Mapping[str, float]) -> RatioEstimate | None:
    """The route's own speedup: the weighted geometric mean of its domains', whose errors are independent.

    None when a domain of the mix has none.
    """
    if not weights or any(domain not in domains for domain in weights):
        return None
    total = sum(weights.values())
    shares = [(weight / total, domains[domain]) for domain, weight in weights.items()]
    log = sum(share * math.log(one.ratio) for share, one in shares)
    half = math.hypot(*(share * math.log(one.high / one.low) / 2 for share, one in shares))
    n, repeats = sum(one.n for _, one in shares), min(one.repeats for _, one in shares)
    return RatioEstimate(math.exp(log), math.exp(log - half), math.exp(log + half), n, repeats)


def pooled_outputs(domains: Mapping[str, Outputs]) -> Outputs | None:
    """Over all domains: losslessness is the server's, and one domain has few prompts. None without any."""
    if not domains:
        return None
    pairs = (
        {domain: found.replica_and_twin for domain, found in domains.items()},
        {domain: found.twin_and_itself for domain, found in domains.items()},
    )
    return Outputs(*map(_pooled, pairs))


def _pooled(domains: Mapping[str, Agreement]) -> Agreement:
    return Agreement(
        sum(one.same for one in domains.values()),
        sum(one.compared for one in domains.values()),
        tuple(sorted(place for one in domains.values() for place in one.first_differences)),
        {f"{domain} {question}": found for domain, one in domains.items() for question, found in one.by_prompt.items()},
    )


def prompts_of(found: Outputs | None, required: float | str | None = None) -> list[str]:
    """Those whose outputs can be compared; beside the twin's own agreement, those that it answered twice as well."""
    if found is None:
        return []
    own = found.twin_and_itself.by_prompt
    return [prompt for prompt in found.replica_and_twin.by_prompt if required != AS_THE_TWIN or prompt in own]


def outputs_text(found: Outputs, prompts: Mapping[str, int]) -> str:
    """How many outputs are the twin's, how many the twin repeats, where the others part, and what was compared.

    `prompts`: of each domain how many.
    """
    told = (
        f"{agreement_text(found.replica_and_twin.as_dict())} greedy outputs are the plain twin's, which repeats "
        f"{agreement_text(found.twin_and_itself.as_dict())} of its own"
    )
    if places := found.replica_and_twin.first_differences:
        told += f"; the others part at tokens {places[0]} to {places[-1]}, half of them by {median(places):.0f}"
    return f"{told}; compared on {_prompts_text(prompts)}"


def _prompts_text(prompts: Mapping[str, int]) -> str:
    """24 prompts of math; 24 prompts of each of 11 domains; 24 prompts of math, 12 of qa."""
    numbers = set(prompts.values())
    if len(prompts) > 1 and len(numbers) == 1:
        return f"{count(numbers.pop(), 'prompt')} of each of {len(prompts)} domains"
    (first, most), *others = sorted(prompts.items(), key=lambda one: -one[1])
    return ", ".join([f"{count(most, 'prompt')} of {first}", *(f"{number:,} of {domain}" for domain, number in others)])


def lossless_ending(
    domains: Mapping[str, Outputs | None], required: float | str, min_prompts: int
) -> tuple[GateReason, str]:
    """`required`: the share of outputs that must be the twin's, counted; or AS_THE_TWIN. Of all domains together.

    Against the twin's own agreement it is a pass where the interval of the difference, prompt by prompt, lies above
    −SLACK_RATIO, and a fail where it lies below. Unknown where of any domain fewer than `min_prompts` can be compared:
    the others say nothing of what was not seen of it.
    """
    prompts = {domain: len(prompts_of(one, required)) for domain, one in domains.items()}
    found = pooled_outputs({domain: one for domain, one in domains.items() if one is not None})
    few = {domain: number for domain, number in prompts.items() if number < min_prompts}
    if few or found is None:
        told = f"outputs can be compared on {_prompts_text(few)}, {min_prompts} are needed of each domain"
        return GateReason.OUTPUTS_UNKNOWN, f"{told}: only greedy answers whose token ids both servers show can be"
    text = outputs_text(found, prompts)
    if isinstance(required, float):
        share = found.replica_and_twin.same / found.replica_and_twin.compared
        reason = GateReason.NO_REGRESSION if share >= required else GateReason.LOSSY
        return reason, f"{text}; that is {share:.1%}, {required:.1%} asked"
    ours, own = found.replica_and_twin.by_prompt, found.twin_and_itself.by_prompt
    low, high = _difference([_share(ours[prompt]) - _share(own[prompt]) for prompt in prompts_of(found, required)])
    if low > -SLACK_RATIO:
        reason = GateReason.NO_REGRESSION
    else:
        reason = GateReason.LOSSY if high < -SLACK_RATIO else GateReason.OUTPUTS_UNDECIDED
    return reason, f"{text}; beside the twin's own {low:+.1%} to {high:+.1%} of them, {-SLACK_RATIO:.0%} allowed"


def _share(found: tuple[int, int]) -> float:
    return found[0] / found[1]


def _difference(by_prompt: Sequence[float]) -> tuple[float, float]:
    """Either end is wrong in ALPHA."""
    from scipy.special import stdtrit

    n = len(by_prompt)
    half = float(stdtrit(n - 1, 1 - ALPHA)) * max(stdev(by_prompt), SPREAD_FLOOR) / math.sqrt(n)
    return mean(by_prompt) - half, mean(by_prompt) + half
