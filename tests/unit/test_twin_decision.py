"""What a gate makes of its candidate beside the plain twin: speedup, outputs, and how they join acceptance."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from monitor.cli.gate_report import report
from monitor.config.units import parse_lossless
from monitor.core.gate import GateReason, Look
from monitor.core.gate_twin import (
    ALPHA,
    SLACK_RATIO,
    GateTwin,
    TwinDomain,
    lossless_ending,
    mixed_speedup,
    pooled_outputs,
    speedup_ending,
)
from monitor.core.gate_verdict import GateDomain, GateSide, GateThresholds, GateVerdict
from monitor.core.outputs import Agreement, Outputs
from monitor.core.speedup import Speedup
from monitor.core.statistics import RatioEstimate
from monitor.core.sweep import point as sweep_point
from tests.factories import START

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MIN_PROMPTS = 12


def ratio(low: float, high: float, n: int = 24) -> RatioEstimate:
    return RatioEstimate((low * high) ** 0.5, low, high, n, 3)


def outputs(ours: Sequence[int], own: Sequence[int], places: tuple[int, ...] = ()) -> Outputs:
    """Of each prompt how often of three its output was the twin's, and how often of two the twin repeated its own."""

    def agreed(same: Sequence[int], of: int) -> Agreement:
        by_prompt = {f"q{number}": (one, of) for number, one in enumerate(same)}
        return Agreement(sum(same), of * len(same), places if of == 3 else (), by_prompt)

    return Outputs(agreed(ours, 3), agreed(own, 2))


def lossless(found: Outputs | None, required: float | str) -> tuple[GateReason, str]:
    """Of a gate of one domain."""
    return lossless_ending({"math": found}, required, MIN_PROMPTS)


@pytest.mark.parametrize(
    ("low", "high", "least", "reason"),
    [
        (1.10, 1.30, 1.1, GateReason.NO_REGRESSION),
        (1.09, 1.30, 1.1, GateReason.SPEEDUP_UNDECIDED),
        (1.00, 1.10, 1.1, GateReason.SPEEDUP_UNDECIDED),
        (0.90, 1.09, 1.1, GateReason.TOO_SLOW),
        (0.90, 0.99, 1.0, GateReason.TOO_SLOW),
    ],
)
def test_speedup_passes_or_fails_only_with_its_whole_interval(
    low: float, high: float, least: float, reason: GateReason
) -> None:
    found, text = speedup_ending(ratio(low, high), least)
    assert found is reason
    assert text.endswith(f"over 24 prompts in 3 passes, {least:g} asked")


def test_the_mix_is_the_weighted_geometric_mean_with_errors_added_in_squares() -> None:
    mix = mixed_speedup({"math": ratio(1.9, 2.1), "qa": ratio(0.95, 1.05)}, {"math": 3, "qa": 1})
    assert mix is not None
    assert mix.ratio == pytest.approx((1.9 * 2.1) ** 0.375 * (0.95 * 1.05) ** 0.125)
    assert mix.low < mix.ratio < mix.high
    assert mix.high / mix.low < 2.1 / 1.9
    assert (mix.n, mix.repeats) == (48, 3)
    assert mixed_speedup({"math": ratio(1.9, 2.1)}, {"math": 3, "qa": 1}) is None


@pytest.mark.parametrize(
    ("ours", "own", "reason"),
    [
        ([3] * 27, [2] * 27, GateReason.NO_REGRESSION),
        ([3] * 26, [2] * 26, GateReason.OUTPUTS_UNDECIDED),
        ([3] * 230 + [0] * 20, [2] * 230 + [0] * 20, GateReason.NO_REGRESSION),
        ([3] * 225 + [0] * 25, [2] * 250, GateReason.OUTPUTS_UNDECIDED),
        ([3] * 20 + [0] * 4, [2] * 24, GateReason.OUTPUTS_UNDECIDED),
        ([3] * 150 + [0] * 100, [2] * 240 + [0] * 10, GateReason.LOSSY),
        ([0] * 24, [2] * 24, GateReason.LOSSY),
    ],
    ids=[
        "all alike",
        "all of too few alike",
        "both flip alike",
        "flips about as allowed",
        "few prompts",
        "flips much more",
        "never alike",
    ],
)
def test_beside_the_twins_own_agreement_the_interval_of_the_difference_decides(
    ours: Sequence[int], own: Sequence[int], reason: GateReason
) -> None:
    assert lossless(outputs(ours, own), "twin")[0] is reason


