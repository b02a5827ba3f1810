"""Reading prompt sets and what identifies them."""

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import PromptError, SpecwatchError
from monitor.prompts.sets import Prompt, bundled_directory, content_hash, load_prompt_set, load_prompt_sets
from monitor.resources import resource_directory

ELEVEN = [
    "coding",
    "humanities",
    "math",
    "multilingual",
    "qa",
    "rag",
    "reasoning",
    "roleplay",
    "stem",
    "summarization",
    "writing",
]
FIRST = {"question_id": "qa-1", "category": "qa", "sub_category": "nature", "turns": ["Why does ice float?"]}
SECOND = {
    "question_id": "qa-2",
    "category": "qa",
    "sub_category": "history",
    "turns": ["Who was Hypatia?", "And then?"],
}


def written(directory: Path, *records: Any, name: str = "qa.jsonl") -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(PromptError) as caught:
        load_prompt_set(path)
    return [line.removeprefix(str(path)) for line in str(caught.value).splitlines()]


def test_a_set_keeps_the_order_of_its_file_and_takes_its_name(tmp_path: Path) -> None:
    prompt_set = load_prompt_set(written(tmp_path, SECOND, FIRST))
    assert prompt_set.domain == "qa"
    assert prompt_set.prompts == (
        Prompt("qa-2", "qa", "history", ("Who was Hypatia?", "And then?")),
        Prompt("qa-1", "qa", "nature", ("Why does ice float?",)),
    )


def test_a_file_of_another_benchmark_drops_in(tmp_path: Path) -> None:
    record = {
        "question_id": 81,
        "category": "writing",
        "turns": ["Compose a blog post."],
        "reference": ["x"],
        "seed": 1,
    }
    prompt_set = load_prompt_set(written(tmp_path, record, name="writing.jsonl"))
    assert prompt_set.prompts == (Prompt("81", "writing", "", ("Compose a blog post.",)),)


def test_a_missing_sub_category_may_be_null(tmp_path: Path) -> None:
    assert load_prompt_set(written(tmp_path, FIRST | {"sub_category": None})).prompts[0].sub_category == ""


def test_the_hash_is_what_it_was_in_the_first_release() -> None:
    prompts = (Prompt("b", "qa", "", ("Zwei?", "Und?")), Prompt("a", "qa", "", ("Één “x”?\n",)))
    assert content_hash(prompts) == "b3210c26c8eec2eff6e32c742f95324f90b8ef2b69e9592022783e715ead3374"


@pytest.mark.parametrize(
    "records",
    [
        [SECOND, FIRST],
        [FIRST | {"category": "other", "sub_category": "x", "more": 1}, SECOND],
        ["", json.dumps(FIRST, indent=None, separators=(" , ", " : ")), json.dumps(SECOND, ensure_ascii=True), ""],
    ],
)
def test_the_hash_does_not_change_with_order_category_or_spelling_of_json(tmp_path: Path, records: list[Any]) -> None:
    plain = load_prompt_set(written(tmp_path, FIRST, SECOND))
    assert load_prompt_set(written(tmp_path, *records)).content_hash == plain.content_hash


@pytest.mark.parametrize(
    "record",
    [
        FIRST | {"turns": ["Why does ice float? "]},
        FIRST | {"turns": ["Why does ice float?", "Go on."]},
        FIRST | {"question_id": "qa-3"},
    ],
)
def test_the_hash_changes_with_what_a_model_is_asked(tmp_path: Path, record: dict[str, Any]) -> None:
    plain = load_prompt_set(written(tmp_path, FIRST, SECOND))
    assert load_prompt_set(written(tmp_path, record, SECOND)).content_hash != plain.content_hash


