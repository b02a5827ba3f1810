"""The load that probing adds, and how many probes run at once when nobody says."""

from __future__ import annotations

import pytest

from monitor.prompts.sets import bundled_directory, load_prompt_sets
from monitor.service.budget import runs_per_hour, tokens_per_hour, workers_for
from monitor.service.discovery import Replicas
from tests.factories import make_route


@pytest.mark.parametrize(("replicas", "workers"), [(1, 8), (32, 8), (33, 9), (100, 25), (128, 32), (1000, 32)])
def test_a_quarter_of_the_replicas_is_probed_at_once_from_8_to_32(replicas: int, workers: int) -> None:
    assert workers_for(replicas) == workers


def test_a_replica_of_two_routes_counts_once() -> None:
    replicas = [f"http://vllm-{n}:8000" for n in range(40)]
    assert Replicas([make_route("a", replicas=replicas), make_route("b", replicas=replicas)]).number() == 40


def test_tokens_are_those_of_every_turn_and_runs_those_of_every_domain() -> None:
    sets = load_prompt_sets(bundled_directory())
    domains = ["coding", "math"]
    turns = sum(len(prompt.turns) for domain in domains for prompt in sets[domain].prompts)
    prompts = sum(len(sets[domain].prompts) for domain in domains)
    route = make_route(domains=domains, every="30m", max_tokens=100)
    assert tokens_per_hour(route, sets) == pytest.approx(turns * 100 * 2)
    raw = make_route(domains=domains, every="30m", max_tokens=100, endpoint="completions")
    assert tokens_per_hour(raw, sets) == pytest.approx(prompts * 100 * 2)
    assert runs_per_hour([route, raw]) == 8
    both = make_route(domains=domains, every="30m", max_tokens=100, cache="both")
    assert tokens_per_hour(both, sets) == pytest.approx(2 * turns * 100 * 2)
