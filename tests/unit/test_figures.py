"""Every figure from raw counts: by hand on small numbers, and its identities on any."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.figures import (
    SAMPLE_METRICS,
    acceptance_length,
    acceptance_rate,
    aggregate,
    coverage,
    percentile,
    sample_acceptance_length,
    sample_tokens_per_step,
    survival,
    tokens_per_step,
)
from monitor.core.records import Counts, Sample, Source
from tests.factories import make_sample

# Ten drafted steps of three tokens: 4 accepted none, 3 one, 2 two, 1 all three; and two decode steps without a draft.
COUNTS = Counts(steps=10, drafted=30, accepted=10, histogram=(4, 3, 2, 1), decode_steps=12)


@st.composite
def any_counts(draw: st.DrawFn, k: int | None = None) -> Counts:
    """Counts as a server could have made them."""
    draft_tokens = k or draw(st.integers(1, 8))
    histogram = tuple(draw(st.lists(st.integers(0, 500), min_size=draft_tokens + 1, max_size=draft_tokens + 1)))
    steps = sum(histogram)
    accepted = sum(length * times for length, times in enumerate(histogram))
    return Counts(steps, steps * draft_tokens, accepted, histogram, steps + draw(st.integers(0, 100)))


def test_acceptance_length_counts_the_bonus_token() -> None:
    assert acceptance_length(COUNTS) == 2.0


def test_acceptance_rate_is_accepted_over_drafted() -> None:
    assert acceptance_rate(COUNTS) == pytest.approx(1 / 3)


def test_survival_is_the_share_of_steps_with_more_than_i_accepted() -> None:
    assert survival(COUNTS) == pytest.approx((0.6, 0.3, 0.1))


def test_coverage_is_the_share_of_decode_steps_that_had_a_draft() -> None:
    assert coverage(COUNTS) == pytest.approx(10 / 12)


def test_coverage_never_exceeds_one_when_a_source_sees_fewer_decode_steps_than_drafts() -> None:
    assert coverage(Counts(steps=11, decode_steps=10)) == 1.0


def test_tokens_per_step_leaves_out_the_first_token_of_every_turn() -> None:
    assert tokens_per_step(COUNTS, completion_tokens=26, turns=2) == 2.0


def test_without_steps_no_figure_is_invented() -> None:
    nothing = Counts(drafted=0)
    assert (acceptance_length(nothing), acceptance_rate(nothing), coverage(nothing)) == (None, None, None)
    assert survival(nothing) == ()
    assert tokens_per_step(nothing, completion_tokens=1) is None


def test_a_source_that_cannot_see_drafted_tokens_has_no_acceptance_rate() -> None:
    assert acceptance_rate(Counts(steps=4, drafted=None, accepted=4, histogram=(0, 4), decode_steps=4)) is None


@given(any_counts())
def test_acceptance_length_is_one_plus_the_sum_of_survival(counts: Counts) -> None:
    length = acceptance_length(counts)
    assert (length is None) == (counts.steps == 0)
    if length is not None:
        assert length == pytest.approx(1 + sum(survival(counts)))


@given(any_counts())
def test_figures_stay_within_their_bounds(counts: Counts) -> None:
    k = len(counts.histogram) - 1
    length = acceptance_length(counts)
    assert length is None or 1 <= length <= k + 1
    rate = acceptance_rate(counts)
    assert rate is None or 0 <= rate <= 1
    shares = survival(counts)
    assert all(0 <= later <= earlier <= 1 for earlier, later in itertools.pairwise(shares))


@given(any_counts(k=4), any_counts(k=4))
def test_pooling_counts_weighs_each_figure_by_its_steps(one: Counts, other: Counts) -> None:
    both = one + other
    pooled = acceptance_length(both)
    parts = [(c.steps, acceptance_length(c)) for c in (one, other)]
    expected = sum(steps * length for steps, length in parts if length is not None)
    assert pooled is None or pooled * both.steps == pytest.approx(expected)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.95, 3.85), (1.0, 4.0)])
def test_percentiles_are_interpolated(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(value)


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile([], 0.5) is None


def test_every_metric_a_rule_may_name_has_a_value_per_valid_sample() -> None:
    sample = make_sample(acceptance_length=2.5)
    assert {name: of(sample) for name, of in SAMPLE_METRICS.items()} == {
        "acceptance_length": 2.5,
        "tokens_per_step": 2.5,
        "accepted_per_step": 1.5,
        "acceptance_rate": 0.5,
        "throughput": 250.0,
    }


def test_an_invalid_sample_has_no_value() -> None:
    broken = make_sample(invalid_reason="stream_cut")
    assert (sample_acceptance_length(broken), sample_tokens_per_step(broken)) == (None, None)


@pytest.mark.parametrize("completion_tokens", [0, 1])
def test_a_sample_without_decoded_tokens_has_no_tokens_per_step_because_zero_has_no_logarithm(
    completion_tokens: int,
) -> None:
    assert sample_tokens_per_step(make_sample(completion_tokens=completion_tokens)) is None


def test_tokens_per_step_of_a_sample_counts_its_turns() -> None:
    counts = Counts(steps=10, drafted=30, accepted=10, histogram=(4, 3, 2, 1), decode_steps=10)
    sample = make_sample(counts=counts, completion_tokens=22, chunk_tokens=((1, 11), (1, 9)))
    assert sample_tokens_per_step(sample) == 2.0


def two_prompts() -> list[Sample]:
    """A long prompt of AL 2 over ten steps, a short one of AL 4 over five, and one that failed."""
    long = make_sample("a", counts=COUNTS, completion_tokens=23, decode_tokens=22, decode_seconds=2.0)
    short = make_sample(
        "b",
        counts=Counts(5, 15, 15, (0, 0, 0, 5), 5),
        completion_tokens=21,
        decode_tokens=20,
        decode_seconds=1.0,
        ttft_seconds=0.07,
    )
    return [long, short, Sample("c", invalid_reason="http_500")]


def test_an_aggregate_keeps_the_token_weighted_and_the_prompt_mean_length() -> None:
    found = aggregate("coding", two_prompts())
    assert found.acceptance_length == pytest.approx(1 + 25 / 15)
    assert found.acceptance_length_prompt_mean == 3.0


def test_an_aggregate_pools_valid_samples_and_says_why_the_others_are_not() -> None:
    assert aggregate("coding", two_prompts()).as_dict() == {
        "domain": "coding",
        "source": "request",
        "k": 3,
        "acceptance_length": pytest.approx(2.6667, abs=1e-4),
        "acceptance_length_prompt_mean": 3.0,
        "acceptance_rate": pytest.approx(25 / 45),
        "survival": pytest.approx([11 / 15, 8 / 15, 6 / 15]),
        "tokens_per_step": pytest.approx(42 / 17),
        "coverage": pytest.approx(15 / 17),
        "steps": 15,
        "drafted": 45,
        "accepted": 25,
        "decode_steps": 17,
        "completion_tokens": 44,
        "requests": 2,
        "prompts_valid": 2,
        "prompts_total": 3,
        "invalid_reasons": {"http_500": 1},
        "ttft_seconds": {"p50": pytest.approx(0.06), "p95": pytest.approx(0.069)},
        "tokens_per_second": {"p50": pytest.approx(15.5), "p95": pytest.approx(19.55)},
    }


def test_a_run_with_no_valid_sample_has_counts_of_zero_and_no_figures() -> None:
    found = aggregate("coding", [Sample("a", invalid_reason="busy"), Sample("b", invalid_reason="busy")])
    assert (found.steps, found.drafted, found.accepted, found.completion_tokens) == (0, 0, 0, 0)
    assert (found.source, found.k, found.acceptance_length, found.acceptance_length_prompt_mean) == (None,) * 4
    assert (found.ttft_seconds_p50, found.tokens_per_second_p95, found.survival) == (None, None, ())
    assert found.invalid_reasons == {"busy": 2}
    assert (found.prompts_valid, found.prompts_total) == (0, 2)
    assert found.as_dict()["source"] is None


def test_figures_of_two_sources_are_never_pooled() -> None:
    mixed = [make_sample("a"), make_sample("b", source=Source.STREAM)]
    with pytest.raises(ValueError, match="samples of coding mix sources \\['request', 'stream'\\]"):
        aggregate("coding", mixed)


def test_samples_of_different_k_leave_the_run_without_a_k() -> None:
    assert aggregate("coding", [make_sample("a", k=3), make_sample("b", k=5)]).k is None


def test_a_prompt_without_a_draft_counts_as_valid_but_not_in_the_prompt_mean() -> None:
    undrafted = make_sample("b", counts=Counts(decode_steps=40), completion_tokens=41)
    found = aggregate("coding", [make_sample("a", 2.4), undrafted])
    assert found.prompts_valid == 2
    assert found.acceptance_length_prompt_mean == pytest.approx(2.4)
    assert found.coverage == pytest.approx(1000 / 1040)


def test_metrics_that_can_be_nothing_count_half_a_token_where_nothing_was_accepted() -> None:
    none = make_sample(acceptance_length=1.0)
    some = make_sample(acceptance_length=2.4)
    assert SAMPLE_METRICS["accepted_per_step"](some) == pytest.approx(1.4)
    assert SAMPLE_METRICS["accepted_per_step"](none) == 0.5 / 1000
    assert SAMPLE_METRICS["acceptance_rate"](some) == pytest.approx(1.4 / 3)
    assert SAMPLE_METRICS["acceptance_rate"](none) == 0.5 / 3000


def test_throughput_is_the_decoding_of_one_prompt() -> None:
    assert SAMPLE_METRICS["throughput"](make_sample(decode_tokens=300, decode_seconds=2.0)) == 150
    assert SAMPLE_METRICS["throughput"](make_sample(decode_seconds=None)) is None


def test_an_acceptance_rate_needs_to_know_what_was_drafted() -> None:
    unknown = make_sample(counts=Counts(10, None, 5, (5, 5), 10))
    assert SAMPLE_METRICS["acceptance_rate"](unknown) is None
