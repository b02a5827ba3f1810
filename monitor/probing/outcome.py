"""What a finished replay amounts to: source, samples, identity, validity and warnings. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from monitor.core.format import count
from monitor.core.learning import learns_from_replay, method_name
from monitor.core.records import Identity, Sample, Source
from monitor.engines.counters import Change
from monitor.engines.counts import (
    CONTAMINATED,
    MAX_CONTAMINATION_RATIO,
    MERGED,
    MERGED_LIMIT_RATIO,
    Reading,
    contamination_text,
    foreign_tokens,
    merged_chunks,
    sample_of,
    show_steps,
)
from monitor.engines.merging import Merging, merging
from monitor.probing.crosscheck import drafted_share
from monitor.probing.drafting import Drafting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.engines.counts import Window
    from monitor.probing.conversation import Attempt

SourceWish: TypeAlias = Literal["auto", "request", "stream", "counters"]
CROWDED_RATIO = 0.5
"""Tokens for others, by our own, from which a run of source `counters` is refused whole."""
IDENTITY_CHANGED = "identity_changed_during_run"
"""Why a run is invalid that a change of model, drafter or engine, or a restart, fell into."""
LATE_SECONDS = 0.1
"""Our own delay from which a run warns about its times: several steps of a fast server."""
LATE = f"this machine was late by more than {LATE_SECONDS * 1000:.0f} ms: times include its own delay"
"""Without the size of it, so that several runs say it once."""


@dataclass(frozen=True)
class Outcome:
    """Everything known about the replica at the end of a run; from it and the attempts comes the rest.

    `observed`: what the replica shows of itself. `declared`: what the configuration says about it. `speculates`: None
    when it does not show. `advice`: how it is made to report counts per request. `plain`: it is measured for its times
    as the server without speculation, so that an answer with acceptance is what makes a sample invalid.
    `chunks_are_steps`: see `Engine`. `notes`: see `Observation`. `counted`: what the server's counters moved by over
    the whole run.
    """

    url: str
    observed: Identity
    declared: Identity
    speculates: bool | None
    wish: SourceWish
    advice: str
    plain: bool = False
    max_contamination_ratio: float = MAX_CONTAMINATION_RATIO
    chunks_are_steps: bool | None = True
    notes: tuple[str, ...] = ()
    counted: Window | None = None

    def reading(self, attempts: Sequence[Attempt]) -> Reading:
        """One source for all samples, the one wished for or the best there is.

        `request` as soon as one answer has counts; `counters` when they were read and hold for half of the prompts.
        """
        if self.plain:
            return Reading(Source.STREAM, k=0, every_step=False)
        identity = self.identity(attempts)
        source = self._best_source(attempts) if self.wish == "auto" else Source(self.wish)
        steps_shown = self.chunks_are_steps
        if steps_shown is None:
            steps_shown = show_steps([answer for attempt in attempts for answer in attempt.answers])
        drafting = self._drafting(attempts, identity) if steps_shown else Drafting(identity.method)
        return Reading(source, identity.k, drafting.every_step, self.max_contamination_ratio, steps_shown)

    def _drafting(self, attempts: Sequence[Attempt], identity: Identity) -> Drafting:
        share = drafted_share(attempts, self.counted, self.max_contamination_ratio)
        full = isinstance(self.counted, Change) and self.counted.drafted == self.counted.steps * (identity.k or 0)
        return Drafting(identity.method, share, full)

    def _best_source(self, attempts: Sequence[Attempt]) -> Source:
        if _request_ks(attempts):
            return Source.REQUEST
        hold = sum(isinstance(a.window, Change) and not self._contaminated(a) for a in attempts)
        return Source.COUNTERS if hold and 2 * hold >= len(attempts) else Source.STREAM

    def _contaminated(self, attempt: Attempt) -> bool:
        own, foreign = _own_and_foreign(attempt)
        return foreign > self.max_contamination_ratio * own

    def samples(self, attempts: Sequence[Attempt]) -> tuple[Sample, ...]:
        """One sample per attempt, in their order.

        Where others disturbed half of the prompts, or the stream merges too many steps, none is reported: what is left
        came about by luck.
        """
        reading = self.reading(attempts)
        samples = tuple(self._sample(attempt, reading, self._wrong_kind(attempts)) for attempt in attempts)
        disturbed = sum(sample.invalid_reason == CONTAMINATED for sample in samples)
        if (disturbed and 2 * disturbed >= len(samples)) or (
            reading.source is Source.COUNTERS and self._crowded(attempts)
        ):
            return _all_invalid(samples, CONTAMINATED, self._contamination(attempts))
        found = self._merging(attempts, reading)
        if found is not None and found.is_clear and found.merged_ratio > MERGED_LIMIT_RATIO:
            return _all_invalid(samples, MERGED, f"{self.url}: {found.text()}; {self.advice}")
        return samples

    def _crowded(self, attempts: Sequence[Attempt]) -> bool:
        """Whether others got half as many tokens as we did over the whole run: single quiet windows are luck then."""
        if not isinstance(self.counted, Change):
            return False
        foreign = foreign_tokens([answer for attempt in attempts for answer in attempt.answers], self.counted)
        return foreign > CROWDED_RATIO * (self.counted.generated_tokens - foreign)

    def _merging(self, attempts: Sequence[Attempt], reading: Reading) -> Merging | None:
        """Of a stream whose chunks are steps and are counted as such."""
        if reading.source is not Source.STREAM or self.plain or not reading.chunks_are_steps:
            return None
        return merging([answer for attempt in attempts for answer in attempt.answers], reading.k)

    def _wrong_kind(self, attempts: Sequence[Attempt]) -> tuple[str, str] | None:
        """Reason and detail when the server speculates and should not, or the other way round."""
        speculates = bool(_request_ks(attempts)) or self.speculates
        if self.plain and speculates:
            return "speculates", f"{self.url}: this server speculates; name one without --speculative-config"
        if not self.plain and speculates is False:
            advice = "start the server with a drafter (vLLM: --speculative-config), or probe another"
            return "no_speculation", f"{self.url}: speculation is off; {advice}"
        return None

    def _sample(self, attempt: Attempt, reading: Reading, wrong_kind: tuple[str, str] | None) -> Sample:
        sample = sample_of(
            attempt.prompt.question_id, attempt.answers, reading, attempt.error, self.advice, attempt.window
        )
        sample = replace(sample, total_seconds=attempt.total_seconds, loop_lag_seconds=attempt.loop_lag_seconds)
        if attempt.error is None and wrong_kind is not None:
            return replace(sample, invalid_reason=wrong_kind[0], invalid_detail=wrong_kind[1])
        if sample.invalid_detail and not sample.invalid_detail.startswith(self.url):
            return replace(sample, invalid_detail=f"{self.url}: {sample.invalid_detail}")
        return sample

    def identity(self, attempts: Sequence[Attempt]) -> Identity:
        """What answers and replica show, completed by what is declared."""
        fingerprints, ks = _fingerprints(attempts), _request_ks(attempts) - {None}
        seen = replace(
            self.observed,
            fingerprint=min(fingerprints, default=None),
            k=min((k for k in ks if k is not None), default=self.observed.k),
        )
        told = {
            name: value
            for name, value in self.declared.as_dict().items()
            if name != "declared" and value is not None and getattr(seen, name) is None
        }
        return Identity.from_dict({**seen.as_dict(), **told, "declared": sorted(told)})

    def invalid(
        self, attempts: Sequence[Attempt], samples: Sequence[Sample], min_prompts: int
    ) -> tuple[str, str] | None:
        """Reason and detail why the run must not be judged, or None."""
        for what, seen in (("fingerprints", _fingerprints(attempts)), ("K", set(map(str, _request_ks(attempts))))):
            if len(seen) > 1:
                detail = f"{self.url}: answers of one run have different {what}: {', '.join(sorted(seen))}"
                return IDENTITY_CHANGED, detail
        valid = sum(sample.valid for sample in samples)
        if valid >= min_prompts:
            return None
        reasons = Counter(sample.invalid_reason for sample in samples if sample.invalid_reason)
        for reason, times in reasons.most_common(1):
            if 2 * times >= len(samples):
                if reason == CONTAMINATED:
                    return reason, f"{self.url}: {self._contamination(attempts)}"
                return reason, next(s.invalid_detail or reason for s in samples if s.invalid_reason == reason)
        listed = ", ".join(f"{times} {reason}" for reason, times in reasons.most_common())
        detail = f"{self.url}: {valid} of {len(samples)} prompts are valid, {min_prompts} are needed"
        return "too_few_valid_prompts", f"{detail} ({listed})" if listed else detail

    def _contamination(self, attempts: Sequence[Attempt]) -> str:
        """Over all windows of the run."""
        own, foreign = map(sum, zip(*map(_own_and_foreign, attempts), strict=True))
        return contamination_text(foreign, own, self.max_contamination_ratio)

    def warnings(self, attempts: Sequence[Attempt]) -> tuple[str, ...]:
        """What a reader of the figures must know, each as one sentence."""
        reading, identity = self.reading(attempts), self.identity(attempts)
        answers = [answer for attempt in attempts for answer in attempt.answers]
        if not answers:
            return ()
        found = list(self.notes)
        found += [
            f"{name} is declared as {told!r}, but the server shows {seen!r}"
            for name, (told, seen) in identity.changes_from(self.declared).items()
        ]
        if self.speculates is None and not _request_ks(attempts):
            found.append("nothing here shows whether the server speculates, and perhaps not its load")
        if reading.source is Source.STREAM and self.speculates is not False and not self.plain:
            found += self._about_streams(attempts, reading, merged_chunks(answers, reading.k))
            merged = self._merging(attempts, reading)
            found += [merged.text()] if merged is not None and merged.is_clear else []
            found += self._about_unused_counters(attempts)
        if reading.source is Source.COUNTERS and self.wish == "auto":
            found.append(f"counts are those of the whole server, around one prompt at a time; {self.advice}")
        if learns_from_replay(identity.engine, identity.method):
            found.append(_about_learning(identity.method or ""))
        if max(attempt.loop_lag_seconds for attempt in attempts) > LATE_SECONDS:
            found.append(LATE)
        return tuple(found)

    def _about_streams(self, attempts: Sequence[Attempt], reading: Reading, merged: int) -> list[str]:
        found = [] if self.wish == "stream" else [f"counts are estimated from the stream; {self.advice}"]
        found += self._drafting(attempts, self.identity(attempts)).warnings() if reading.chunks_are_steps else []
        if reading.k is None:
            found.append("K is unknown: merged chunks can be told by their times alone")
        if merged:
            chunks = count(merged, "chunk")
            found.append(f"{chunks} held more tokens than one step makes: left out of acceptance")
        return found

    def _about_unused_counters(self, attempts: Sequence[Attempt]) -> list[str]:
        """Why the counters, though read, are not the source."""
        read = [attempt.window for attempt in attempts if attempt.window is not None]
        if self.wish != "auto" or not read:
            return []
        faults = [str(window) for window in read if not isinstance(window, Change)]
        return [f"the server's counters are no use: {faults[0] if faults else self._contamination(attempts)}"]


def _about_learning(method: str) -> str:
    remembers = " (suffix_decoding_max_cached_requests, by default 10,000)" if method_name(method) == "suffix" else ""
    return (
        f"{method} decoding learns from replayed prompts: its figures rise from run to run, unless more requests "
        f"come in between than it remembers{remembers}"
    )


def _all_invalid(samples: Sequence[Sample], reason: str, detail: str) -> tuple[Sample, ...]:
    """Those that are valid; the others keep their own reason."""
    return tuple(
        replace(sample, invalid_reason=reason, invalid_detail=detail) if sample.valid else sample for sample in samples
    )


def _own_and_foreign(attempt: Attempt) -> tuple[int, int]:
    """Tokens generated for us and for others in the window of one prompt."""
    if not isinstance(attempt.window, Change):
        return 0, 0
    foreign = foreign_tokens(attempt.answers, attempt.window)
    return attempt.window.generated_tokens - foreign, foreign


def _fingerprints(attempts: Sequence[Attempt]) -> set[str]:
    return {answer.fingerprint for attempt in attempts for answer in attempt.answers if answer.fingerprint}


def _request_ks(attempts: Sequence[Attempt]) -> set[int | None]:
    """The K of every answer with counts per request; empty when no answer has them."""
    counted = [answer.request_counts for attempt in attempts for answer in attempt.answers]
    return {counts.k for counts in counted if counts is not None}
