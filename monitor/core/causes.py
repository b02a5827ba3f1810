"""What moved: the causes that evidence points to, the surest first, each with its numbers. Pure.

A cause is named only where a measurement points at it; where none does, there is none.
"""

from __future__ import annotations

from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any

from monitor.core.cause import FELL, HELD, LEVEL, Cause, Kind, Strength
from monitor.core.format import change, count, figure, replica_difference_text
from monitor.core.patterns import cache_cause, context_cause, load_cause, uptime_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.evidence import Evidence

TARGET_FIELDS = ("target", "root", "model", "quantization")
DRAFTER_FIELDS = ("drafter", "method")
VERSION_FIELDS = ("engine", "version")
OTHER_FIELDS = ("k", "tensor_parallel", "max_model_len", "fingerprint")
DEAD_BELOW = 0.05
"""First-position survival under which a drafter proposes nothing the target accepts (alerting.yaml as shipped)."""
TEMPLATE_SHARE = 0.75
"""From this share of prompts with other tokens on, the template or the tokenizer is another."""
LEAST_PROMPTS = 8
DEFINITION_TOLERANCE = 0.02
"""Acceptance lengths: that counting the bonus token, or not, moves every prompt by one token and no more."""
ORGANIC_STEPS = 10_000
"""Of everybody's requests on either side, before a difference between them is believed: a hundred answers of a hundred
steps. With 25 percent between prompts chance alone makes a difference of 10 percent of them in one case of 170; of a
tenth as many in one of three."""
UNSEEN = "no change of model, drafter or engine was seen (weights that are overwritten or pushed cannot be seen)"


def causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Every cause there is evidence for, the strongest first; of probes that held only that the traffic is another."""
    if not evidence.moved:
        return tuple(filter(None, [_traffic_mix(evidence)]))
    rules = (
        _template,
        _target,
        _engine_version,
        _drafter,
        _replica,
        cache_cause,
        uptime_cause,
        load_cause,
        context_cause,
        _configuration,
        _traffic_mix,
    )
    found = [cause for rule in rules if (cause := rule(evidence)) is not None]
    order = list(Kind)
    return tuple(sorted(found, key=lambda cause: (-cause.strength, order.index(cause.kind))))


def looked_at(evidence: Evidence) -> tuple[list[str], list[str]]:
    """What there was evidence of, and what there was none of: said where no cause was found."""
    known = {
        "identity": evidence.change is not None,
        "outputs": evidence.outputs is not None,
        "template": any(move.prompt_tokens_before for move in evidence.moves),
        "other replicas": len({run.replica for run in evidence.recent}) > 1 and not evidence.removed_beside,
        "prefix cache": any(move.cached_tokens is not None for move in evidence.moves),
        "uptime": any(run.server_started_at is not None for run in evidence.recent),
        "load": bool(evidence.baseline_loads) and any(load.running is not None for load in evidence.loads),
        "context length": any(move.prompt_tokens for move in evidence.moves),
        "traffic": evidence.organic is not None,
    }
    return [name for name, seen in known.items() if seen], [name for name, seen in known.items() if not seen]


def _template(evidence: Evidence) -> Cause | None:
    known = [move for move in evidence.moves if move.prompt_tokens is not None and move.prompt_tokens_before]
    other = [move for move in known if move.prompt_tokens not in move.prompt_tokens_before]
    if len(known) < LEAST_PROMPTS or len(other) < TEMPLATE_SHARE * len(known):
        return None
    more = median((move.prompt_tokens or 0) - median(move.prompt_tokens_before) for move in other)
    text = f"{len(other)} of {count(len(known), 'prompt')} have other numbers of tokens than in the baseline's runs "
    text += f"({more:+g} at the median): the chat template, thinking mode or tokenizer is another"
    return Cause(Kind.TEMPLATE, Strength.STRONG, text)


def _target(evidence: Evidence) -> Cause | None:
    named = _changed(evidence.identity_changes, TARGET_FIELDS)
    outputs = evidence.outputs
    points_at = None if outputs is None else outputs.points_at
    if outputs is None or points_at != "target":
        if not named:
            return None
        unchanged = outputs is not None and points_at == "drafter"
        text = f"{named}; {'yet outputs are unchanged' if unchanged else 'outputs do not tell'}"
        return Cause(Kind.TARGET, Strength.WEAK if unchanged else Strength.STRONG, text)
    text = f"outputs changed on {outputs.changed} of {outputs.compared}: points at the target"
    if _template(evidence) is not None:
        return Cause(Kind.TARGET, Strength.WEAK, f"{text}, but another template changes them as well")
    version = _changed(evidence.identity_changes, VERSION_FIELDS)
    if version and not named:
        return Cause(Kind.TARGET, Strength.MODERATE, f"{text}, but another version of the engine changes some as well")
    any_change = named or _changed(evidence.identity_changes, (*DRAFTER_FIELDS, *OTHER_FIELDS))
    return Cause(Kind.TARGET, Strength.STRONG, f"{text}; {any_change or UNSEEN}")


def _drafter(evidence: Evidence) -> Cause | None:
    """The drafter or its cache: the same outputs with less acceptance, or nothing accepted at all, or it is another."""
    named = _changed(evidence.identity_changes, DRAFTER_FIELDS)
    configuration = _changed(evidence.identity_changes, OTHER_FIELDS)
    version = _changed(evidence.identity_changes, VERSION_FIELDS)
    parts, strength = [named] if named else [], Strength.STRONG if named else Strength.MODERATE
    outputs = evidence.outputs
    if outputs is not None and outputs.points_at == "drafter" and _fell(evidence):
        same = outputs.compared - outputs.changed
        parts.append(f"outputs unchanged ({same}/{outputs.compared}): points at the drafter or its cache")
        parts += _fallen_position(evidence)
        strength = Strength.STRONG if named or (configuration and not version) else Strength.MODERATE
    dead = evidence.first_position_survival
    if dead is not None and dead < DEAD_BELOW:
        parts.append(
            f"{dead:.1%} of steps had their first draft token accepted: it proposes nothing the target accepts"
        )
        strength = Strength.STRONG
    if not parts:
        return None
    seen = [] if evidence.identity_changes else [UNSEEN]
    return Cause(
        Kind.DRAFTER, strength, "; ".join([*parts, *([] if named or not configuration else [configuration]), *seen])
    )


def _fallen_position(evidence: Evidence) -> list[str]:
    """The position at which the drafter lost most of the acceptance that it had there, where both sides show it."""
    now, before = map(_conditional, (evidence.survival, evidence.baseline_survival))
    falls = [after / then - 1 for after, then in zip(now, before, strict=False) if then]
    if not falls or min(falls) >= -LEVEL:
        return []
    at = falls.index(min(falls))
    position = f"draft position {at + 1} of {len(falls)}"
    return [f"acceptance given the one before fell most at {position}: {before[at]:.2f} → {now[at]:.2f}"]


def _conditional(survival: Sequence[float]) -> list[float]:
    """By position, of the steps that came so far the share that went on; up to the first that none reached."""
    shares, reached = [], 1.0
    for share in survival:
        if not reached:
            break
        shares.append(share / reached)
        reached = share
    return shares


def _engine_version(evidence: Evidence) -> Cause | None:
    named = _changed(evidence.identity_changes, VERSION_FIELDS)
    if not named:
        return None
    differences = [move.now - move.before for move in evidence.moves]
    if len(differences) >= LEAST_PROMPTS and _by_one_token(differences):
        text = f"{named}; every prompt moved by {fmean(differences):+.2f} tokens (spread {pstdev(differences):.3f}): "
        return Cause(
            Kind.ENGINE_VERSION, Strength.STRONG, f"{text}the bonus token is counted otherwise, nothing drifted"
        )
    return Cause(Kind.ENGINE_VERSION, Strength.STRONG, f"{named} since the baseline")


def _by_one_token(differences: Sequence[float]) -> bool:
    return abs(abs(fmean(differences)) - 1) < DEFINITION_TOLERANCE and pstdev(differences) < DEFINITION_TOLERANCE


def _replica(evidence: Evidence) -> Cause | None:
    difference = evidence.replica_difference
    if difference is None:
        return None
    own = difference.replica == evidence.replica and difference.estimate.change < 0
    text = replica_difference_text(difference.as_dict())
    return Cause(Kind.REPLICA, Strength.STRONG if own else Strength.WEAK, text)


def _configuration(evidence: Evidence) -> Cause | None:
    """Something of the server's configuration that is neither model, drafter nor version, or does not say what."""
    if _changed(evidence.identity_changes, (*TARGET_FIELDS, *DRAFTER_FIELDS, *VERSION_FIELDS)):
        return None
    named = _changed(evidence.identity_changes, OTHER_FIELDS)
    if not named:
        return None
    only_hash = evidence.identity_changes.keys() == {"fingerprint"}
    if only_hash and evidence.outputs is not None and evidence.outputs.points_at is not None:
        return None  # outputs say which of the two it was, and that cause names the fingerprint
    text = f"{named}{': it does not say which setting' if only_hash else ''}"
    return Cause(Kind.CONFIGURATION, Strength.MODERATE, text)


def _traffic_mix(evidence: Evidence) -> Cause | None:
    """Everybody's acceptance moved, up or down, and that of the same prompts did not: what users ask is another."""
    organic = evidence.organic
    if organic is None or evidence.change is None or min(organic.steps_before, organic.steps_after) < ORGANIC_STEPS:
        return None
    if max(map(abs, [evidence.change, *evidence.other_changes.values()])) >= -HELD or abs(organic.change) < -FELL:
        return None
    before, after = (figure("acceptance_length", value) for value in (organic.before, organic.after))
    text = f"organic acceptance length, of all traffic, {before} → {after} ({change(organic.change)}) while the same "
    return Cause(
        Kind.TRAFFIC_MIX, Strength.STRONG, f"{text}prompts held ({change(evidence.change)} by {evidence.source})"
    )


def _fell(evidence: Evidence) -> bool:
    return evidence.change is None or evidence.change < 0


def _changed(changes: Mapping[str, tuple[Any, Any]], names: Sequence[str]) -> str:
    """`drafter a → b, k 3 → 5`, of those names; empty when none of them changed."""
    return ", ".join(f"{name} {changes[name][0]} → {changes[name][1]}" for name in names if name in changes)
