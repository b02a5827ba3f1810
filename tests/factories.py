"""Runs, configurations and verdicts with the numbers a test is about; everything else has a plain default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from monitor.config.alerting import Alerting
from monitor.config.load import Config
from monitor.config.routes import Route
from monitor.core.judge import Candidate, Comparability, Reference
from monitor.core.records import Counts, Identity, Reason, Run, Sample, Sampling, Source

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
"""A Monday morning; when the first run of a test starts unless it says otherwise."""
ROUTE, DOMAIN, REPLICA = "chat-prod", "coding", "http://vllm-0:8000"
STEPS = 1000
"""Steps per made sample: acceptance lengths are exact to a thousandth."""
IDENTITY = Identity(engine="vllm", version="0.29.1", model="my-model", root="org/target", drafter="org/drafter", k=3)

Lengths = float | Sequence[float] | Mapping[str, float]


def counts_of(acceptance_length: float, k: int = 3, steps: int = STEPS) -> Counts:
    """Counts of `steps` drafted steps with this AL, the accepted tokens spread as evenly as they can be."""
    accepted = round((acceptance_length - 1) * steps)
    each, longer = divmod(accepted, steps)
    assert 0 <= accepted <= k * steps, f"an acceptance length of {acceptance_length} needs a K above {k}"
    histogram = [0] * (k + 1)
    histogram[each] += steps - longer
    if longer:
        histogram[each + 1] += longer
    return Counts(steps, steps * k, accepted, tuple(histogram), steps)


def make_sample(question_id: str = "q00", acceptance_length: float = 2.4, k: int = 3, **changes: Any) -> Sample:
    """A valid sample of one turn; `changes` are fields of Sample."""
    counts = counts_of(acceptance_length, k)
    values: dict[str, Any] = {
        "source": Source.REQUEST,
        "counts": counts,
        "k": k,
        "prompt_tokens": 40,
        "cached_prompt_tokens": 0,
        "completion_tokens": 1 + counts.decode_steps + counts.accepted,
        "ttft_seconds": 0.05,
        "decode_seconds": 10.0,
        "decode_tokens": counts.decode_steps + counts.accepted,
        "total_seconds": 10.05,
        "chunk_tokens": ((1, 3, 2),),
        "chunk_seconds": ((0.05, 0.06, 0.075),),
        "loop_lag_seconds": 0.001,
        "finish_reason": "length",
        "output_hash": "ab12",
    }
    return Sample(question_id, **{**values, **changes})


def make_run(
    lengths: Lengths = 2.4,
    *,
    prompts: int = 24,
    k: int = 3,
    source: Source = Source.REQUEST,
    started_at: datetime = START,
    seconds: float = 60.0,
    invalid_reason: str | None = None,
    **changes: Any,
) -> Run:
    """A run whose prompts have these acceptance lengths: one for all, one each, or by question id.

    An invalid run has samples that are invalid for the same reason. `changes` are fields of Run.
    """
    by_question = _by_question(lengths, prompts)
    samples = [
        make_sample(question, length, k, source=source, invalid_reason=invalid_reason)
        for question, length in by_question.items()
    ]
    values: dict[str, Any] = {
        "route": ROUTE,
        "domain": DOMAIN,
        "replica": REPLICA,
        "prompt_set_hash": "set-1",
        "concurrency": 4,
        "sampling": Sampling(),
        "reason": Reason.SCHEDULED,
        "identity": IDENTITY,
        "samples": tuple(samples),
        "invalid_detail": None if invalid_reason is None else f"all prompts: {invalid_reason}",
    }
    finished_at = started_at + timedelta(seconds=seconds)
    return Run(started_at=started_at, finished_at=finished_at, invalid_reason=invalid_reason, **{**values, **changes})


def _by_question(lengths: Lengths, prompts: int) -> dict[str, float]:
    if isinstance(lengths, Mapping):
        return dict(lengths)
    each = [lengths] * prompts if isinstance(lengths, int | float) else lengths
    return {f"q{number:02}": length for number, length in enumerate(each)}


COMPARABILITY = Comparability("set-1", "request", 3, 4, Sampling().as_dict())


def make_reference(lengths: Lengths = 2.4, *, prompts: int = 24, run_sigma: float = 0.015, runs: int = 10) -> Reference:
    """Baseline 7 as the judge sees it."""
    return Reference(7, COMPARABILITY, _by_question(lengths, prompts), run_sigma, runs)


def make_candidate(lengths: Lengths = 2.4, *, id: int = 1, prompts: int = 24, **changes: Any) -> Candidate:  # noqa: A002
    """A run as the judge sees it, comparable with `make_reference`; `changes` are fields of Candidate."""
    return Candidate(id, **{"comparability": COMPARABILITY, "values": _by_question(lengths, prompts), **changes})


def make_route(name: str = ROUTE, **changes: Any) -> Route:
    """A route of two domains whose first baseline is approved from ten runs; `changes` are keys of routes.yaml."""
    values = {
        "name": name,
        "replicas": [REPLICA],
        "domains": [DOMAIN, "math"],
        "baseline": {"approve_after": 10},
        "labels": {"team": "chat"},
    }
    return Route.model_validate({**values, **changes})


def make_alerting(**changes: Any) -> Alerting:
    """One page rule at 15 percent and two receivers that get everything; `changes` are keys of alerting.yaml."""
    values = {
        "rules": [{"name": "acceptance-drop", "metric": "acceptance_length", "drop": "15%", "severity": "page"}],
        "receivers": [{"name": "console", "log": {}}, {"name": "hook", "webhook": {"url": "http://alerts:9000/hook"}}],
        "external_url": "https://specwatch.example.com",
    }
    return Alerting.model_validate({**values, **changes})


def make_config(*routes: Route, alerting: Alerting | None = None) -> Config:
    return Config(Path(), routes or (make_route(),), alerting or make_alerting(), None)


def make_document(transition: str = "opened", **changes: Any) -> dict[str, Any]:
    """What a message of an incident says, with the keys that every receiver reads."""
    summary = f"{transition} {ROUTE} · coding"
    document: dict[str, Any] = {
        "transition": transition,
        "route": ROUTE,
        "labels": {"team": "chat"},
        "severity": "page",
        "domain": "coding",
        "domains": ["coding"],
        "opened_at": START.isoformat(),
        "happened_at": START.isoformat(),
        "link": None,
        "summary": summary,
        "text": f"{summary}\n  evidence   …",
    }
    return {**document, **changes}
