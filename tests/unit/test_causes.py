"""What moved: which causes evidence points to, in which order, and that each line has its numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from monitor.core.cause import LEVEL, Cause, Kind, Strength
from monitor.core.causes import ORGANIC_STEPS, causes, looked_at
from monitor.core.cost import lost_money
from monitor.core.evidence import Evidence, Load, OrganicMove, PastRun, PromptMove
from monitor.core.judge import Candidate, Comparability, Line, Reference, judge_run
from monitor.core.noise import Noise
from monitor.core.outputs import Changes
from monitor.core.replicas import ReplicaDifference
from monitor.core.statistics import baseline_values, paired_estimate
from tests.factories import REPLICA, START

SAME, OTHER = Changes(0, 24), Changes(22, 24)
ALIKE = Comparability("", "request", 3, 1, {})
CALM, BUSY = Load(running=1, waiting=0), Load(running=12, waiting=3)


def moves(change: float = -0.2, count: int = 24, **changes: Any) -> tuple[PromptMove, ...]:
    return tuple(PromptMove(f"q{number:02}", 2.4, 2.4 * (1 + change), **changes) for number in range(count))


def past(*figures: tuple[float, float | None], **changes: Any) -> tuple[PastRun, ...]:
    """Runs of these acceptance lengths and changes, 40 minutes apart."""
    return tuple(
        PastRun(number + 1, REPLICA, START + number * timedelta(minutes=40), length, change, **changes)
        for number, (length, change) in enumerate(figures)
    )


def fallen(**changes: Any) -> Evidence:
    return Evidence(**{"change": -0.2, "replica": REPLICA, "source": "request", "moves": moves(), **changes})


def only(evidence: Evidence) -> Cause:
    (cause,) = causes(evidence)
    return cause


def test_without_evidence_no_cause_is_named_and_what_was_not_looked_at_is() -> None:
    assert causes(Evidence()) == ()
    seen, unseen = looked_at(fallen(outputs=Changes(12, 24)))
    assert causes(fallen(outputs=Changes(12, 24))) == ()
    assert (seen, "load" in unseen) == (["identity", "outputs"], True)


def test_unchanged_outputs_with_less_acceptance_point_at_the_drafter() -> None:
    cause = only(fallen(outputs=SAME))
    assert (cause.kind, cause.strength) == (Kind.DRAFTER, Strength.MODERATE)
    assert cause.sentence == (
        "outputs unchanged (24/24): points at the drafter or its cache; "
        "no change of model, drafter or engine was seen (weights that are overwritten or pushed cannot be seen)"
    )


@pytest.mark.parametrize(
    ("survival", "told"),
    [
        ((0.55, 0.4, 0.28), "acceptance given the one before fell most at draft position 1 of 3: 0.80 → 0.55; "),
        ((0.8, 0.32, 0.2), "acceptance given the one before fell most at draft position 2 of 3: 0.75 → 0.40; "),
        ((0.79, 0.59, 0.4), ""),
        ((0.0, 0.0, 0.0), "acceptance given the one before fell most at draft position 1 of 1: 0.80 → 0.00; "),
        ((), ""),
    ],
)
def test_the_drafter_s_cause_says_at_which_position_it_lost_most(survival: tuple[float, ...], told: str) -> None:
    found = fallen(outputs=SAME, survival=survival, baseline_survival=(0.8, 0.6, 0.4))
    sentence = next(cause.sentence for cause in causes(found) if cause.kind is Kind.DRAFTER)
    assert sentence.startswith(f"outputs unchanged (24/24): points at the drafter or its cache; {told}")
    assert ("given the one before" in sentence) == bool(told)


def test_another_drafter_with_unchanged_outputs_is_told_first() -> None:
    changes = {"drafter": ("org/a", "org/b"), "fingerprint": ("f1", "f2")}
    cause = only(fallen(outputs=SAME, identity_changes=changes))
    assert (cause.kind, cause.strength) == (Kind.DRAFTER, Strength.STRONG)
    assert cause.sentence == "drafter org/a → org/b; outputs unchanged (24/24): points at the drafter or its cache"


def test_outputs_say_what_another_fingerprint_does_not() -> None:
    changes = {"fingerprint": ("f1", "f2")}
    cause = only(fallen(outputs=SAME, identity_changes=changes))
    assert (cause.kind, cause.strength) == (Kind.DRAFTER, Strength.STRONG)
    assert cause.sentence == "outputs unchanged (24/24): points at the drafter or its cache; fingerprint f1 → f2"
    cause = only(fallen(identity_changes=changes))
    assert (cause.kind, cause.sentence) == (Kind.CONFIGURATION, "fingerprint f1 → f2: it does not say which setting")


def test_changed_outputs_point_at_the_target_named_or_not() -> None:
    cause = only(fallen(outputs=OTHER, identity_changes={"root": ("org/a", "org/b")}))
    assert (cause.kind, cause.strength) == (Kind.TARGET, Strength.STRONG)
    assert cause.sentence == "outputs changed on 22 of 24: points at the target; root org/a → org/b"
    assert "no change of model, drafter or engine was seen" in only(fallen(outputs=OTHER)).sentence


def test_a_target_of_another_name_with_the_same_outputs_is_hardly_a_cause() -> None:
    found = causes(fallen(outputs=SAME, identity_changes={"root": ("org/a", "/copy/a")}))
    assert [(cause.kind, cause.strength) for cause in found] == [
        (Kind.DRAFTER, Strength.MODERATE),
        (Kind.TARGET, Strength.WEAK),
    ]
    assert found[1].sentence == "root org/a → /copy/a; yet outputs are unchanged"


def test_another_target_is_named_also_where_outputs_cannot_be_compared() -> None:
    cause = only(fallen(identity_changes={"quantization": ("fp8", "nvfp4")}))
    assert (cause.kind, cause.sentence) == (Kind.TARGET, "quantization fp8 → nvfp4; outputs do not tell")


def test_another_version_of_the_engine_is_told_before_what_it_may_have_changed() -> None:
    found = causes(fallen(outputs=OTHER, identity_changes={"version": ("0.29.1", "0.30.0"), "fingerprint": ("a", "b")}))
    assert [cause.kind for cause in found] == [Kind.ENGINE_VERSION, Kind.TARGET]
    assert found[0].sentence == "version 0.29.1 → 0.30.0 since the baseline"


def test_a_bonus_token_counted_otherwise_is_told_from_drift() -> None:
    shifted = tuple(replace(move, now=move.before - 1.0) for move in moves())
    (cause,) = causes(fallen(moves=shifted, identity_changes={"version": ("0.8.5", "0.9.0")}))
    assert cause.sentence == (
        "version 0.8.5 → 0.9.0; every prompt moved by -1.00 tokens (spread 0.000): "
        "the bonus token is counted otherwise, nothing drifted"
    )


def test_a_dead_drafter_is_told_by_its_first_position() -> None:
    cause = only(Evidence(source="request", survival=(0.018, 0.001)))
    assert (cause.kind, cause.strength) == (Kind.DRAFTER, Strength.STRONG)
    assert cause.sentence.startswith("1.8% of steps had their first draft token accepted")


def test_other_numbers_of_prompt_tokens_mean_another_template_and_weaken_the_target() -> None:
    longer = moves(prompt_tokens=47, prompt_tokens_before=frozenset({40}))
    found = causes(fallen(moves=longer, outputs=OTHER))
    assert [(cause.kind, cause.strength) for cause in found] == [
        (Kind.TEMPLATE, Strength.STRONG),
        (Kind.TARGET, Strength.WEAK),
    ]
    assert found[0].sentence == (
        "24 of 24 prompts have other numbers of tokens than in the baseline's runs (+7 at the median): "
        "the chat template, thinking mode or tokenizer is another"
    )


def test_prompts_of_the_same_tokens_say_nothing_of_the_template() -> None:
    assert causes(fallen(moves=moves(prompt_tokens=40, prompt_tokens_before=frozenset({40, 41})))) == ()


@pytest.mark.parametrize(("replica", "strength"), [(REPLICA, Strength.STRONG), ("http://b:8000", Strength.WEAK)])
def test_a_replica_that_differs_is_a_cause_where_it_is_the_one_that_fell(replica: str, strength: Strength) -> None:
    estimate = paired_estimate([-0.22, -0.23] * 12, 0.015, 3)
    difference = ReplicaDifference(replica, 34, ("http://a:8000", "http://c:8000"), (28, 36), "request", estimate)
    cause = only(fallen(replica_difference=difference))
    assert (cause.kind, cause.strength) == (Kind.REPLICA, strength)
    assert cause.sentence.startswith(
        f"only {replica}: -20.1% (95 % interval -23.0% to -17.2%) against 2 other replicas"
    )


def test_only_warm_runs_falling_points_at_the_prefix_cache_before_the_drafter() -> None:
    warm = [replace(run, cache="warm") for run in past(*[(1.9, -0.2)] * 6)]
    cold = past(*[(2.4, -0.01)] * 6)
    recent = tuple((cold if number % 2 else warm)[number] for number in range(6))
    found = causes(fallen(outputs=SAME, recent=recent))
    assert [cause.kind for cause in found] == [Kind.PREFIX_CACHE, Kind.DRAFTER]
    assert (
        found[0].sentence
        == "only warm runs fell: -20.0% over 3 runs since run 1, cold runs meanwhile -1.0% over 3 runs"
    )


def test_prompts_from_the_cache_falling_alone_point_at_the_prefix_cache() -> None:
    halves = moves(-0.3, 12, cached_tokens=32) + moves(-0.01, 12, cached_tokens=0)
    cause = only(fallen(moves=halves))
    assert (cause.kind, cause.strength) == (Kind.PREFIX_CACHE, Strength.STRONG)
    assert cause.sentence == "12 prompts read from the prefix cache -30.0%, 12 prompts that were not -1.0%"


def test_only_runs_at_load_falling_points_at_the_load() -> None:
    recent = tuple(
        replace(run, load=BUSY if run.change == -0.2 else CALM)
        for run in past((1.9, -0.2), (2.4, -0.01), *[(2.4, -0.01), (1.9, -0.2)] * 2)
    )
    found = causes(fallen(recent=recent, baseline_loads=(CALM, Load(running=2, waiting=0))))
    assert [(cause.kind, cause.strength) for cause in found] == [(Kind.LOAD, Strength.STRONG)]
    assert found[0].sentence == (
        "only runs at more load than the baseline's fell: -20.0% over 3 runs since run 1, the others meanwhile -1.0% "
        "over 3 runs; requests running 12, at most 2 in the baseline's runs; "
        "waiting 3, at most 0 in the baseline's runs"
    )


def test_more_load_without_a_calm_run_since_is_only_named_as_different() -> None:
    recent = tuple(replace(run, load=BUSY) for run in past((1.9, -0.2), (1.9, -0.2)))
    cause = only(fallen(recent=recent, baseline_loads=(CALM,)))
    assert (cause.kind, cause.strength) == (Kind.LOAD, Strength.WEAK)
    assert cause.sentence.endswith("no run without that load since to compare with")


def test_a_verdict_of_which_one_run_had_no_more_load_than_the_baseline_does_not_name_it() -> None:
    trip, *confirmations = past(*[(1.9, -0.2)] * 3)
    recent = (replace(trip, load=CALM), *(replace(run, load=BUSY) for run in confirmations))
    assert causes(fallen(recent=recent, run_ids=(1, 2, 3), baseline_loads=(CALM,))) == ()
    assert only(fallen(recent=recent, run_ids=(2, 3), baseline_loads=(CALM,))).kind is Kind.LOAD


def test_a_cost_is_not_told_when_any_run_of_the_verdict_had_more_load() -> None:
    trip, *confirmations = past(*[(1.9, -0.2)] * 3)
    speeds = {"tokens_per_second": 80.0, "baseline_tokens_per_second": (100.0,), "baseline_loads": (CALM,)}
    calm = tuple(replace(run, load=CALM) for run in confirmations)
    loaded = fallen(recent=(replace(trip, load=BUSY), *calm), run_ids=(1, 2, 3), **speeds)
    assert lost_money(loaded, 4.0, 1) is None
    cost = lost_money(replace(loaded, run_ids=(2, 3)), 4.0, 1)
    assert cost is not None
    assert cost["per_hour"] == pytest.approx(1.0)


def test_a_step_in_time_at_load_is_not_taken_for_the_load() -> None:
    calm = [replace(run, load=CALM) for run in past(*[(2.4, -0.01)] * 4)]
    busy = [replace(run, load=BUSY) for run in past(*[(1.9, -0.2)] * 4)]
    assert only(fallen(recent=(*calm, *busy), baseline_loads=(CALM,))).strength is Strength.WEAK


def start_of(*lengths: float, at: int, number: int = 0) -> tuple[PastRun, ...]:
    """Runs of one start of the server, each an hour after the last; the server started `at` hours after START."""
    began = START + timedelta(hours=at)
    return tuple(
        PastRun(
            number + n,
            REPLICA,
            began + timedelta(hours=n, minutes=5),
            length,
            None,
            server_started_at=began.timestamp(),
        )
        for n, length in enumerate(lengths)
    )


def test_acceptance_that_declines_with_uptime_and_is_healed_by_a_restart_points_at_the_uptime() -> None:
    decline = [3.07 - 0.05 * n for n in range(10)]
    recent = start_of(*decline, at=0) + start_of(*decline, at=20)
    cause = causes(fallen(recent=recent, outputs=SAME))[0]
    assert (cause.kind, cause.strength) == (Kind.UPTIME, Strength.STRONG)
    assert cause.sentence == (
        "AL 3.07 → 2.62 by request over 9.0 h since the server started, little by little; "
        "the start before ended at 2.62, the restart brought it back to 3.07"
    )


def test_a_decline_within_the_only_start_known_is_less_sure() -> None:
    cause = only(fallen(recent=start_of(*[3.07 - 0.05 * n for n in range(10)], at=0)))
    assert (cause.kind, cause.strength) == (Kind.UPTIME, Strength.MODERATE)


@pytest.mark.parametrize("after", [1, 4, 6, 9])
def test_a_step_while_the_server_runs_is_no_decline(after: int) -> None:
    assert causes(fallen(recent=start_of(*[3.07] * after, *[2.4] * (10 - after), at=0))) == ()


def test_a_step_is_no_decline_whatever_the_noise_and_a_decline_is_found_in_it() -> None:
    """With the noise of docs/statistics.md, 2.5 percent of a run's length; the drop is 20 percent either way."""
    generator = np.random.default_rng(7)

    def found(shape: list[float]) -> int:
        noisy = [[3.0 * length * math.exp(generator.normal(0, 0.0255)) for length in shape] for _ in range(300)]
        return sum(bool(causes(fallen(recent=start_of(*lengths, at=0)))) for lengths in noisy)

    for runs in (8, 10, 16):
        assert found([1.0] * (runs - 3) + [0.8] * 3) == 0
    assert found([1 - 0.2 * run / 23 for run in range(24)]) > 270


