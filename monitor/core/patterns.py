"""Causes that show over many runs or prompts: only in warm runs, only at load, with uptime, with context length. Pure.

A change in time must not pass for a pattern: what fell only under a condition must have held without it afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

from monitor.core.cause import FELL, HELD, Cause, Kind, Strength
from monitor.core.format import by_source, change, count, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monitor.core.evidence import Evidence, Load, PastRun, PromptMove

LEAST_RUNS = 2
"""Of either kind, to tell runs under a condition from those without it."""
LEAST_PROMPTS = 4
"""Of either group of prompts."""
APART = 4.0
"""Standard errors between two groups of prompts that are told apart: every run is looked at."""
SPREAD_FLOOR = 0.02
"""Least spread between prompts believed, as in the paired test."""
DECAY_RUNS = 8
"""Of one start of a server: two for each quarter, all four of which must go down."""
DECAY_SHARE = 0.15
"""Part of the whole decline that every quarter has to bring: a step would leave some of them level, but for noise, so
that a line must fit better than any step does."""
DECAY_FALL = 0.05
COLD_SECONDS = 3600.0
"""A server is young up to here."""


def cache_cause(evidence: Evidence) -> Cause | None:
    """Only runs, or only prompts, that were read from the prefix cache fell."""
    apart = _only_where(evidence.recent, lambda run: run.cache == "warm")
    if apart is not None:
        text = f"only warm runs fell: {apart.fell} since run {apart.first}, cold runs meanwhile {apart.held}"
        return Cause(Kind.PREFIX_CACHE, Strength.STRONG, text)
    cached = [move for move in evidence.moves if move.cached_tokens]
    others = [move for move in evidence.moves if move.cached_tokens == 0]
    if not _lower(cached, others):
        return None
    text = f"{_prompts(cached)} read from the prefix cache {_mean(cached)}, "
    text += f"{_prompts(others)} that were not {_mean(others)}"
    return Cause(Kind.PREFIX_CACHE, Strength.STRONG if _change(others) > HELD else Strength.MODERATE, text)


def load_cause(evidence: Evidence) -> Cause | None:
    """Only runs at more load than the baseline's fell; or, weak, all that are judged had more than any of them."""
    if not evidence.baseline_loads:
        return None
    most = _most(evidence.baseline_loads)
    apart = _only_where(evidence.recent, lambda run: bool(_beyond(run.load, most)))
    beyond = [_beyond(load, most) for load in evidence.loads]
    differs = beyond[-1] if beyond and all(beyond) else []
    if apart is not None:
        text = f"only runs at more load than the baseline's fell: {apart.fell} since run {apart.first}, "
        text += f"the others meanwhile {apart.held}"
        return Cause(Kind.LOAD, Strength.STRONG, "; ".join([text, *differs]))
    if not differs:
        return None
    return Cause(Kind.LOAD, Strength.WEAK, "; ".join([*differs, "no run without that load since to compare with"]))


def had_more_load(evidence: Evidence) -> bool:
    """Whether any run of the verdict had more load than all of the baseline's runs."""
    most = _most(evidence.baseline_loads) if evidence.baseline_loads else {}
    return any(_beyond(load, most) for load in evidence.loads)


def context_cause(evidence: Evidence) -> Cause | None:
    """Long prompts fell at least twice as much as short ones."""
    known = sorted(
        (move for move in evidence.moves if move.prompt_tokens), key=lambda move: (move.prompt_tokens, move.question_id)
    )
    third = len(known) // 3
    short, long = known[:third], known[len(known) - third :]
    if not _lower(long, short) or 2 * _log(short) < _log(long):
        return None
    text = f"{_prompts(long)} of {_tokens(long)} tokens {_mean(long)}, "
    text += f"{_prompts(short)} of {_tokens(short)} {_mean(short)}"
    return Cause(Kind.CONTEXT_LENGTH, Strength.STRONG if _change(short) > HELD else Strength.MODERATE, text)


def uptime_cause(evidence: Evidence) -> Cause | None:
    """Acceptance falls while the server runs and a restart heals it; or it is low just after each start."""
    if not evidence.recent:
        return None
    now = evidence.recent[-1]
    starts = _starts([run for run in evidence.recent if run.replica == now.replica])
    if not starts:
        return None
    return _decay(starts, evidence.source) or _cold(starts, evidence.source)


def _decay(starts: Sequence[Sequence[PastRun]], source: str) -> Cause | None:
    own = starts[-1]
    if not _goes_down(own):
        return None
    text = f"{_fall(own)}{by_source(source)} over {_hours(own)} since the server started"
    healed = len(starts) > 1 and starts[-2][-1].acceptance_length < own[0].acceptance_length * (1 - DECAY_FALL)
    if not healed:
        return Cause(Kind.UPTIME, Strength.MODERATE, f"{text}, little by little; no earlier start to compare with")
    before = f"the start before ended at {_al(starts[-2][-1])}, the restart brought it back to {_al(own[0])}"
    return Cause(Kind.UPTIME, Strength.STRONG, f"{text}, little by little; {before}")


def _cold(starts: Sequence[Sequence[PastRun]], source: str) -> Cause | None:
    uptime = starts[-1][-1].uptime_seconds
    if uptime is None or uptime > COLD_SECONDS:
        return None
    pairs = [pair for pair in map(_young_and_old, starts[:-1]) if pair is not None]
    low = [(young, old) for young, old in pairs if young <= old * (1 + FELL)]
    if not low or len(low) < len(pairs):
        return None
    young, old = (fmean(side) for side in zip(*low, strict=True))
    text = (
        f"the server had been up for {uptime / 60:.0f} min; in the first hour after {count(len(low), 'earlier start')} "
        f"AL was {figure('acceptance_length', young)}, later {figure('acceptance_length', old)}{by_source(source)}"
    )
    return Cause(Kind.UPTIME, Strength.STRONG if len(low) > 1 else Strength.MODERATE, text)


