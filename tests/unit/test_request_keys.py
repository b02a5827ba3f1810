"""Structured output and tools that a prompt brings with it: what is taken, what is refused, and what it identifies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.core.records import Sampling
from monitor.errors import PromptError
from monitor.prompts.request_keys import keys_of
from monitor.prompts.sets import Prompt, content_hash, load_prompt_set, write_prompt_set

if TYPE_CHECKING:
    from pathlib import Path

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": {"type": "object"}}}
PLAIN = {"question_id": "a", "category": "tools", "turns": ["How is the weather in Oslo?"]}


def written(directory: Path, *records: dict[str, Any]) -> Path:
    path = directory / "tools.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def test_the_keys_of_a_prompt_are_read_and_written_as_they_are(tmp_path: Path) -> None:
    keys = {"response_format": SCHEMA, "tools": [WEATHER], "tool_choice": "required"}
    found = load_prompt_set(written(tmp_path, {**PLAIN, **keys}))
    assert found.prompts == (Prompt("a", "tools", "", ("How is the weather in Oslo?",), keys),)
    assert load_prompt_set(write_prompt_set(found, tmp_path)) == found


def test_they_are_part_of_what_identifies_a_set_but_their_spelling_is_not(tmp_path: Path) -> None:
    plain = load_prompt_set(written(tmp_path, PLAIN)).content_hash
    constrained = load_prompt_set(written(tmp_path, {**PLAIN, "response_format": SCHEMA})).content_hash
    turned = dict(reversed(SCHEMA.items()))
    assert load_prompt_set(written(tmp_path, {**PLAIN, "response_format": turned})).content_hash == constrained
    assert constrained != plain


def test_a_set_without_them_has_the_hash_that_it_always_had(tmp_path: Path) -> None:
    # Of [["a",["How is the weather in Oslo?"]]]; another hash would part every baseline from its runs.
    always = "3da0f682c089d6780efe357ff67ec70ee70e73c70ab3abca9364c09098c00233"
    assert load_prompt_set(written(tmp_path, {**PLAIN, "tools": None})).content_hash == always


def test_the_same_prompt_twice_has_a_hash() -> None:
    prompt = Prompt("a", "tools", "", ("Hi",), {"tools": [WEATHER]})
    assert content_hash((prompt, prompt)) != content_hash((prompt,))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"response_format": "json"}, "response_format is not an object with a type"),
        ({"response_format": {"type": "json_schema"}}, "response_format has no schema; write"),
        ({"tools": []}, "tools is not a list of at least one tool"),
        ({"tools": [WEATHER, {"type": "function"}]}, "tool 2 has no name; write"),
        ({"tools": [WEATHER], "turns": ["One?", "Two?"]}, "has tools and 2 turns"),
        ({"tool_choice": "auto"}, "tool_choice is there without tools"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice 'any' is none of auto, none, required, nor a tool"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "news"}}},
            "tool_choice names none of the tools",
        ),
        ({"response_format": {"type": "json_object", "x": float("nan")}}, "a number that JSON cannot carry"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_file_and_line(
    tmp_path: Path, keys: dict[str, Any], problem: str
) -> None:
    path = written(tmp_path, PLAIN, {**PLAIN, "question_id": "b", **keys})
    with pytest.raises(PromptError) as caught:
        load_prompt_set(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert problem in str(caught.value)


def test_a_run_says_which_keys_its_prompts_brought_and_says_nothing_where_there_are_none() -> None:
    prompts = (Prompt("a", "t", "", ("Hi",), {"tools": [WEATHER]}), Prompt("b", "t", "", ("Hi",), {}))
    assert Sampling(prompt_keys=keys_of(prompts)).as_dict()["prompt_keys"] == ["tools"]
    assert "prompt_keys" not in Sampling().as_dict()


def test_they_are_shown_with_the_prompt(tmp_path: Path) -> None:
    written(tmp_path, {**PLAIN, "tools": [WEATHER]})
    shown = CliRunner().invoke(cli, ["prompts", "show", "tools", "--dir", str(tmp_path)]).stdout
    (document,) = json.loads(
        CliRunner().invoke(cli, ["prompts", "show", "tools", "--dir", str(tmp_path), "--format", "json"]).stdout
    )
    assert f"[tools] {json.dumps([WEATHER])}\n" in shown
    assert document["tools"] == [WEATHER]
