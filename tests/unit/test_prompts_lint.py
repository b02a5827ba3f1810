"""What makes a prompt set unfit to show a regression."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.prompts.lint import Problem, lint
from monitor.prompts.sets import Prompt, PromptSet, bundled_directory, content_hash, load_prompt_sets

SETS = load_prompt_sets(bundled_directory())
BASE = SETS["coding"].prompts[:30]


def prompt_set(*prompts: Prompt, domain: str = "coding") -> PromptSet:
    return PromptSet(domain, prompts, content_hash(prompts))


def with_more(*turns: str) -> PromptSet:
    more = (Prompt(f"new-{number}", "coding", f"new {number}", (turn,)) for number, turn in enumerate(turns, start=1))
    return prompt_set(*BASE, *more)


@pytest.mark.parametrize("domain", list(SETS))
def test_the_bundled_sets_have_no_problem(domain: str) -> None:
    assert lint(SETS[domain]) == []


def test_a_prompt_of_another_category_is_named() -> None:
    changed = (replace(BASE[0], category="writing"), *BASE[1:])
    assert lint(prompt_set(*changed)) == [
        Problem(BASE[0].question_id, "category", "its category is 'writing', but its file is coding.jsonl")
    ]


def test_the_case_of_a_category_does_not_matter() -> None:
    assert lint(prompt_set(*(replace(prompt, category="Coding") for prompt in BASE))) == []


@pytest.mark.parametrize("again", ["Explain how a B-tree splits.", "explain, how A   B-TREE splits!"])
def test_a_copy_is_named_with_its_original(again: str) -> None:
    problems = lint(with_more("Explain how a B-tree splits.", again))
    assert problems == [Problem("new-2", "duplicate", "asks the same as new-1")]


def test_prompts_that_differ_only_in_numbers_are_near_duplicates() -> None:
    problems = lint(with_more("Sum the first 100 primes in C.", "Sum the first 2500 primes in C."))
    assert problems == [Problem("new-2", "near-duplicate", "differs from new-1 only in numbers")]


def test_a_text_with_one_sentence_changed_is_a_near_duplicate() -> None:
    text = "\n".join(SETS["rag"].prompts[0].turns)
    (problem,) = lint(with_more(text, text + " Answer in one short paragraph, please, and in French."))
    assert (problem.question_id, problem.rule) == ("new-2", "near-duplicate")
    assert problem.message == "shares 99% of its 5-word sequences with new-1"


def test_the_same_context_with_another_question_is_a_near_duplicate() -> None:
    text = "\n".join(SETS["rag"].prompts[0].turns)
    problems = lint(with_more(text + "\nWho wrote it?", text + "\nWhen does it end, and what follows?"))
    assert [(problem.question_id, problem.rule) for problem in problems] == [("new-2", "near-duplicate")]


def test_a_copy_in_a_script_without_spaces_is_found() -> None:
    first = "灯台守が浜辺で手紙の入った瓶を見つけ、返事を書こうと決める短い物語を書いてください。"
    (problem,) = lint(with_more(first, first.replace("短い", "長い")))
    assert (problem.question_id, problem.rule) == ("new-2", "near-duplicate")


def test_prompts_without_words_are_still_told_apart() -> None:
    assert lint(with_more("☃ → ☂ ?", "1 + 1 = ?", "2 + 3 = ?")) == [
        Problem("new-3", "near-duplicate", "differs from new-2 only in numbers")
    ]


def test_two_prompts_on_one_subject_are_not_near_duplicates() -> None:
    assert lint(with_more("Explain how a B-tree splits.", "Explain how a B-tree merges two of its leaves.")) == []


def test_random_text_is_named_with_what_gave_it_away() -> None:
    letters = " ".join("".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=6)) for n in range(40))
    assert lint(with_more(letters)) == [
        Problem("new-1", "random-text", "looks like random text: letters that are all equally common")
    ]


def test_random_prompts_too_short_to_be_judged_alone_are_judged_together() -> None:
    chance = random.Random(1)
    vocabulary = sorted(
        {word for s in SETS.values() for p in s.prompts for word in p.turns[0].split() if word.isalpha()}
    )
    drawn = [" ".join(chance.sample(vocabulary, 20)) for _ in range(30)]
    prompts = [Prompt(f"r-{number}", "coding", f"s{number}", (text,)) for number, text in enumerate(drawn)]
    problems = lint(prompt_set(*prompts))
    assert problems == [
        Problem(
            None,
            "random-text",
            "the 30 short prompts together look like random text: words that never recur",
        )
    ]


@pytest.mark.parametrize(("count", "rules"), [(23, ["too-few"]), (24, [])])
def test_a_set_has_at_least_24_prompts(count: int, rules: list[str]) -> None:
    assert [problem.rule for problem in lint(prompt_set(*BASE[:count]))] == rules


def test_too_few_prompts_says_how_many_and_why() -> None:
    assert lint(prompt_set(*BASE[:10])) == [
        Problem(None, "too-few", "has 10 prompts; with fewer than 24 a regression goes unseen too often")
    ]


def test_a_set_of_few_sub_categories_is_not_varied() -> None:
    prompts = [replace(prompt, sub_category=f"kind {number % 3}") for number, prompt in enumerate(BASE)]
    assert lint(prompt_set(*prompts)) == [
        Problem(None, "low-diversity", "only 3 sub-categories; at least 4 are wanted")
    ]


def test_a_set_mostly_of_one_sub_category_is_not_varied() -> None:
    prompts = [replace(prompt, sub_category="sorting") for prompt in BASE[:20]] + list(BASE[20:])
    assert lint(prompt_set(*prompts)) == [
        Problem(None, "low-diversity", "more than half of the prompts are of one sub-category, 'sorting'")
    ]


def test_a_set_without_sub_categories_is_not_judged_by_them() -> None:
    assert lint(prompt_set(*(replace(prompt, sub_category="") for prompt in BASE))) == []


def test_a_set_that_always_begins_alike_is_not_varied() -> None:
    prompts = [replace(prompt, turns=("Write a function that " + prompt.turns[0],)) for prompt in BASE[:12]]
    assert lint(prompt_set(*prompts, *BASE[12:])) == [
        Problem(None, "low-diversity", "12 of 30 prompts begin with 'write a function that'")
    ]


def test_a_set_made_from_one_template_is_not_varied() -> None:
    animals = ["cat", "dog", "owl", "elk", "fox", "yak", "emu", "bat", "hen", "ant", "bee", "cow", "pig", "rat", "ram"]
    animals += ["ape", "eel", "cod", "jay", "koi", "asp", "doe", "zebra", "horse", "otter", "mouse"]
    turns = [
        f"{animal.title()}s are in the picture. Describe how the {animal} looks, where the {animal} lives, what it "
        f"eats, who hunts it, and how a painter of the last century would have painted the {animal} in a landscape."
        for animal in animals
    ]
    prompts = [Prompt(f"t-{number}", "coding", f"s{number}", (turn,)) for number, turn in enumerate(turns)]
    problems = lint(prompt_set(*prompts))
    (unvaried,) = (problem for problem in problems if problem.rule == "low-diversity")
    assert unvaried.question_id is None
    assert re.fullmatch(
        r"the prompts repeat each other: together they compress to (9|1\d)% of their size", unvaried.message
    )


def test_every_problem_is_told_at_once() -> None:
    broken = (replace(BASE[0], category="math"), BASE[1], replace(BASE[1], question_id="copy"))
    assert [(problem.question_id, problem.rule) for problem in lint(prompt_set(*broken))] == [
        (BASE[0].question_id, "category"),
        ("copy", "duplicate"),
        (None, "too-few"),
        (None, "low-diversity"),
    ]


def test_every_rule_is_explained_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text(encoding="utf-8")
    for rule in ("category", "duplicate", "near-duplicate", "random-text", "too-few", "low-diversity"):
        assert f"| `{rule}` |" in text
