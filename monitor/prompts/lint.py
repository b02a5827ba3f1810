"""Refuses prompt sets that could not show a regression: copies, random text, too few, too much alike."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from monitor.prompts.gibberish import why_random
from monitor.prompts.sets import Prompt, PromptSet
from monitor.prompts.words import words, words_and_numbers

FEWEST_PROMPTS = 24  # a true drop of 15 percent is paged with p = .96 from 24 prompts, .87 from 12
SHINGLE_WORDS = 5
ALIKE_RATIO = 0.6
FEWEST_SUB_CATEGORIES = 4
MOST_OF_ONE_SUB_CATEGORY_RATIO = 0.5
MOST_OF_ONE_OPENING_RATIO = 0.3
OPENING_WORDS = 4
# Sets written by people compress to .35 and more of their size, sets made from one template to .05–.2.
LEAST_COMPRESSION_RATIO = 0.25
SHORT_WORDS = 60


@dataclass(frozen=True)
class Problem:
    """Why a set is refused: at one prompt, or as a whole when `question_id` is None; `rule` is a stable word."""

    question_id: str | None
    rule: str
    message: str


def lint(prompt_set: PromptSet) -> list[Problem]:
    """Everything wrong with the set, prompt by prompt and then as a whole; an empty list lets it be used."""
    return [
        *_category(prompt_set),
        *_copies(prompt_set),
        *_random_text(prompt_set),
        *_too_few(prompt_set),
        *_low_diversity(prompt_set),
    ]


def _category(prompt_set: PromptSet) -> Iterator[Problem]:
    for prompt in prompt_set.prompts:
        if prompt.category.casefold() != prompt_set.domain.casefold():
            message = f"its category is {prompt.category!r}, but its file is {prompt_set.domain}.jsonl"
            yield Problem(prompt.question_id, "category", message)


def _copies(prompt_set: PromptSet) -> Iterator[Problem]:
    """A copy adds no evidence, but counts as if it did. The later one of a pair is named."""
    contents = [words_and_numbers(_text(prompt)) or [_text(prompt)] for prompt in prompt_set.prompts]
    bare = [["#" if word.isnumeric() else word for word in content] for content in contents]
    alike = _alike(contents)
    for later, prompt in enumerate(prompt_set.prompts):
        for earlier in range(later):
            first = prompt_set.prompts[earlier].question_id
            if contents[earlier] == contents[later]:
                yield Problem(prompt.question_id, "duplicate", f"asks the same as {first}")
            elif bare[earlier] == bare[later]:
                yield Problem(prompt.question_id, "near-duplicate", f"differs from {first} only in numbers")
            elif (ratio := alike.get((earlier, later), 0.0)) >= ALIKE_RATIO:
                shown = f"shares {ratio:.0%} of its {SHINGLE_WORDS}-word sequences with {first}"
                yield Problem(prompt.question_id, "near-duplicate", shown)


def _alike(contents: list[list[str]]) -> dict[tuple[int, int], float]:
    """Jaccard similarity of the shingles of each pair (earlier, later) that has any in common."""
    shingles = [_shingles(content) for content in contents]
    owners: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for owner, own in enumerate(shingles):
        for shingle in own:
            owners[shingle].append(owner)
    common = Counter(pair for sharing in owners.values() for pair in combinations(sharing, 2))
    return {
        (earlier, later): count / (len(shingles[earlier]) + len(shingles[later]) - count)
        for (earlier, later), count in common.items()
    }


def _shingles(content: list[str]) -> set[tuple[str, ...]]:
    last = max(1, len(content) - SHINGLE_WORDS + 1)
    return {tuple(content[start : start + SHINGLE_WORDS]) for start in range(last)}


def _random_text(prompt_set: PromptSet) -> Iterator[Problem]:
    judged = [(prompt, why_random(_text(prompt))) for prompt in prompt_set.prompts]
    for prompt, reason in judged:
        if reason:
            yield Problem(prompt.question_id, "random-text", f"looks like random text: {reason}")
    # What is too short to be judged alone gives itself away together.
    short = [_text(prompt) for prompt, reason in judged if not reason and len(words(_text(prompt))) < SHORT_WORDS]
    if len(short) >= FEWEST_PROMPTS / 2 and (reason := why_random("\n".join(short))):
        yield Problem(None, "random-text", f"the {len(short)} short prompts together look like random text: {reason}")


def _too_few(prompt_set: PromptSet) -> Iterator[Problem]:
    count = len(prompt_set.prompts)
    if count < FEWEST_PROMPTS:
        message = f"has {count} prompts; with fewer than {FEWEST_PROMPTS} a regression goes unseen too often"
        yield Problem(None, "too-few", message)


def _low_diversity(prompt_set: PromptSet) -> Iterator[Problem]:
    count = len(prompt_set.prompts)
    topics = Counter(prompt.sub_category for prompt in prompt_set.prompts if prompt.sub_category)
    if topics and len(topics) < FEWEST_SUB_CATEGORIES:
        yield _unvaried(f"only {len(topics)} sub-categories; at least {FEWEST_SUB_CATEGORIES} are wanted")
    elif topics and topics.most_common(1)[0][1] > MOST_OF_ONE_SUB_CATEGORY_RATIO * count:
        yield _unvaried(f"more than half of the prompts are of one sub-category, {topics.most_common(1)[0][0]!r}")
    openings = Counter(" ".join(words(_text(prompt))[:OPENING_WORDS]) for prompt in prompt_set.prompts)
    opening, times = openings.most_common(1)[0]
    if times > max(2, MOST_OF_ONE_OPENING_RATIO * count):
        yield _unvaried(f"{times} of {count} prompts begin with {opening!r}")
    if (ratio := _compression_ratio(prompt_set)) < LEAST_COMPRESSION_RATIO:
        yield _unvaried(f"the prompts repeat each other: together they compress to {ratio:.0%} of their size")


def _unvaried(message: str) -> Problem:
    return Problem(None, "low-diversity", message)


def _compression_ratio(prompt_set: PromptSet) -> float:
    text = "\n".join(map(_text, prompt_set.prompts)).encode()
    return len(zlib.compress(text, 9)) / len(text)


def _text(prompt: Prompt) -> str:
    return "\n".join(prompt.turns)