def test_a_server_that_is_always_low_after_its_start_is_told_as_young() -> None:
    young = start_of(1.9, 3.4, 3.4, at=0) + start_of(1.9, 3.4, at=10) + start_of(1.9, at=20)
    cause = only(fallen(recent=young))
    assert (cause.kind, cause.strength) == (Kind.UPTIME, Strength.STRONG)
    assert cause.sentence == (
        "the server had been up for 5 min; in the first hour after 2 earlier starts AL was 1.90, later 3.40 by request"
    )


def test_a_young_server_whose_earlier_starts_were_well_is_no_cause() -> None:
    assert causes(fallen(recent=start_of(3.4, 3.4, at=0) + start_of(1.9, at=10))) == ()


def by_length(*changes: float) -> tuple[PromptMove, ...]:
    return tuple(
        PromptMove(f"q{n:02}", 2.4, 2.4 * (1 + change), prompt_tokens=100 * (n + 1)) for n, change in enumerate(changes)
    )


def test_only_long_prompts_falling_points_at_the_context_length() -> None:
    found = causes(fallen(moves=by_length(*[-0.01] * 8, *[-0.2] * 8, *[-0.5] * 8), outputs=SAME))
    assert [cause.kind for cause in found] == [Kind.CONTEXT_LENGTH, Kind.DRAFTER]
    assert found[0].sentence == "8 prompts of 1,700 to 2,400 tokens -50.0%, 8 prompts of 100 to 800 -1.0%"


