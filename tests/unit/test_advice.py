"""What is advised, on numbers worked out by hand."""

from __future__ import annotations

import pytest

from monitor.core.advice import advice, cost_per_million_tokens
from monitor.core.draft_length import (
    Acceptance,
    Load,
    acceptance,
    best_lengths,
    draft_length_table,
    extended_survival,
    loads,
    per_batch_size,
    speedup_at,
    tokens_per_step,
)

HALVES = (0.8, 0.4, 0.2)


def load(concurrency: int, speculative_ms: float, speedup: float, doubt: float = 0.02, plain_ms: float = 10.0) -> Load:
    return Load(concurrency, plain_ms / 1000, speculative_ms / 1000, 1000.0, 1000.0 * speedup, speedup, doubt)


def made(survival=HALVES, k: int = 3, **by_domain: float) -> Acceptance:
    return Acceptance(k, survival, by_domain or {"coding": 2.4}, (7, 9), "request")


def run(domain: str, survival=HALVES, run_id: int = 1, **changes):
    return {"id": run_id, "domain": domain, "survival": list(survival), "coverage": 1.0, "k": 3, "source": "request",
            **changes}  # fmt: skip


def point(concurrency: int, ratio: float | None, plain_ms: float = 10.0, speculative_ms: float = 15.0):
    side = {"tokens_per_second": 1000.0}
    return {
        "concurrency": concurrency,
        "speedup": None if ratio is None else {"ratio": ratio, "low": ratio / 1.1, "high": ratio * 1.1},
        "plain": {**side, "seconds_per_step": plain_ms / 1000},
        "speculative": {"tokens_per_second": 1000.0 * (ratio or 0), "seconds_per_step": speculative_ms / 1000},
    }


def sweep(*points, outcome: str = "crosses", concurrency: float | None = 24.0):
    crossing = {"outcome": outcome, "concurrency": concurrency, "low": 12.0, "high": None}
    return {"id": 3, "points": list(points), "crossover": crossing}


def test_survival_is_cut_or_carried_on_with_the_last_conditional_acceptance():
    assert extended_survival(HALVES, 2) == (0.8, 0.4)
    assert extended_survival(HALVES, 5) == pytest.approx((0.8, 0.4, 0.2, 0.1, 0.05))
    assert extended_survival((0.7,), 3) == pytest.approx((0.7, 0.49, 0.343))
    assert extended_survival((), 2) == (0.0, 0.0)


def test_steps_without_a_draft_yield_one_token():
    assert tokens_per_step(HALVES, 3) == pytest.approx(2.4)
    found = acceptance([run("coding", coverage=0.5)], {})
    assert (found.survival, found.by_domain) == (pytest.approx((0.4, 0.2, 0.1)), {"coding": pytest.approx(1.7)})


def test_at_the_length_in_use_the_speedup_is_the_measured_one():
    assert speedup_at(HALVES, 3, load(8, 16.0, 1.37), 3) == pytest.approx(1.37)


def test_another_length_scales_tokens_and_step_time():
    # K = 1: 1.8 tokens in 12 ms against 2.4 in 16 ms
    assert speedup_at(HALVES, 3, load(8, 16.0, 1.5), 1) == pytest.approx(1.5 * (1.8 / 12) / (2.4 / 16))


def test_a_shorter_draft_is_named_only_where_it_gains_more_than_the_doubt():
    sure, unsure = load(8, 22.0, 1.09, doubt=0.01), load(8, 22.0, 1.09, doubt=0.5)
    assert best_lengths(made(), [sure])[0][1:] == (1, pytest.approx(1.09 * (1.8 / 14) / (2.4 / 22)))
    assert best_lengths(made(), [unsure])[0][1:] == (3, pytest.approx(1.09))


def test_no_length_is_named_where_none_reaches_one():
    assert best_lengths(made(), [load(64, 40.0, 0.6)])[0][1] == 0


def test_ranges_of_batch_sizes_meet_half_way_and_end_where_the_measurement_ends():
    chosen = [
        (load(1, 11, 2.0), 3, 2.0),
        (load(4, 11, 2.0), 3, 2.0),
        (load(16, 20, 1.2), 1, 1.3),
        (load(64, 40, 0.6), 0, 0.6),
    ]
    assert per_batch_size(chosen) == [[1, 10, 3], [11, 40, 1], [41, 64, 0]]
    assert per_batch_size(chosen, 30.4) == [[1, 10, 3], [11, 29, 1], [30, 64, 0]]


def test_acceptance_of_a_route_is_weighted_by_its_mix():
    found = acceptance([run("coding"), run("math", (0.4, 0.2, 0.1), 2)], {"coding": 0.75, "math": 0.25})
    assert found.survival == pytest.approx((0.7, 0.35, 0.175))
    assert found.by_domain == pytest.approx({"coding": 2.4, "math": 1.7})
    assert (found.k, found.source, found.run_ids) == (3, "request", (1, 2))
    assert acceptance([run("coding"), run("math", (0.4, 0.2, 0.1), 2)], {}).survival[0] == pytest.approx(0.6)