def _young_and_old(start: Sequence[PastRun]) -> tuple[float, float] | None:
    young = [run.acceptance_length for run in start if (run.uptime_seconds or 0.0) <= COLD_SECONDS]
    old = [run.acceptance_length for run in start if (run.uptime_seconds or 0.0) > COLD_SECONDS]
    return (fmean(young), fmean(old)) if young and old else None


def _starts(runs: Sequence[PastRun]) -> list[list[PastRun]]:
    """Runs by start of their server, oldest first; those that do not know it are left out."""
    known = [run for run in runs if run.server_started_at is not None]
    return [list(group) for _, group in groupby(known, key=lambda run: run.server_started_at)]


def _goes_down(start: Sequence[PastRun]) -> bool:
    if len(start) < DECAY_RUNS:
        return False
    lengths = [run.acceptance_length for run in start]
    edges = [round(len(start) * quarter / 4) for quarter in range(5)]
    means = [fmean(lengths[begin:end]) for begin, end in pairwise(edges)]
    whole = means[0] - means[-1]
    steps = [before - after for before, after in pairwise(means)]
    falls = whole >= DECAY_FALL * means[0] and min(steps) >= DECAY_SHARE * whole
    return falls and _squares_about_a_line(lengths) < _squares_about_a_step(lengths)


def _squares_about_a_line(values: Sequence[float]) -> float:
    slope, intercept = linear_regression(range(len(values)), values)
    return sum((value - intercept - slope * place) ** 2 for place, value in enumerate(values))


def _squares_about_a_step(values: Sequence[float]) -> float:
    """Of the step that fits best."""
    return min(_squares(values[:cut]) + _squares(values[cut:]) for cut in range(1, len(values)))


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


@dataclass(frozen=True)
class _Apart:
    first: int
    fell: str
    held: str


def _only_where(recent: Sequence[PastRun], such: Callable[[PastRun], bool]) -> _Apart | None:
    """Runs under the condition fell, and since the first of them those without it held; None when it is not so."""
    judged = [(run.change, run) for run in recent if run.change is not None]
    first = next((at for at, (moved, run) in enumerate(judged) if moved <= FELL and such(run)), None)
    if first is None:
        return None
    under = [moved for moved, run in judged[first:] if such(run)]
    without = [moved for moved, run in judged[first:] if not such(run)]
    if min(len(under), len(without)) < LEAST_RUNS or fmean(under) > FELL or min(without) <= HELD:
        return None
    fell, held = (f"{change(fmean(part))} over {count(len(part), 'run')}" for part in (under, without))
    return _Apart(judged[first][1].run_id, fell, held)


def _most(loads: Sequence[Load]) -> dict[str, float]:
    """The highest of each gauge that any of the baseline's runs knew."""
    seen = [vars(load) for load in loads]
    return {
        name: max(known)
        for name in seen[0]
        if (known := [float(load[name]) for load in seen if load[name] is not None])
    }


MARGINS = {"running": (2.0, 2.0), "waiting": (1.0, 0.0), "kv_cache_usage": (1.0, 0.2), "preemptions": (1.0, 0.0)}
"""Beyond the baseline's load: more than its highest times the first plus the second."""
GAUGES = {
    "running": "requests running",
    "waiting": "waiting",
    "kv_cache_usage": "KV cache use",
    "preemptions": "preemptions",
}


def _beyond(load: Load, most: dict[str, float]) -> list[str]:
    """What of the load is more than the baseline ever saw, in words."""
    found = []
    for name, (factor, more) in MARGINS.items():
        now = getattr(load, name)
        if now is not None and name in most and now > most[name] * factor + more:
            form = ".0%" if name == "kv_cache_usage" else "g"
            found.append(f"{GAUGES[name]} {now:{form}}, at most {most[name]:{form}} in the baseline's runs")
    return found


def _lower(ones: Sequence[PromptMove], others: Sequence[PromptMove]) -> bool:
    """Whether the first fell, and clearly more than the others."""
    if min(len(ones), len(others)) < LEAST_PROMPTS or _change(ones) > FELL:
        return False
    error = math.sqrt(sum(_spread(group) ** 2 / len(group) for group in (ones, others)))
    return _log(ones) - _log(others) < -APART * error


def _spread(moves: Sequence[PromptMove]) -> float:
    mean = _log(moves)
    found = math.sqrt(sum((move.log_ratio - mean) ** 2 for move in moves) / (len(moves) - 1))
    return max(found, SPREAD_FLOOR)


def _log(moves: Sequence[PromptMove]) -> float:
    return fmean(move.log_ratio for move in moves)


def _change(moves: Sequence[PromptMove]) -> float:
    return math.expm1(_log(moves))


def _mean(moves: Sequence[PromptMove]) -> str:
    return change(_change(moves))


def _prompts(moves: Sequence[PromptMove]) -> str:
    return count(len(moves), "prompt")


def _tokens(moves: Sequence[PromptMove]) -> str:
    known = [move.prompt_tokens or 0 for move in moves]
    return f"{min(known):,} to {max(known):,}" if min(known) < max(known) else f"{known[0]:,}"


def _al(run: PastRun) -> str:
    return figure("acceptance_length", run.acceptance_length)


def _fall(start: Sequence[PastRun]) -> str:
    return f"AL {_al(start[0])} → {_al(start[-1])}"


def _hours(start: Sequence[PastRun]) -> str:
    seconds = (start[-1].finished_at - start[0].finished_at).total_seconds()
    return f"{seconds / 3600:.1f} h"
