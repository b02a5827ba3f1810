"""A speedup without a twin: modelled from a stored sweep, or not at all; and what tokens cost on both sides."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.core.speedup import costs, modelled

IDENTITY = {"engine": "vllm", "model": "m", "k": 3}
RUN = {
    "id": 7,
    "route": "chat",
    "domain": "math",
    "replica": "http://vllm-0:8000",
    "prompt_set_hash": "set-1",
    "concurrency": 4,
    "sampling": {},
    "started_at": "2026-03-02T10:00:00+00:00",
    "finished_at": "2026-03-02T10:01:00+00:00",
    "prompts_valid": 24,
    "tokens_per_step": 2.4,
    "k": 3,
}


def sweep(*break_evens: tuple[int, float | None], **swept: Any) -> dict[str, Any]:
    points = [
        {"concurrency": at, "break_even_acceptance_length": value, "speedup": {"low": 1.0, "high": 1.0}}
        for at, value in break_evens
    ]
    return {"id": 5, "plain_identity": {}, "speculative_identity": {**IDENTITY, **swept}, "points": points}


def ratio_at(*sweeps: dict[str, Any], **changes: Any) -> float | None:
    found = modelled({**RUN, **changes}, IDENTITY, sweeps)
    return None if found is None else found["speedup"]["ratio"]


def test_it_is_tokens_per_step_over_break_even_at_the_run_s_concurrency() -> None:
    found = modelled(RUN, IDENTITY, [sweep((1, 1.1), (4, 1.2), (16, 2.0))])
    assert found is not None
    assert (found["basis"], found["run_id"], found["sweep_id"]) == ("modelled", 7, 5)
    assert found["speedup"] == {"ratio": pytest.approx(2.0), "low": None, "high": None, "n": 24, "repeats": 1}
    assert (found["break_even_acceptance_length"], found["outputs"], found["ttft_speedup"]) == (1.2, None, None)


def test_between_two_concurrencies_break_even_is_linear_in_their_logarithm() -> None:
    assert ratio_at(sweep((1, 1.0), (16, 1.4))) == pytest.approx(2.4 / 1.2)


def test_beyond_what_was_swept_nothing_is_modelled() -> None:
    assert ratio_at(sweep((8, 1.0), (16, 1.4))) is None
    assert ratio_at(sweep((1, 1.0), (2, 1.1), (4, None))) is None


@pytest.mark.parametrize("other", [{"k": 4}, {"model": "n"}, {"engine": "sglang"}])
def test_a_sweep_of_another_model_k_or_engine_is_not_used(other: dict[str, Any]) -> None:
    assert ratio_at(sweep((4, 1.2), **other)) is None
    assert ratio_at(sweep((4, 1.2), **other), sweep((4, 1.5))) == pytest.approx(1.6)


def test_a_run_without_tokens_per_step_has_no_modelled_speedup() -> None:
    assert ratio_at(sweep((4, 1.2)), tokens_per_step=None) is None


def measured_at(plain: float | None, speculative: float | None, **changes: object) -> dict[str, object]:
    sides = {"plain": {"tokens_per_second": plain}, "speculative": {"tokens_per_second": speculative}}
    return {"speedup": {"ratio": 2.0}, **sides, **changes}


class TestCosts:
    def test_a_million_tokens_cost_the_hours_they_take(self):
        found = costs(measured_at(500.0, 1000.0), 3.6, 2)
        assert found is not None
        assert (found["plain"], found["speculative"]) == (pytest.approx(4.0), pytest.approx(2.0))
        assert (found["gpu_price_per_hour"], found["gpus"], found["price_from"]) == (3.6, 2, "routes.yaml")

    def test_a_server_of_unknown_size_has_one_gpu(self):
        found = costs(measured_at(500.0, 1000.0), 3.6, None)
        assert found is not None
        assert (found["plain"], found["gpus"]) == (pytest.approx(2.0), 1)

    @pytest.mark.parametrize(
        ("speedup", "price"),
        [
            (measured_at(500.0, 1000.0), None),
            (measured_at(500.0, None), 3.6),
            (measured_at(500.0, 1000.0, speedup=None), 3.6),
            ({"speedup": {"ratio": 2.0}, "plain": None, "speculative": None}, 3.6),
        ],
        ids=["no price", "no rate", "invalid", "modelled"],
    )
    def test_nothing_is_said_where_something_is_not_known(self, speedup, price):
        assert costs(speedup, price, 2) is None