@pytest.mark.parametrize(
    ("flips", "many", "few"),
    [
        (0.03, (1.00, 0.00), (0.64, 0.00)),
        (0.06, (0.98, 0.00), (0.34, 0.00)),
        (0.13, (0.05, 0.05), (0.06, 0.04)),
        (0.25, (0.00, 0.99), (0.00, 0.48)),
        (0.50, (0.00, 1.00), (0.00, 1.00)),
    ],
)
def test_the_table_of_the_documentation_is_what_the_simulation_gives(
    flips: float, many: tuple[float, float], few: tuple[float, float]
) -> None:
    rng = random.Random(7)

    def shares(prompts: int) -> tuple[float, float]:
        decided = []
        for _ in range(400):
            ours, own = ([0 if rng.random() < p else n for _ in range(prompts)] for p, n in ((flips, 3), (0.03, 2)))
            decided.append(lossless(outputs(ours, own), "twin")[0].decision.value)
        return decided.count("pass") / 400, decided.count("fail") / 400

    assert shares(264) == pytest.approx(many, abs=0.06)
    assert shares(36) == pytest.approx(few, abs=0.08)


@pytest.mark.parametrize("prompts", [12, 20, 26, 30, 36, 72])
def test_of_few_prompts_too_what_differs_by_all_that_is_allowed_is_hardly_ever_a_pass(prompts: int) -> None:
    """Beside a twin that repeats all of its own: then the spread of what few prompts show is that of luck."""
    rng = random.Random(5)
    passed = sum(
        lossless(outputs([0 if rng.random() < SLACK_RATIO else 3 for _ in range(prompts)], [2] * prompts), "twin")[0]
        is GateReason.NO_REGRESSION
        for _ in range(400)
    )
    assert passed / 400 <= ALPHA + 0.03


def test_prompts_that_the_twin_answered_but_once_say_nothing_of_its_own_agreement() -> None:
    found = outputs([3] * 36, [2] * 36)
    found = replace(found, twin_and_itself=Agreement(4, 4, (), {"q0": (2, 2), "q1": (2, 2)}))
    reason, text = lossless(found, "twin")
    assert reason is GateReason.OUTPUTS_UNKNOWN
    assert text.startswith("outputs can be compared on 2 prompts of math, 12 are needed of each domain: ")
    assert lossless(found, 1.0)[0] is GateReason.NO_REGRESSION


@pytest.mark.parametrize(
    ("required", "reason"),
    [(0.95, GateReason.NO_REGRESSION), (0.96, GateReason.LOSSY), (1.0, GateReason.LOSSY)],
)
def test_a_share_is_counted_over_the_prompts_there_are(required: float, reason: GateReason) -> None:
    found, text = lossless(outputs([3] * 19 + [0], [2] * 20, (4, 40, 90)), required)
    assert found is reason
    assert text == (
        "57/60 greedy outputs are the plain twin's, which repeats 40/40 of its own; the others part at tokens 4 to 90, "
        f"half of them by 40; compared on 20 prompts of math; that is 95.0%, {required:.1%} asked"
    )