def test_prompts_that_fall_alike_say_nothing_of_their_length() -> None:
    assert causes(fallen(moves=by_length(*[-0.2] * 24))) == ()


def test_organic_acceptance_that_moved_while_probes_held_is_the_traffic_mix() -> None:
    organic = OrganicMove(2.6, 2.1, 50_000, 40_000)
    cause = only(Evidence(change=-0.008, source="request", organic=organic))
    assert (cause.kind, cause.strength) == (Kind.TRAFFIC_MIX, Strength.STRONG)
    assert cause.sentence == (
        "organic acceptance length, of all traffic, 2.60 → 2.10 (-19.2%) while the same prompts held (-0.8% by request)"
    )


def test_organic_acceptance_is_no_cause_where_probes_fell_too_or_little_was_read() -> None:
    organic = OrganicMove(2.6, 2.1, 50_000, 40_000)
    assert causes(fallen(organic=organic)) == ()
    assert causes(Evidence(change=-0.008, other_changes={"math": -0.3}, organic=organic)) == ()
    assert causes(Evidence(change=-0.008, organic=OrganicMove(2.6, 2.1, 50_000, 9_999))) == ()
    assert causes(Evidence(change=-0.008, organic=OrganicMove(2.6, 2.4, 50_000, 40_000))) == ()