def test_runs_of_two_sources_or_two_k_carry_no_advice():
    assert acceptance([run("coding"), run("math", source="stream")], {}) is None
    assert acceptance([run("coding"), run("math", k=5)], {}) is None
    assert acceptance([], {}) is None


def test_a_stream_is_taken_to_draft_at_every_step():
    assert acceptance([run("coding", coverage=None, source="stream")], {}).by_domain == {"coding": pytest.approx(2.4)}


def test_a_domain_of_the_mix_without_a_run_is_left_out_and_named():
    found = acceptance([run("coding"), run("qa", (0.1, 0.0, 0.0), 5)], {"coding": 0.5, "math": 0.5})
    assert (found.survival, found.run_ids, found.left_out) == (pytest.approx(HALVES), (1,), ("math",))
    assert acceptance([run("qa")], {"coding": 0.5, "math": 0.5}) is None


def test_where_no_gain_is_proven_nothing_is_advised_for_the_batch_size():
    doubtful = point(8, 1.5)
    doubtful["speedup"] = {"ratio": 1.5, "low": 0.9, "high": 2.5}
    lines = {
        line.topic: line.text
        for line in advice(made(), sweep(doubtful, outcome="none_in_range", concurrency=None), None, 1)
    }
    assert lines["batch size"].startswith("nothing: at no load is a gain proven")


def test_points_without_a_speedup_are_left_out():
    (found,) = loads(sweep(point(8, 1.2), point(16, None)))
    assert (found.concurrency, found.speedup, found.break_even) == (8, 1.2, pytest.approx(1.5))
    assert found.doubt_ratio == pytest.approx(0.1)


def test_a_sweep_without_a_valid_point_gives_one_line_that_says_so():
    (line,) = advice(made(), sweep(point(8, None)), None, 1)
    assert line.topic == "sweep"
    assert line.text == "run 'specwatch sweep' again: the last one has no valid point"


def test_every_line_has_its_evidence_and_its_uncertainty():
    curve = sweep(
        point(1, 2.0, speculative_ms=12.0), point(16, 1.4, speculative_ms=17.0), point(64, 0.7, speculative_ms=34.0)
    )
    lines = {line.topic: line for line in advice(made(coding=2.4, writing=1.3), curve, 2.0, 4)}
    assert lines["draft length"].basis == "modelled"
    assert lines["batch size"].text.startswith("switch speculation off from concurrency 24 on")
    assert lines["batch size"].text.endswith('"num_speculative_tokens_per_batch_size": [[1, 23, 3], [24, 64, 0]]')
    assert "on under 16 requests, off above 32" in lines["batch size"].evidence
    assert lines["batch size"].uncertainty == "95 % interval of the crossover: 12 to outside of the range"
    assert lines["losing"].text == (
        "speculation loses at concurrency 64: 0.70x, which costs 57.60 a day for each server kept at this load"
    )
    assert all(line.evidence and line.uncertainty for line in lines.values())


def test_a_domain_under_break_even_should_leave():
    curve = sweep(point(1, 2.0, speculative_ms=12.0), point(16, 1.4, speculative_ms=17.0))
    lines = [line for line in advice(made(coding=2.4, writing=1.3), curve, None, 1) if line.topic == "domain"]
    (line,) = lines
    assert line.text == "send writing to a route without speculation: it loses from concurrency 16 on"
    assert line.evidence == "1.30 tokens per step; break-even at concurrency 16: 1.70"
    assert line.uncertainty == "break-even is sure to ±10%"


def test_domains_are_not_named_where_the_whole_route_loses():
    curve = sweep(point(1, 2.0, speculative_ms=12.0), point(16, 0.8, speculative_ms=30.0))
    assert [line.topic for line in advice(made(coding=2.4, math=2.3), curve, None, 1) if line.topic == "domain"] == []


def test_the_crossover_decides_whether_to_switch_off():
    everywhere = advice(made(), sweep(point(8, 1.5), outcome="none_in_range", concurrency=None), None, 1)
    nowhere = advice(made(), sweep(point(8, 0.5, speculative_ms=50.0), outcome="never_pays", concurrency=None), None, 1)
    assert any(line.text.startswith("leave speculation on up to concurrency 8") for line in everywhere)
    assert any(line.text.startswith("switch speculation off: it loses at every load") for line in nowhere)


def test_the_table_has_the_length_in_use_and_the_usual_others():
    (row,) = draft_length_table(made(k=4, survival=(0.8, 0.4, 0.2, 0.1)), [load(8, 16.0, 1.5)])
    assert list(row["speedup_by_draft_length"]) == ["3", "4", "5", "7"]
    assert row["speedup_by_draft_length"]["4"] == pytest.approx(1.5)


def test_cost_by_token_follows_from_price_and_throughput():
    assert cost_per_million_tokens(1000.0, 3.6, 2) == pytest.approx(2.0)
