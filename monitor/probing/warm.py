"""The warm pass: the prompts of a run that has ended, asked again under the same salt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.core.learning import learns_from_replay
from monitor.core.warm import not_warmed, warmed
from monitor.probing.conversation import Attempt
from monitor.probing.outcome import IDENTITY_CHANGED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.core.records import Run
    from monitor.core.warm import Warm
    from monitor.probing.walk import Walk
    from monitor.prompts.sets import Prompt

CACHE_UNKNOWN = (
    "the server does not tell how much of a prompt it had cached, so whether the warm pass was warm is not known; "
    "start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report"
)


async def warm_pass(run: Run, cold: Walk, prompts: Sequence[Prompt], min_prompts: int) -> tuple[Warm, tuple[str, ...]]:
    """What the prompts give where the prefix cache has them, and what a reader must know of it.

    Nothing is asked after an invalid run, and nothing of a drafter that learns: it would draft the answers that it has
    just seen. The counts are from the run's own source.
    """
    identity = run.identity
    if learns_from_replay(identity.engine, identity.method):
        what = f"{identity.method} drafts from answers it has seen, so that a second pass shows them and not the cache"
        return not_warmed(run.domain, "learns_from_replay", f"{run.replica}: {what}; use cache: cold"), ()
    source = next((sample.source for sample in run.samples if sample.valid), None)
    if run.invalid_reason is not None or source is None:
        what = f"the cold pass is invalid ({run.invalid_reason}), so nothing was asked again"
        return not_warmed(run.domain, "cold_pass_invalid", f"{run.replica}: {what}"), ()
    attempts = [Attempt(prompt) for prompt in prompts]
    walk = cold.again(source)
    await walk.all(attempts)
    outcome = walk.outcome()
    samples = outcome.samples(attempts)
    invalid = outcome.invalid(attempts, samples, min_prompts)
    if invalid is None and (changes := outcome.identity(attempts).changes_from(identity)):
        told = ", ".join(f"{name} {before} → {now}" for name, (before, now) in changes.items())
        invalid = IDENTITY_CHANGED, f"{run.replica}: changed before the warm pass: {told}"
    found = warmed(run.domain, run.samples, samples, invalid, run.replica)
    unknown = (CACHE_UNKNOWN,) if found.cached_ratio is None and invalid is None else ()
    return found, (*unknown, *(f"warm pass: {warning}" for warning in walk.warnings()))
