"""Prompt sets: the fixed prompts of one domain, read from JSONL and identified by their content."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.errors import PromptError
from monitor.prompts.request_keys import canonical, request_keys
from monitor.resources import resource_directory


@dataclass(frozen=True)
class Prompt:
    """One prompt; `turns` are what the user says, in order, the model answering in between.

    `request_keys` are sent with it: structured output and tools.
    """

    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    request_keys: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one domain in the order of their file; equal `content_hash` means comparable runs."""

    domain: str
    prompts: tuple[Prompt, ...]
    content_hash: str


def content_hash(prompts: tuple[Prompt, ...]) -> str:
    """SHA-256, in hex, of what a model is asked: the pairs of question_id and turns, sorted by question_id.

    Where a prompt has keys of the request they are the third of its pair. Categories, the order of lines and the way
    JSON is written do not count.
    """
    asked = sorted(_asked(prompt) for prompt in prompts)
    canonical = json.dumps(asked, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _asked(prompt: Prompt) -> tuple[str, list[str], str] | tuple[str, list[str]]:
    pair = (prompt.question_id, list(prompt.turns))
    return (*pair, canonical(prompt.request_keys)) if prompt.request_keys else pair


def bundled_directory() -> Path:
    """The directory of the prompt sets that come with Specwatch."""
    return resource_directory("probes")


def load_prompt_sets(directory: Path) -> dict[str, PromptSet]:
    """Every `DOMAIN.jsonl` in the directory, by domain, sorted.

    Raises PromptError with one line for each problem in any file.
    """
    files = sorted(directory.glob("*.jsonl"))
    if not files:
        raise PromptError(f"{directory}: no prompt sets here; a set is a file DOMAIN.jsonl")
    sets, problems = {}, []
    for file in files:
        try:
            sets[file.stem] = load_prompt_set(file)
        except PromptError as error:
            problems.append(str(error))
    if problems:
        raise PromptError("\n".join(problems))
    return sets


def load_prompt_set(path: Path) -> PromptSet:
    """The set in one JSONL file with `question_id`, `category`, `turns` and perhaps `sub_category` on each line.

    The names are those of MT-Bench, Spec-Bench and SPEED-Bench; `response_format`, `tools` and `tool_choice` are sent
    with the prompt. Other keys are ignored and numbers as ids are kept
    as text. The domain is the name of the file. Raises PromptError with one line `FILE:LINE: …` for each problem.
    """
    prompts: list[Prompt] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        first = first_seen.setdefault(prompt.question_id, number)
        if first != number:
            problems.append(f"{path}:{number}: question_id {prompt.question_id!r} is on line {first} too")
        prompts.append(prompt)
    if not prompts and not problems:
        problems.append(f"{path}: has no prompts")
    if problems:
        raise PromptError("\n".join(problems))
    return PromptSet(path.stem, tuple(prompts), content_hash(tuple(prompts)))


def _lines(path: Path) -> list[str]:
    try:
        # Not splitlines(), which also cuts at separators that JSON allows inside a string.
        return path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise PromptError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{path}:{line}: is not text in UTF-8") from None


def _prompt(line: str) -> Prompt:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON at column {error.colno}: {error.msg}") from None
    if not isinstance(record, dict):
        # Not a TypeError: the problems of all lines are collected as ValueError.
        raise ValueError('is not a JSON object; write {"question_id": …, "category": …, "turns": […]}')  # noqa: TRY004
    return prompt_from(record)


def prompt_from(record: Mapping[str, Any]) -> Prompt:
    """The prompt in an object with `question_id`, `category`, `turns` and perhaps `sub_category` and request keys.

    Raises ValueError saying what is wrong with it.
    """
    if missing := [key for key in ("question_id", "category", "turns") if key not in record]:
        raise ValueError(f"{' and '.join(missing)} missing; every prompt has question_id, category and turns")
    turns = _turns(record["turns"])
    return Prompt(
        question_id=_identifier(record["question_id"]),
        category=_word(record, "category"),
        sub_category=_word(record, "sub_category"),
        turns=turns,
        request_keys=request_keys(record, len(turns)),
    )


def write_prompt_set(prompt_set: PromptSet, directory: Path) -> Path:
    """Writes `DOMAIN.jsonl` into the directory, over one that is there; reading it gives an equal set back."""
    lines = [json.dumps(_record(prompt), ensure_ascii=False) for prompt in prompt_set.prompts]
    path = directory / f"{prompt_set.domain}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _record(prompt: Prompt) -> dict[str, Any]:
    keys = ("question_id", "category", "sub_category", "turns")
    return {key: getattr(prompt, key) for key in keys if getattr(prompt, key)} | dict(prompt.request_keys)


def _identifier(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError("question_id is not a text or a whole number")
    return str(value)


def _word(record: Mapping[str, Any], key: str) -> str:
    value = "" if record.get(key) is None else record[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a text")  # noqa: TRY004 - collected with the other problems of the line
    return value


def _turns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("turns is not a list of at least one text")
    for position, turn in enumerate(value, start=1):
        if not isinstance(turn, str) or not turn.strip():
            raise ValueError(f"turn {position} is empty or not a text")
        if any("\ud800" <= character <= "\udfff" for character in turn):
            raise ValueError(f"turn {position} has half of a surrogate pair, which no model can be sent")
    return tuple(value)
