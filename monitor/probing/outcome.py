"""What a finished replay amounts to: source, samples, identity, validity and warnings. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from monitor.core.records import Identity, Sample, Source
from monitor.engines.counts import Reading, drafts_every_step, merged_chunks, sample_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.probing.conversation import Attempt

SourceWish: TypeAlias = Literal["auto", "request", "stream"]
LATE_SECONDS = 0.1
"""Our own delay from which a run warns about its times: several steps of a fast server."""


@dataclass(frozen=True)
class Outcome:
    """Everything known about the replica at the end of a run; from it and the attempts comes the rest.

    `observed`: what the replica shows of itself. `declared`: what the configuration says about it. `speculates`: None
    when it does not show. `advice`: how it is made to report counts per request. `plain`: it is measured for its times
    as the server without speculation, so that an answer with acceptance is what makes a sample invalid.
    """

    url: str
    observed: Identity
    declared: Identity
    speculates: bool | None
    wish: SourceWish
    advice: str
    plain: bool = False

    def reading(self, attempts: Sequence[Attempt]) -> Reading:
        """One source for all samples: `request` as soon as one answer has counts, unless `stream` is wished for."""
        if self.plain:
            return Reading(Source.STREAM, k=0, every_step=False)
        source = Source.STREAM
        if self.wish == "request" or (self.wish == "auto" and _request_ks(attempts)):
            source = Source.REQUEST
        identity = self.identity(attempts)
        return Reading(source, identity.k, drafts_every_step(identity.method))

    def samples(self, attempts: Sequence[Attempt]) -> tuple[Sample, ...]:
        """One sample per attempt, in their order."""
        reading = self.reading(attempts)
        return tuple(self._sample(attempt, reading, self._wrong_kind(attempts)) for attempt in attempts)

    def _wrong_kind(self, attempts: Sequence[Attempt]) -> tuple[str, str] | None:
        """Reason and detail when the server speculates and should not, or the other way round."""
        speculates = bool(_request_ks(attempts)) or self.speculates
        if self.plain and speculates:
            return "speculates", f"{self.url}: this server speculates; name one without --speculative-config"
        if not self.plain and speculates is False:
            advice = "start the server with --speculative-config, or probe another"
            return "no_speculation", f"{self.url}: speculation is off; {advice}"
        return None

    def _sample(self, attempt: Attempt, reading: Reading, wrong_kind: tuple[str, str] | None) -> Sample:
        sample = sample_of(attempt.prompt.question_id, attempt.answers, reading, attempt.error, self.advice)
        sample = replace(sample, total_seconds=attempt.total_seconds, loop_lag_seconds=attempt.loop_lag_seconds)
        if attempt.error is None and wrong_kind is not None:
            return replace(sample, invalid_reason=wrong_kind[0], invalid_detail=wrong_kind[1])
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
                return "identity_changed_during_run", detail
        valid = sum(sample.valid for sample in samples)
        if valid >= min_prompts:
            return None
        reasons = Counter(sample.invalid_reason for sample in samples if sample.invalid_reason)
        for reason, count in reasons.most_common(1):
            if 2 * count >= len(samples):
                return reason, next(s.invalid_detail or reason for s in samples if s.invalid_reason == reason)
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        detail = f"{self.url}: {valid} of {len(samples)} prompts are valid, {min_prompts} are needed"
        return "too_few_valid_prompts", f"{detail} ({listed})" if listed else detail

    def warnings(self, attempts: Sequence[Attempt]) -> tuple[str, ...]:
        """What a reader of the figures must know, each as one sentence."""
        reading, identity = self.reading(attempts), self.identity(attempts)
        answers = [answer for attempt in attempts for answer in attempt.answers]
        if not answers:
            return ()
        found = [
            f"{name} is declared as {told!r}, but the server shows {seen!r}"
            for name, (told, seen) in identity.changes_from(self.declared).items()
        ]
        if self.speculates is None and not _request_ks(attempts):
            found.append("no /metrics of vLLM here: the load, and whether the server speculates, are unknown")
        if reading.source is Source.STREAM and self.speculates is not False and not self.plain:
            found += self._about_streams(reading, identity, merged_chunks(answers, reading.k))
        if identity.method == "suffix":
            found.append("suffix decoding learns from replayed prompts: its figures rise from run to run")
        if (late := max(attempt.loop_lag_seconds for attempt in attempts)) > LATE_SECONDS:
            found.append(f"this machine was late by up to {late * 1000:.0f} ms: times include its own delay")
        return tuple(found)

    def _about_streams(self, reading: Reading, identity: Identity, merged: int) -> list[str]:
        found = [] if self.wish == "stream" else [f"counts are estimated from the stream; {self.advice}"]
        if reading.every_step is False:
            found.append(
                f"{identity.method} drafts only on a match: the stream shows tokens per step, which is not the same "
                "quantity as acceptance length; the latter needs counts per request"
            )
        elif reading.every_step is None:
            found.append(
                "the method of speculation is unknown: if it is n-gram or suffix, what stands for acceptance length is "
                "tokens per step"
            )
        if reading.k is None:
            found.append("K is unknown: merged chunks cannot be recognised")
        if merged:
            found.append(f"{merged} chunks held more tokens than one step makes: they are left out of acceptance")
        return found


def _fingerprints(attempts: Sequence[Attempt]) -> set[str]:
    return {answer.fingerprint for attempt in attempts for answer in attempt.answers if answer.fingerprint}


def _request_ks(attempts: Sequence[Attempt]) -> set[int | None]:
    """The K of every answer with counts per request; empty when no answer has them."""
    counted = [answer.request_counts for attempt in attempts for answer in attempt.answers]
    return {counts.k for counts in counted if counts is not None}
