"""Prompt sets from files of other projects: SPEED-Bench, Spec-Bench, MT-Bench, ShareGPT and plain text."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from monitor.errors import PromptError
from monitor.exchange.files import read_json, read_parquet, read_text
from monitor.prompts.lint import Problem, lint
from monitor.prompts.sets import Prompt, PromptSet, content_hash, load_prompt_set, prompt_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

EXPECTED = (
    "SPEED-Bench (.parquet with question_id, category and turns), Spec-Bench or MT-Bench (.jsonl with the same keys), "
    "ShareGPT (.json, a list of objects with conversations), or plain text (.txt, a prompt on each line, or in "
    "each block between blank lines)"
)
SPEED_BENCH_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""SPEED-Bench is published with this in place of every prompt that its source does not let it pass on."""
ASKING = frozenset({"human", "user"})
OF_ONE_PROMPT = frozenset({"duplicate", "near-duplicate", "random-text"})


@dataclass(frozen=True)
class ImportedSet:
    """A set made of another project's prompts. `left_out`: prompts that would harm it, which it does not have.

    `problems`: why the set as a whole would measure badly; empty for one that may be used.
    """

    prompt_set: PromptSet
    left_out: tuple[Problem, ...]
    problems: tuple[Problem, ...]


def import_prompts(path: Path, domain: str | None = None, limit: int = 80) -> list[ImportedSet]:
    """The sets in the file, one of each of its categories, or all its prompts as one set of `domain`; linted.

    Each has at most `limit` prompts: the first of its file, taken in turn from the categories that were put together.
    Raises PromptError for a file in no known shape, one without categories when no domain is given, and one without
    prompts.
    """
    prompts = list(_read(path, domain))
    if not prompts:
        raise PromptError(f"{path}: has no prompts; expected is {EXPECTED}")
    if len(prompts) != len({prompt.question_id for prompt in prompts}):
        raise PromptError(f"{path}: has question_ids that are there more than once")
    if domain is not None:
        prompts = [replace(p, category=domain, sub_category=p.category or p.sub_category) for p in prompts]
    by_domain: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        name = domain_name(prompt.category)
        by_domain[name].append(replace(prompt, category=name))
    return [_made(name, found, limit) for name, found in sorted(by_domain.items())]


def domain_name(category: str) -> str:
    """The category as the name of a domain and of its file: lower case, and `_` for what is no letter or digit."""
    return re.sub(r"[^\w-]+", "_", category.casefold()).strip("_") or "unnamed"


def _read(path: Path, domain: str | None) -> Iterable[Prompt]:
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise PromptError(f"{path}: the name says nothing of its shape; expected is {EXPECTED}")
    if path.suffix.casefold() in WITHOUT_CATEGORIES and domain is None:
        raise PromptError(f"{path}: has no categories; name the domain of its prompts with --domain")
    return reader(path)


def _speed_bench(path: Path) -> Iterable[Prompt]:
    rows = read_parquet(path)
    for number, row in enumerate(rows, start=1):
        try:
            yield prompt_from(row)
        except ValueError as error:
            raise PromptError(f"{path}: row {number}: {error}; expected is {EXPECTED}") from None


def _json_lines(path: Path) -> Iterable[Prompt]:
    try:
        return load_prompt_set(path).prompts
    except PromptError as error:
        first = str(error).partition("\n")[0]
        raise PromptError(f"{first}; expected is {EXPECTED}") from None


def _share_gpt(path: Path) -> Iterator[Prompt]:
    """The first question of each conversation: later ones answer what another model said.

    Conversations that begin with an answer, as long ones do that were cut in pieces, are left out.
    """
    document = read_json(path)
    if not isinstance(document, list) or not all(_is_conversation(item) for item in document):
        raise PromptError(f"{path}: is no list of objects with conversations; expected is {EXPECTED}")
    for number, item in enumerate(document, start=1):
        said = [part for part in item["conversations"] if part["from"] != "system"]
        if said and said[0]["from"] in ASKING and said[0]["value"].strip():
            yield _numbered(path, number, said[0]["value"])


def _is_conversation(item: Any) -> bool:
    parts = item.get("conversations") if isinstance(item, dict) else None
    return isinstance(parts, list) and all(
        isinstance(part, dict) and isinstance(part.get("from"), str) and isinstance(part.get("value"), str)
        for part in parts
    )


def _plain_text(path: Path) -> Iterator[Prompt]:
    text = read_text(path).strip()
    blocks = re.split(r"\n[ \t]*\r?\n\s*", text)
    for number, block in enumerate(blocks if len(blocks) > 1 else text.split("\n"), start=1):
        if block.strip():
            yield _numbered(path, number, block.strip())


def _numbered(path: Path, number: int, text: str) -> Prompt:
    """A prompt without an id of its own is named after its file and place there."""
    return prompt_from({"question_id": f"{path.stem}-{number:04}", "category": "", "turns": [text]})


READERS: dict[str, Callable[[Path], Iterable[Prompt]]] = {
    ".parquet": _speed_bench,
    ".jsonl": _json_lines,
    ".json": _share_gpt,
    ".txt": _plain_text,
}
WITHOUT_CATEGORIES = frozenset({".json", ".txt"})


def _first(prompts: list[Prompt], limit: int) -> list[Prompt]:
    """The first `limit`, in the order of the file, with each sub-category as often as the others where it can be."""
    by_topic: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_topic[prompt.sub_category].append(prompt)
    in_turn = [p for together in zip_longest(*by_topic.values()) for p in together if p is not None]
    chosen = {id(prompt) for prompt in in_turn[:limit]}
    return [prompt for prompt in prompts if id(prompt) in chosen]


def _made(domain: str, prompts: list[Prompt], limit: int) -> ImportedSet:
    left_out = [
        Problem(prompt.question_id, "placeholder", "its text must be fetched with the scripts of SPEED-Bench")
        for prompt in prompts
        if any(turn.startswith(SPEED_BENCH_PLACEHOLDER) for turn in prompt.turns)
    ]
    missing = {problem.question_id for problem in left_out}
    chosen = _first([prompt for prompt in prompts if prompt.question_id not in missing], limit)
    while chosen:
        # Leaving a prompt out changes what is alike or random together, so the rest is judged anew.
        found = PromptSet(domain, tuple(chosen), content_hash(tuple(chosen)))
        problems = lint(found)
        harmful = {p.question_id: p for p in problems if p.question_id and p.rule in OF_ONE_PROMPT}
        if not harmful:
            return ImportedSet(found, tuple(left_out), tuple(problems))
        left_out += harmful.values()
        chosen = [prompt for prompt in chosen if prompt.question_id not in harmful]
    nothing = Problem(None, "too-few", "no prompt is left")
    return ImportedSet(PromptSet(domain, (), content_hash(())), tuple(left_out), (nothing,))
