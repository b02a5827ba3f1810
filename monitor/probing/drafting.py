"""Whether every decode step of a run had a draft, and what acceptance a stream can show then. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.engines.counts import drafts_every_step

EVERY_STEP_RATIO = 0.98
"""Share of decode steps with a draft from which a method drafts at every step: the rest moves AL by 2 % at most."""
DECLARE = "declare it with --method, or as identity.method in routes.yaml: draft_model, eagle, mtp, ngram or suffix"


@dataclass(frozen=True)
class Drafting:
    """What is known of the drafts of one run.

    `method`: as observed or declared, None where neither. `share`: of decode steps with a draft, by the server's
    counters, None where they cannot tell. `full`: by the counters, every draft had K tokens.
    """

    method: str | None
    share: float | None = None
    full: bool = False

    @property
    def every_step(self) -> bool | None:
        """Whether every decode step has a draft of K tokens: as the counters show, otherwise by the method's name."""
        by_name = drafts_every_step(self.method)
        if self.share is None or by_name is False:
            return by_name
        if self.share < EVERY_STEP_RATIO:
            return False
        return True if self.full else by_name

    def warnings(self) -> list[str]:
        """What a stream says of acceptance length, each as one sentence; nothing where it is right."""
        if drafts_every_step(self.method) is False:
            return [
                f"{self.method} drafts only on a match: the stream shows tokens per step, which is not the same "
                "quantity as acceptance length; the latter needs counts per request, or a quiet server's counters"
            ]
        if self.every_step is False:
            shown = f"the server's counters show a draft in {self.share:.0%} of the decode steps"
            needs = "acceptance length then needs counts per request, or source counters"
            return [
                f"{shown}: the stream shows tokens per step and no acceptance length",
                needs if self.method else f"{needs}; if the method drafts only on a match, {DECLARE}",
            ]
        if self.every_step is None and self.share is not None:
            return [
                "the server's counters show drafts of fewer than K tokens: the stream shows acceptance length, and no "
                "acceptance rate; the latter needs counts per request, or source counters"
            ]
        if self.every_step is None:
            who = f"of method {self.method!r} this is not known" if self.method else "which the server does not tell"
            return [f"acceptance length assumes a method that drafts at every step, {who}; {DECLARE}"]
        return []