def test_organic_acceptance_that_rose_while_probes_held_is_the_mix_as_well() -> None:
    organic = OrganicMove(2.1, 2.6, 50_000, 40_000)
    assert [cause.kind for cause in causes(Evidence(change=0.008, organic=organic))] == [Kind.TRAFFIC_MIX]
    assert causes(Evidence(change=0.2, organic=organic)) == (), "what probes gained too is not the mix"


def test_of_traffic_that_did_not_change_chance_alone_names_a_mix_in_few_cases() -> None:
    """Answers of a hundred steps, 25 percent between prompts: as many as are asked for, and a tenth of that."""
    generator, cases = np.random.default_rng(7), 2000
    for steps, least, most in ((ORGANIC_STEPS, 0.0, 0.01), (ORGANIC_STEPS // 10, 0.3, 0.45)):
        answers = generator.lognormal(math.log(2.4), 0.25, (cases, 2, steps // 100)).mean(axis=2)
        moves = [OrganicMove(before, after, ORGANIC_STEPS, ORGANIC_STEPS) for before, after in answers.tolist()]
        named = sum(bool(causes(Evidence(change=0.0, organic=move))) for move in moves)
        assert least <= named / cases <= most


def test_of_runs_that_nothing_happened_to_few_have_a_drafter_blamed() -> None:
    """One in eight lies 3 percent below by noise alone."""
    generator, noise = np.random.default_rng(7), Noise()
    blamed = below = runs = 0
    for _ in range(100):
        baseline = baseline_values([logs_as_values(draw(noise, generator)) for _ in range(10)])
        reference = Reference(1, ALIKE, baseline.values, baseline.run_sigma, baseline.runs)
        for _ in range(20):
            candidate = Candidate(2, ALIKE, logs_as_values(draw(noise, generator)))
            estimate = judge_run(candidate, reference, Line("acceptance_length", 0.15)).estimate
            assert estimate is not None
            found = Evidence(change=estimate.change, change_interval=estimate.change_interval, outputs=SAME)
            runs, below = runs + 1, below + (estimate.change <= -LEVEL)
            blamed += bool(causes(found))
    assert below / runs > 0.1
    assert blamed / runs < 0.02


def draw(noise: Noise, generator: np.random.Generator) -> list[float]:
    """Logs of one run's values, a shock common to them included."""
    found: list[float] = (noise.prompts((24,), generator) + noise.shocks((1,), generator)).tolist()
    return found


def logs_as_values(logs: list[float]) -> dict[str, float]:
    return {f"q{number:02}": math.exp(log) for number, log in enumerate(logs)}


def test_a_confirmed_change_is_explained_however_wide_its_interval() -> None:
    assert causes(fallen(change=-0.05, outputs=SAME, change_interval=(-0.11, 0.02))) == ()
    assert only(fallen(change=-0.05, outputs=SAME)).kind is Kind.DRAFTER


def test_a_cause_is_one_document() -> None:
    assert Cause(Kind.LOAD, Strength.WEAK, "…").as_dict() == {"kind": "load", "strength": "weak", "sentence": "…"}