def test_the_hash_of_two_turns_is_not_that_of_one_with_both() -> None:
    two = (Prompt("a", "qa", "", ("x", "y")),)
    one = (Prompt("a", "qa", "", ('x","y',)),)
    assert content_hash(two) != content_hash(one)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"question_id": "a", ', "not valid JSON at column 22: Expecting property name enclosed in double quotes"),
        ("[1]", 'is not a JSON object; write {"question_id": …, "category": …, "turns": […]}'),
        ({"question_id": "a"}, "category and turns missing; every prompt has question_id, category and turns"),
        (
            {"category": "qa", "turns": ["x"]},
            "question_id missing; every prompt has question_id, category and turns",
        ),
        (FIRST | {"question_id": None}, "question_id is not a text or a whole number"),
        (FIRST | {"question_id": True}, "question_id is not a text or a whole number"),
        (FIRST | {"question_id": 1.5}, "question_id is not a text or a whole number"),
        (FIRST | {"question_id": " "}, "question_id is not a text or a whole number"),
        (FIRST | {"category": 7}, "category is not a text"),
        (FIRST | {"sub_category": ["x"]}, "sub_category is not a text"),
        (FIRST | {"turns": "Why?"}, "turns is not a list of at least one text"),
        (FIRST | {"turns": []}, "turns is not a list of at least one text"),
        (FIRST | {"turns": ["Why?", " \n"]}, "turn 2 is empty or not a text"),
        (FIRST | {"turns": [{"role": "user"}]}, "turn 1 is empty or not a text"),
        (
            r'{"question_id": "a", "category": "qa", "turns": ["\ud83d"]}',
            "turn 1 has half of a surrogate pair, which no model can be sent",
        ),
    ],
)
def test_a_broken_line_is_named_with_its_fault(tmp_path: Path, line: Any, problem: str) -> None:
    assert problems(written(tmp_path, SECOND, line)) == [f":2: {problem}"]


def test_nesting_without_end_is_a_broken_line_and_not_a_crash(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, "[" * 100_000))
    assert problem.startswith(":1: ")


def test_all_broken_lines_are_named_at_once(tmp_path: Path) -> None:
    assert problems(written(tmp_path, "{", SECOND, "", SECOND, FIRST | {"turns": []})) == [
        ":1: not valid JSON at column 2: Expecting property name enclosed in double quotes",
        ":4: question_id 'qa-2' is on line 2 too",
        ":5: turns is not a list of at least one text",
    ]


def test_a_number_and_a_text_are_the_same_id(tmp_path: Path) -> None:
    assert problems(written(tmp_path, FIRST | {"question_id": 7}, FIRST | {"question_id": "7"})) == [
        ":2: question_id '7' is on line 1 too"
    ]


def test_a_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    turn = "one\u2028two\x85three"
    assert load_prompt_set(written(tmp_path, FIRST | {"turns": [turn]})).prompts[0].turns == (turn,)


@pytest.mark.parametrize("prefix", ["", "\ufeff"])
def test_files_from_windows_are_read(tmp_path: Path, prefix: str) -> None:
    text = prefix + json.dumps(FIRST) + "\r\n" + json.dumps(SECOND) + "\r\n"
    (tmp_path / "qa.jsonl").write_bytes(text.encode())
    assert len(load_prompt_set(tmp_path / "qa.jsonl").prompts) == 2


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    assert problems(written(tmp_path, "", "  ")) == [": has no prompts"]


def test_text_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "qa.jsonl").write_bytes(json.dumps(FIRST).encode() + b"\n\xff\n")
    assert problems(tmp_path / "qa.jsonl") == [":2: is not text in UTF-8"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "qa.jsonl") == [": cannot be read: No such file or directory"]


def test_a_directory_holds_one_set_per_file(tmp_path: Path) -> None:
    written(tmp_path, SECOND, name="b.jsonl")
    written(tmp_path, FIRST, name="a.jsonl")
    (tmp_path / "README.md").write_text("not a set")
    sets = load_prompt_sets(tmp_path)
    assert list(sets) == ["a", "b"]
    assert [prompt_set.domain for prompt_set in sets.values()] == ["a", "b"]


def test_a_directory_names_the_broken_lines_of_all_its_files(tmp_path: Path) -> None:
    first, second = written(tmp_path, "{", name="a.jsonl"), written(tmp_path, "[]", name="b.jsonl")
    with pytest.raises(PromptError) as caught:
        load_prompt_sets(tmp_path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{first}:1", f"{second}:1"]


def test_a_directory_without_sets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        load_prompt_sets(tmp_path)
    assert str(caught.value) == f"{tmp_path}: no prompt sets here; a set is a file DOMAIN.jsonl"


def test_the_bundled_sets_are_the_eleven_with_at_least_32_prompts_each() -> None:
    sets = load_prompt_sets(bundled_directory())
    assert list(sets) == ELEVEN
    assert min(len(prompt_set.prompts) for prompt_set in sets.values()) >= 32


def test_a_resource_that_this_installation_lacks_is_told() -> None:
    with pytest.raises(SpecwatchError, match="this installation of Specwatch has no nonsense directory"):
        resource_directory("nonsense")


def test_a_wheel_finds_its_resources_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "monitor" / "_resources" / "probes").mkdir(parents=True)
    (tmp_path / "probes").mkdir()
    monkeypatch.setattr("monitor.resources._PACKAGE", tmp_path / "monitor")
    assert resource_directory("probes") == tmp_path / "monitor" / "_resources" / "probes"
