"""The speedup of a route's domain: measured beside its plain twin, or modelled from a stored sweep. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.advice import cost_per_million_tokens
from monitor.core.break_even import break_even_at, is_like, load_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.outputs import Outputs
    from monitor.core.sweep import Point

SIDES = ("plain", "speculative")
POINT_KEYS = (
    "repeats",
    "plain",
    "speculative",
    "speedup",
    "ttft_speedup",
    "total_speedup",
    "break_even_acceptance_length",
)


@dataclass(frozen=True)
class Speedup:
    """One domain replayed on a replica and on its plain twin, pass by pass in turn, at the route's concurrency.

    `point` is None when it did not come to measuring; `outputs` when sampling is not greedy or there are no hashes.
    """

    route: str
    domain: str
    replica: str
    plain_twin: str
    prompt_set_hash: str
    concurrency: int
    sampling: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime
    plain_identity: Mapping[str, Any] | None = None
    speculative_identity: Mapping[str, Any] | None = None
    point: Point | None = None
    outputs: Outputs | None = None
    invalid_reason: str | None = None
    invalid_detail: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a speedup (docs/json.md)."""
        point = {} if self.point is None else self.point.as_dict()
        return {
            "route": self.route,
            "domain": self.domain,
            "basis": "measured",
            "replica": self.replica,
            "plain_twin": self.plain_twin,
            "prompt_set_hash": self.prompt_set_hash,
            "concurrency": self.concurrency,
            "sampling": dict(self.sampling),
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "plain_identity": self.plain_identity,
            "speculative_identity": self.speculative_identity,
            **{name: point.get(name) for name in POINT_KEYS},
            "outputs": None if self.outputs is None else self.outputs.as_dict(),
            "valid": self.invalid_reason is None,
            "invalid_reason": self.invalid_reason,
            "invalid_detail": self.invalid_detail,
            "warnings": point.get("warnings", []),
        }


def modelled(
    run: Mapping[str, Any], identity: Mapping[str, Any], sweeps: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """What the run's speedup would be at the step times of the newest sweep of its model, K and engine.

    Speedup ≈ tokens per step / break-even acceptance length at the run's load (docs/figures.md). None without such a
    sweep, outside the concurrencies it measured, or without tokens per step. `run` and `sweeps` are documents.
    """
    for sweep in sweeps:
        found = break_even_at(sweep["points"], load_of(run)) if is_like(sweep, run, identity) else None
        if found is not None and run["tokens_per_step"] is not None:
            break_even, _ = found
            ratio = run["tokens_per_step"] / break_even
            return {
                **dict.fromkeys(POINT_KEYS),
                "id": None,
                "route": run["route"],
                "domain": run["domain"],
                "basis": "modelled",
                "replica": run["replica"],
                "plain_twin": None,
                "prompt_set_hash": run["prompt_set_hash"],
                "concurrency": run["concurrency"],
                "sampling": run["sampling"],
                "started_at": run["started_at"],
                "finished_at": run["finished_at"],
                "plain_identity": sweep["plain_identity"],
                "speculative_identity": dict(identity),
                "speedup": {"ratio": ratio, "low": None, "high": None, "n": run["prompts_valid"], "repeats": 1},
                "break_even_acceptance_length": break_even,
                "outputs": None,
                "valid": True,
                "invalid_reason": None,
                "invalid_detail": None,
                "warnings": [],
                "run_id": run["id"],
                "sweep_id": sweep["id"],
            }
    return None


def costs(speedup: Mapping[str, Any], price_per_hour: float | None, gpus: int | None) -> dict[str, Any] | None:
    """What a million tokens cost on both sides of a speedup's document, at the tokens per second measured.

    `price_per_hour` is of one GPU; `gpus` of either server, 1 where that is not told. None without a price, and of a
    speedup that is invalid or modelled: then nobody measured tokens per second.
    """
    sides = [speedup[side] for side in SIDES]
    if price_per_hour is None or speedup["speedup"] is None or any(not side for side in sides):
        return None
    rates = [side["tokens_per_second"] for side in sides]
    if not all(rates):
        return None
    plain, speculative = (cost_per_million_tokens(rate, price_per_hour, gpus or 1) for rate in rates)
    return {
        "plain": plain,
        "speculative": speculative,
        "basis": "measured",
        "gpu_price_per_hour": price_per_hour,
        "gpus": gpus or 1,
        "price_from": "routes.yaml",
    }
