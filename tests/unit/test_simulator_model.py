from __future__ import annotations

import math
import statistics
from itertools import islice

import pytest

from monitor.errors import UsageError
from monitor.sim.model import END_OF_TEXT, VOCABULARY, VOCABULARY_SIZE, Drafter, Target, fingerprint, prompt_token_ids

PROMPTS = [f"prompt number {n}" for n in range(300)]


def acceptance_length(
    drafter: Drafter, prompt: str, salt: str = "", *, domain: str = "default", steps: int = 100
) -> float:
    drafted = [a for d, a in islice(drafter.steps(prompt, domain, salt), steps) if d]
    return 1 + sum(drafted) / len(drafted)


def test_the_same_prompt_drafter_and_salt_give_the_same_steps() -> None:
    first, again = (list(islice(Drafter().steps("hello", "math", "1"), 50)) for _ in range(2))
    assert first == again


def test_another_drafter_accepts_in_another_pattern() -> None:
    old, new = Drafter(name="models/old"), Drafter(name="models/new")
    assert list(islice(old.steps("hello", "math", "1"), 50)) != list(islice(new.steps("hello", "math", "1"), 50))


def test_without_run_noise_every_replay_counts_the_same() -> None:
    quiet = Drafter(run_noise_ratio=0.0)
    assert len({acceptance_length(quiet, "hello", salt) for salt in "abcdef"}) == 1


def test_replays_of_a_prompt_differ_by_a_few_percent() -> None:
    spreads = [
        statistics.stdev(math.log(acceptance_length(Drafter(), prompt, str(run), steps=400)) for run in range(12))
        for prompt in PROMPTS[:20]
    ]
    assert 0.015 < statistics.mean(spreads) < 0.045


def test_prompts_differ_by_about_a_quarter() -> None:
    spread = statistics.stdev(math.log(Drafter().expected_acceptance_length(prompt, "math")) for prompt in PROMPTS)
    assert 0.19 < spread < 0.29


def test_the_steps_agree_with_the_expected_acceptance_length() -> None:
    drafter = Drafter(run_noise_ratio=0.0)
    for prompt in PROMPTS[:10]:
        measured = acceptance_length(drafter, prompt, steps=20_000)
        assert measured == pytest.approx(drafter.expected_acceptance_length(prompt, "math"), rel=0.02)


def test_without_a_spread_the_expected_length_is_that_of_the_given_acceptance() -> None:
    drafter = Drafter(default_acceptance=(0.5, 0.4), num_speculative_tokens=3, prompt_spread_ratio=0.0)
    assert drafter.expected_acceptance_length("any", "any") == pytest.approx(1 + 0.5 + 0.5 * 0.4 + 0.5 * 0.4 * 0.4)


def test_a_lower_acceptance_of_a_domain_shows_on_its_prompts_and_on_no_other() -> None:
    healthy = Drafter()
    ill = healthy.with_acceptance("coding", (0.6, 0.5, 0.4, 0.4))
    ratios = [
        acceptance_length(ill, prompt, domain="coding") / acceptance_length(healthy, prompt, domain="coding")
        for prompt in PROMPTS[:50]
    ]
    assert max(ratios) < 0.98
    assert 0.65 < statistics.mean(ratios) < 0.85
    assert [acceptance_length(ill, p, domain="math") for p in PROMPTS] == [
        acceptance_length(healthy, p) for p in PROMPTS
    ]


def test_certain_rejection_and_certain_acceptance_stay_certain() -> None:
    assert acceptance_length(Drafter(default_acceptance=(0.0,)), "x") == 1.0
    assert acceptance_length(Drafter(default_acceptance=(1.0,)), "x") == 5.0


def test_ngram_finds_a_draft_on_a_share_of_the_steps() -> None:
    steps = list(islice(Drafter(method="ngram").steps("x", "math", ""), 10_000))
    assert sum(drafted > 0 for drafted, _ in steps) / len(steps) == pytest.approx(0.37, abs=0.02)
    assert {step for step in steps if not step[0]} == {(0, 0)}


def test_suffix_drafts_vary_in_length_and_hold_what_was_accepted() -> None:
    steps = list(islice(Drafter(method="suffix", num_speculative_tokens=8).steps("x", "math", ""), 500))
    assert {drafted for drafted, _ in steps} == set(range(1, 9))
    assert all(accepted <= drafted for drafted, accepted in steps)


def test_no_method_never_drafts() -> None:
    plain = Drafter(method=None)
    assert list(islice(plain.steps("x", "math", ""), 3)) == [(0, 0)] * 3
    assert plain.k == 0


def test_a_shorter_answer_is_the_beginning_of_a_longer_one() -> None:
    assert Target().output("hello", 20) == Target().output("hello", 40)[:20]


def test_another_target_answers_otherwise() -> None:
    assert Target("models/a").output("hello", 20) != Target("models/b").output("hello", 20)


def test_some_prompts_end_by_themselves_and_only_those_end_with_the_end_token() -> None:
    answers = [Target().output(prompt, 500) for prompt in PROMPTS]
    stopped = [answer for answer in answers if answer[-1] == END_OF_TEXT]
    assert 0.15 < len(stopped) / len(answers) < 0.35
    assert all(40 <= len(answer) <= 400 for answer in stopped)
    assert all(len(answer) == 500 for answer in answers if answer[-1] != END_OF_TEXT)
    assert all(Target().output(p, 500, ignore_eos=True)[-1] != END_OF_TEXT for p in PROMPTS[:20])
    assert all(len(Target().output(p, 500, min_tokens=300)) >= 300 for p in PROMPTS[:20])


def test_every_token_has_a_text() -> None:
    assert len(VOCABULARY) == VOCABULARY_SIZE
    assert len(set(VOCABULARY[3:])) == VOCABULARY_SIZE - 3


def test_a_prompt_has_a_token_for_every_four_characters() -> None:
    assert len(prompt_token_ids("x" * 80)) == 20
    assert len(prompt_token_ids("")) == 1


def test_the_fingerprint_changes_with_what_a_real_one_changes_with() -> None:
    target, drafter = Target(), Drafter()
    original = fingerprint("0.32.0", target, drafter)
    assert original.startswith("vllm-0.32.0-")
    assert fingerprint("0.32.0", target, Drafter(num_speculative_tokens=7)) == original
    assert fingerprint("0.33.0", target, drafter) != original
    assert fingerprint("0.32.0", Target("models/other"), drafter) != original
    assert fingerprint("0.32.0", target, Drafter(name="models/other")) != original
    assert fingerprint("0.32.0", target, Drafter(method=None)) != original
    ngram, suffix = (fingerprint("0.32.0", target, Drafter(method=method)) for method in ("ngram", "suffix"))
    assert ngram == suffix != original


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "medusa"}, "use one of draft_model, eagle, ngram, suffix"),
        ({"num_speculative_tokens": 0}, "must be 1 to 64"),
        ({"acceptance": {"math": (1.2,)}}, "acceptance of 'math'"),
        ({"default_acceptance": ()}, "one or more numbers"),
    ],
)
def test_an_impossible_drafter_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Drafter(**wrong)  # type: ignore[arg-type]