@pytest.mark.parametrize(("found", "prompts"), [(None, "0 prompts"), (outputs([3] * 11, [2] * 11), "11 prompts")])
@pytest.mark.parametrize("required", [0.5, "twin"])
def test_outputs_of_too_few_prompts_of_any_domain_are_unknown_and_no_pass(
    found: Outputs | None, prompts: str, required: float | str
) -> None:
    domains = {"math": outputs([3] * 200, [2] * 200), "qa": found, "chat": outputs([3] * 12, [2] * 12)}
    reason, text = lossless_ending(domains, required, MIN_PROMPTS)
    assert reason is GateReason.OUTPUTS_UNKNOWN
    assert reason.decision.value == "not_measurable"
    assert text == (
        f"outputs can be compared on {prompts} of qa, 12 are needed of each domain: only greedy answers whose token "
        "ids both servers show can be"
    )
    assert lossless_ending({**domains, "qa": domains["chat"]}, required, MIN_PROMPTS)[0] is GateReason.NO_REGRESSION


def test_of_each_domain_it_is_said_how_many_prompts_were_compared() -> None:
    even = {domain: outputs([3] * 24, [2] * 24) for domain in ("math", "qa")}
    assert "of its own; compared on 24 prompts of each of 2 domains; that is" in lossless_ending(even, 0.9, 12)[1]
    uneven = {"qa": outputs([3] * 12, [2] * 12), "math": outputs([3] * 24, [2] * 24)}
    assert "compared on 24 prompts of math, 12 of qa; that is" in lossless_ending(uneven, 0.9, 12)[1]


def test_outputs_are_pooled_over_domains_prompt_by_prompt() -> None:
    found = pooled_outputs({"math": outputs([3, 2], [2, 2], (9,)), "qa": outputs([3], [1])})
    assert found is not None
    assert (found.replica_and_twin.same, found.replica_and_twin.compared) == (8, 9)
    assert found.replica_and_twin.by_prompt == {"math q0": (3, 3), "math q1": (2, 3), "qa q0": (3, 3)}
    assert (found.twin_and_itself.same, found.twin_and_itself.compared) == (5, 6)
    assert pooled_outputs({}) is None


def test_a_share_of_outputs_is_read_as_people_write_it() -> None:
    assert [parse_lossless(text) for text in ("twin", "95%", 0.95, "100%", 1)] == ["twin", 0.95, 0.95, 1.0, 1.0]
    with pytest.raises(ValueError, match="write for example 95%, 100% or twin"):
        parse_lossless("110%")


FINE = TwinDomain(GateReason.NO_REGRESSION, "speedup 1.5")


def verdict(
    acceptance: GateReason, beside: Mapping[str, TwinDomain], lossless: float | str | None = None
) -> GateVerdict:
    weights = {"math": 0.5, "qa": 0.5}
    domains = [
        GateDomain(name, acceptance, "as it is", 24, "h", "request", looks=(Look(2, 24, -0.01, 0.01, 0.03),))
        for name in weights
    ]
    return GateVerdict(
        route="chat",
        against="production",
        candidate=GateSide("http://candidate:8000", None),
        reference=GateSide("http://vllm-0:8000", None),
        thresholds=GateThresholds("acceptance_length", 0.1, 12, 900.0, weights, 1.1, lossless),
        concurrency=4,
        sampling={},
        started_at=START,
        finished_at=START,
        domains=tuple(domains),
        twin=GateTwin("http://plain:8000", 1.1, lossless, MIN_PROMPTS, weights, None, beside),
    )


def test_all_of_it_must_pass() -> None:
    found = verdict(GateReason.NO_REGRESSION, {"math": FINE, "qa": FINE})
    assert found.exit_code == 0
    assert found.ending[1].endswith("and each is at least 1.1 × as fast as its plain twin")
    assert found.as_dict()["domains"][0]["text"] == "as it is; speedup 1.5"


@pytest.mark.parametrize("beside", [{}, {"math": FINE}])
def test_a_domain_that_was_not_measured_beside_the_twin_is_no_pass(beside: Mapping[str, TwinDomain]) -> None:
    found = verdict(GateReason.NO_REGRESSION, beside)
    assert (found.exit_code, found.ending[0]) == (13, GateReason.SPEEDUP_INVALID)


