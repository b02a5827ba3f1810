"""Why a verdict is what it is: everything it was made from, and whether the stored samples give the same again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from monitor.core import floors, judge
from monitor.core.explanation import explained
from monitor.core.figures import SAMPLE_METRICS
from monitor.store import baselines, runs
from monitor.store.evidence import evidence
from monitor.store.identities import identity_of
from monitor.store.retention import without_samples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from monitor.config.routes import Route
    from monitor.core.evidence import PromptMove
    from monitor.store.verdicts import StoredVerdict

COMPARED = ("outcome", "value", "baseline_value", "prompts", "change", "standard_error", "p_drop")
"""What a verdict made anew must have in common with the stored one."""

RUN_KEYS = ("id", "replica", "reason", "started_at", "valid", "invalid_reason", "source", "acceptance_length")
BASELINE_KEYS = ("id", "run_ids", "run_sigma", "created_at", "created_by", "approved_at", "approved_by", "why")


def explain(connection: Connection, stored: StoredVerdict, route: Route | None) -> dict[str, Any]:
    """The one JSON shape of an explained verdict (docs/json.md); `route`, where it is configured, has the price."""
    verdict = stored.document
    run_ids = sorted({*verdict["run_ids"], stored.run_id})
    found = evidence(
        connection,
        run_ids,
        verdict["baseline_id"],
        verdict["change"],
        verdict["metric"],
        None if verdict["outcome"] == judge.Outcome.CONFIRMED.value else verdict["change_interval"],
    )
    price = (None, None) if route is None else (route.gpu_price_per_hour, route.gpus)
    baseline = None if verdict["baseline_id"] is None else baselines.get_baseline(connection, verdict["baseline_id"])
    its_runs = [runs.stored_run(connection, run_id) for run_id in run_ids]
    return {
        "route": stored.route,
        "domain": stored.domain,
        "source": found.source,
        "verdict": verdict,
        "run": _run(its_runs[-1]),
        "runs": [_run(run) for run in its_runs],
        "identity": identity_of(connection, its_runs[-1]["identity_id"]),
        "baseline": None if baseline is None else {name: baseline[name] for name in BASELINE_KEYS},
        "baseline_identity": None if baseline is None else identity_of(connection, baseline["identity_id"]),
        "identity_changes": {name: list(pair) for name, pair in found.identity_changes.items()},
        "recomputed": recomputed(connection, stored),
        "prompts_metric": found.metric,
        "prompts": [_prompt(move) for move in sorted(found.moves, key=lambda move: (move.change, move.question_id))],
        **explained(found, *price),
    }


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in RUN_KEYS}


def recomputed(connection: Connection, stored: StoredVerdict) -> dict[str, Any]:
    """Whether the stored samples give the same verdict again; `same` is None where they cannot tell, for `why`."""
    verdict = stored.document
    made = {"same": None, "why": None, "judge_version": judge.JUDGE_VERSION, "outcome": None}
    if verdict["judge_version"] != judge.JUDGE_VERSION:
        return {**made, "why": f"it was judged by version {verdict['judge_version']} of the procedure"}
    gone = without_samples(connection, verdict["run_ids"]) if verdict["metric"] in SAMPLE_METRICS else []
    if gone:
        return {**made, "why": f"the samples of {_runs({'run_ids': gone})} are no longer kept, as routes.yaml says"}
    again = _again(connection, stored)
    if again is None:
        return {**made, "why": f"it does not follow from the samples of {_runs(verdict)} alone"}
    document = again.as_dict()
    other = [name for name in COMPARED if not _same(document[name], verdict[name])]
    why = "; ".join(f"{name} {document[name]} was {verdict[name]}" for name in other)
    return {**made, "same": not other, "why": why or None, "outcome": document["outcome"]}


def _again(connection: Connection, stored: StoredVerdict) -> judge.Verdict | None:
    """None for a verdict that looks at more than its runs: a slow leak, a speedup, a confirmation that was invalid."""
    verdict = stored.document
    run_ids = verdict["run_ids"]
    confirms = stored.trip_id is not None
    if verdict.get("accumulated") is not None or not run_ids or (confirms and len(run_ids) < 2):
        return None
    if verdict["metric"] == floors.FIRST_POSITION_SURVIVAL:
        found = [runs.pooled_figure(connection, run_id, verdict["metric"]) for run_id in run_ids]
        floor = floors.share_floor(verdict["below"])
        return floors.confirm_floor(found, [floor] * len(found)) if confirms else floors.judge_floor(found[0], floor)
    if verdict["metric"] not in SAMPLE_METRICS or verdict["drop"] is None:
        return None
    line = judge.Line(verdict["metric"], verdict["drop"])
    trip, *confirmations = [runs.candidate(connection, run_id, line.metric) for run_id in run_ids]
    baseline_id = verdict["baseline_id"]
    reference = None if baseline_id is None else baselines.reference_by_id(connection, baseline_id, line.metric)
    if not confirms:
        return judge.judge_run(trip, reference, line)
    return None if reference is None else judge.judge_confirmation(trip, confirmations, reference, line)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def _runs(verdict: Mapping[str, Any]) -> str:
    run_ids = verdict["run_ids"]
    return f"run{'s' if len(run_ids) > 1 else ''} {', '.join(map(str, run_ids))}" if run_ids else "its runs"


def _prompt(move: PromptMove) -> dict[str, Any]:
    return {
        "question_id": move.question_id,
        "baseline_value": move.before,
        "value": move.now,
        "change": move.change,
        "prompt_tokens": move.prompt_tokens,
        "cached_prompt_tokens": move.cached_tokens,
    }
