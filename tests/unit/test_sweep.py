"""What a sweep's samples amount to, on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from monitor.core.figures import Counts
from monitor.core.format import interval_plot
from monitor.core.records import Source
from monitor.core.statistics import RatioEstimate, ratio_estimate
from monitor.core.sweep import Crossover, bunched_ratio, crossover, point
from monitor.probing.sweep import Plan
from monitor.prompts.sets import Prompt
from tests.factories import make_sample


def passes(seconds_per_token: float, repeats: int = 2, prompts: int = 12, **changes):
    """Samples of 100 decoded tokens after a first one at 0.1 s; `changes` are fields of Sample."""
    decode = 100 * seconds_per_token
    values = {
        "decode_seconds": decode,
        "decode_tokens": 100,
        "completion_tokens": 101,
        "ttft_seconds": 0.1,
        "total_seconds": 0.1 + decode,
        "counts": Counts(50, 150, 50, (10, 30, 10, 0), 50),
        **changes,
    }
    return [tuple(make_sample(f"q{n}", **values) for n in range(prompts)) for _ in range(repeats)]


def plain_passes(seconds_per_token: float, **changes):
    return passes(seconds_per_token, source=Source.STREAM, counts=Counts(0, None, 0, (), 100), **changes)


def measured(ratio: float, concurrency: int, low: float | None = None, high: float | None = None):
    """A point with this speedup and interval."""
    made = point(concurrency, plain_passes(0.02), passes(0.01))
    estimate = RatioEstimate(ratio, low or ratio * 0.9, high or ratio * 1.1, 24, 3)
    return made.__class__(**{**made.__dict__, "speedup": estimate})


def test_speedup_is_plain_decode_time_by_token_over_speculative():
    found = point(4, plain_passes(0.02), passes(0.008))
    assert found.invalid_reason is None
    assert found.speedup.ratio == pytest.approx(2.5)
    assert found.ttft_speedup.ratio == pytest.approx(1.0)
    assert found.total_speedup.ratio == pytest.approx(2.1 / 0.9)
    assert (found.speedup.n, found.speedup.repeats, found.repeats) == (12, 2, 2)


def test_break_even_is_the_ratio_of_step_times_and_speedup_is_tokens_per_step_over_it():
    found = point(4, plain_passes(0.02), passes(0.008))
    assert found.plain.seconds_per_step == pytest.approx(0.02)
    assert found.speculative.seconds_per_step == pytest.approx(0.016)
    assert found.break_even_acceptance_length == pytest.approx(0.8)
    assert found.speculative.tokens_per_step / found.break_even_acceptance_length == pytest.approx(2.5)


def test_the_servers_throughput_follows_from_concurrency_and_time_by_request():
    found = point(8, plain_passes(0.02), passes(0.008), gpus=2)
    assert found.plain.tokens_per_second == pytest.approx(8 * 101 / 2.1)
    assert found.plain.tokens_per_second_per_gpu == pytest.approx(4 * 101 / 2.1)
    assert found.plain.tokens_per_second_per_user.p50 == pytest.approx(50)
    assert point(8, plain_passes(0.02), passes(0.008)).plain.tokens_per_second_per_gpu is None


def test_a_point_without_enough_shared_prompts_has_a_reason_and_no_ratio():
    found = point(4, plain_passes(0.02, prompts=11), passes(0.008, prompts=11))
    assert (found.invalid_reason, found.speedup, found.break_even_acceptance_length) == (
        "too_few_valid_prompts", None, None,
    )  # fmt: skip
    assert found.invalid_detail == "11 prompts are valid on both servers, 12 are needed"


def test_a_point_whose_server_failed_has_that_servers_reason():
    broken = passes(0.008, invalid_reason="stalled")
    found = point(4, plain_passes(0.02), broken)
    assert (found.invalid_reason, found.speedup) == ("stalled", None)
    assert found.invalid_detail == "0 of 24 prompts valid on the speculative server"


def test_the_interval_holds_the_spread_between_passes():
    steady = ratio_estimate([{f"q{n}": math.log(2) for n in range(24)}] * 3)
    shaken = ratio_estimate([{f"q{n}": math.log(2) + shift for n in range(24)} for shift in (-0.1, 0, 0.1)])
    once = ratio_estimate([{f"q{n}": math.log(2) for n in range(24)}])
    assert steady.ratio == shaken.ratio == once.ratio == pytest.approx(2)
    assert (steady.low, steady.high) == (pytest.approx(1.949, abs=1e-3), pytest.approx(2.053, abs=1e-3))
    assert math.log(shaken.high / 2) == pytest.approx(math.hypot(4.3027 * 0.1 / math.sqrt(3), 0.00845), abs=1e-3)
    assert math.log(once.high / 2) == pytest.approx(1.96 * 0.11, abs=1e-3)


def test_one_prompt_is_no_estimate():
    assert ratio_estimate([{"q0": 0.5}]) is None
    assert ratio_estimate([{}]) is None


def test_the_crossover_lies_between_the_last_point_above_one_and_the_next():
    points = [measured(2, 1), measured(1.25, 16, 1.0001, 1.4), measured(0.8, 64, 0.7, 0.9)]
    found = crossover(points)
    assert found.outcome == "crosses"
    assert found.concurrency == pytest.approx(32)
    assert found.low == pytest.approx(16, abs=0.1)
    assert 32 < found.high < 64


def test_speculation_that_pays_everywhere_has_no_crossover_in_range():
    assert crossover([measured(2, 1), measured(1.5, 8)]) == Crossover("none_in_range")
    doubtful = crossover([measured(2, 1), measured(1.05, 8, 0.9, 1.2)])
    assert (doubtful.outcome, doubtful.concurrency, doubtful.high) == ("none_in_range", None, None)
    assert 1 < doubtful.low < 8


def test_speculation_that_loses_everywhere_never_pays():
    assert crossover([measured(0.7, 1), measured(0.5, 8)]) == Crossover("never_pays")


def test_a_curve_without_a_valid_point_is_unknown():
    assert crossover([point(4, plain_passes(0.02, prompts=2), passes(0.01, prompts=2))]) == Crossover("unknown")


def test_a_pass_warms_up_and_holds_the_load_with_prompts_that_do_not_count():
    prompts = tuple(Prompt(f"q{n}", "c", "", ("?",)) for n in range(40))
    plan = Plan(prompts, None, measured=24)
    sent = plan.prompts_of_a_pass(4)
    assert (plan.measured_at(4), len(sent), plan.sent_at(4)) == (24, 32, 32)
    assert sent[4:28] == prompts[:24]
    assert set(sent[:4] + sent[28:]).isdisjoint(prompts[:24])
    assert plan.measured_at(32) == 32
    assert plan.measured_at(128) == 40
    assert len(plan.prompts_of_a_pass(128)) == 40 + 256


def test_answers_read_in_bunches_have_no_decode_time():
    bunches = ((0.1, 0.1, 0.1, 0.2, 0.2, 0.2),)
    assert bunched_ratio(make_sample(chunk_seconds=bunches)) == pytest.approx(0.8)
    found = point(4, plain_passes(0.02), passes(0.008, chunk_seconds=bunches))
    assert (found.invalid_reason, found.speedup) == ("too_few_valid_prompts", None)
    found = point(4, plain_passes(0.02, chunk_seconds=bunches), passes(0.008, chunk_seconds=bunches))
    assert found.invalid_reason == "bunched_stream"
    assert found.invalid_detail.startswith("chunks of 48 answers arrived in bunches")


def test_bunched_answers_count_for_no_step_time_and_no_first_token():
    bunches = ((0.1, 0.1, 0.1, 0.2, 0.2, 0.2),)
    clean, bunched = passes(0.008, repeats=1)[0], passes(0.001, repeats=1, ttft_seconds=9.0, chunk_seconds=bunches)[0]
    found = point(4, plain_passes(0.02, repeats=1), [clean + bunched])
    assert found.speculative.seconds_per_step == pytest.approx(0.016)
    assert found.speculative.ttft_seconds.p95 == pytest.approx(0.1)
    assert found.break_even_acceptance_length == pytest.approx(0.8)


def test_an_interval_is_drawn_on_a_logarithmic_axis_with_its_estimate_and_the_mark():
    assert interval_plot((2.0, 4.0, 8.0), (1.0, 16.0), 17, mark=1.0) == "┊   ├───●───┤    "
    assert interval_plot((0.5, 1.0, 2.0), (0.5, 2.0), 5, mark=1.0) == "├─●─┤"
    assert interval_plot((0.1, 1.0, 9.0), (0.5, 2.0), 5, mark=1.0) == "◂─●─▸"
    assert interval_plot((0.1, 0.2, 0.8), (0.5, 2.0), 5, mark=2.0) == "◂┤  ┊"