def test_what_acceptance_says_stands_before_all_else() -> None:
    found = verdict(GateReason.UNDECIDED, {"math": TwinDomain(GateReason.TOO_SLOW, "slow"), "qa": FINE})
    assert (found.ending[0], found.as_dict()["domains"][0]["reason"]) == (GateReason.UNDECIDED, "undecided")


def test_outputs_that_are_required_and_unknown_are_no_pass() -> None:
    found = verdict(GateReason.NO_REGRESSION, {"math": FINE, "qa": FINE}, lossless=0.9)
    assert (found.exit_code, found.ending[0]) == (13, GateReason.OUTPUTS_UNKNOWN)
    assert "outputs_unknown" in report(found.as_dict(), "junit")


def beside_twin(speedup: RatioEstimate, outputs: Outputs | None = None) -> TwinDomain:
    point = replace(sweep_point(4, (), ()), speedup=speedup)
    found = Speedup("", "", "", "", "h", 4, {}, START, START, point=point, outputs=outputs)
    return TwinDomain(*speedup_ending(speedup, 1.1), found)


def test_a_domain_without_outputs_is_named_where_they_are_only_reported() -> None:
    math = beside_twin(ratio(1.2, 1.4), outputs([3] * 24, [2] * 24))
    found = verdict(GateReason.NO_REGRESSION, {"math": math, "qa": beside_twin(ratio(1.2, 1.4))})
    assert found.exit_code == 0
    assert found.as_dict()["twin"]["outputs"]["text"].endswith("of its own; compared on 24 prompts of math, 0 of qa")


def test_outputs_that_were_not_measured_have_the_reason_of_their_domain() -> None:
    math = beside_twin(ratio(1.2, 1.4), outputs([3] * 24, [2] * 24))
    late = TwinDomain(GateReason.TIMED_OUT, "not measured beside its plain twin within 8 s")
    found = verdict(GateReason.NO_REGRESSION, {"math": math, "qa": late}, lossless="twin")
    assert (found.exit_code, found.ending[0]) == (11, GateReason.TIMED_OUT)
    told = found.as_dict()["twin"]["outputs"]
    assert (told["reason"], told["text"]) == ("timed_out", "qa: not measured beside its plain twin within 8 s")


@pytest.mark.parametrize(
    "reason", [reason for reason in GateReason if reason.value.startswith(("too_slow", "speedup", "identity", "timed"))]
)
@pytest.mark.parametrize("format_", ["junit", "markdown", "table"])
def test_a_domain_has_the_reason_that_its_twin_gave_it_in_every_report(reason: GateReason, format_: str) -> None:
    document = verdict(GateReason.NO_REGRESSION, {"math": TwinDomain(reason, "why so"), "qa": FINE}).as_dict()
    assert (document["reason"], document["exit_code"]) == (reason.value, {"fail": 10, "inconclusive": 11}.get(
        reason.decision.value, 13
    ))  # fmt: skip
    text = report(document, format_)
    assert reason.value in text
    assert "math: why so" in text or 'message="why so"' in text


def test_the_share_of_outputs_that_is_asked_is_not_rounded() -> None:
    found = verdict(GateReason.NO_REGRESSION, {"math": FINE, "qa": FINE}, lossless=0.995)
    assert "and 99.5% of its outputs" in " ".join(report(found.as_dict(), "table").split())


def test_the_mix_of_speedups_counts_as_a_domain_does() -> None:
    found = verdict(
        GateReason.NO_REGRESSION, {"math": beside_twin(ratio(0.97, 1.2)), "qa": beside_twin(ratio(0.97, 1.11))}
    )
    document = found.as_dict()
    assert (document["verdict"], document["reason"]) == ("inconclusive", "speedup_undecided")
    assert document["mix"]["reason"] == "speedup_undecided"
    assert document["twin"]["speedup"]["reason"] == "speedup_undecided"
    assert document["text"].endswith("(and 2 others like it)")
