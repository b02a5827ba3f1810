"""Prompt sets from other projects' files: each shape, what is left out, and what is refused."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import PromptError, UsageError
from monitor.prompts.importing import EXPECTED, SPEED_BENCH_PLACEHOLDER, import_prompts
from monitor.prompts.lint import lint
from monitor.prompts.sets import bundled_directory, load_prompt_set

if TYPE_CHECKING:
    from pathlib import Path

OURS = {name: load_prompt_set(bundled_directory() / f"{name}.jsonl").prompts for name in ("qa", "coding")}


def records(name: str = "qa", count: int = 30, **changes: Any) -> list[dict[str, Any]]:
    """As SPEED-Bench, Spec-Bench and MT-Bench have them, with texts that the linter takes."""
    return [
        {"question_id": n, "category": name, "turns": list(prompt.turns), "reference": [""], **changes}
        for n, prompt in enumerate(OURS[name][:count], start=81)
    ]


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def share_gpt(path: Path, *conversations: list[tuple[str, str]]) -> Path:
    found = [
        {"id": f"c{n}", "conversations": [{"from": who, "value": text} for who, text in conversation]}
        for n, conversation in enumerate(conversations)
    ]
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def texts(path: Path, domain: str | None = None) -> list[tuple[str, ...]]:
    (found,) = import_prompts(path, domain)
    return [prompt.turns for prompt in found.prompt_set.prompts]


def test_json_lines_become_a_set_of_each_category(tmp_path: Path) -> None:
    rows = [*records("qa"), *[{**row, "question_id": f"c{row['question_id']}"} for row in records("coding")]]
    coding, qa = import_prompts(json_lines(tmp_path / "question.jsonl", rows))
    assert (coding.prompt_set.domain, qa.prompt_set.domain) == ("coding", "qa")
    assert (coding.problems, qa.problems, len(qa.prompt_set.prompts)) == ((), (), 30)
    assert qa.prompt_set.prompts[0].question_id == "81"
    assert qa.prompt_set.prompts[0].turns == OURS["qa"][0].turns


def test_speed_bench_is_read_from_parquet_with_its_sub_categories(tmp_path: Path) -> None:
    rows = [{**row, "question_id": f"id-{n}", "sub_category": f"s{n % 5}"} for n, row in enumerate(records())]
    (qa,) = import_prompts(parquet(tmp_path / "test.parquet", rows))
    assert [p.sub_category for p in qa.prompt_set.prompts[:3]] == ["s0", "s1", "s2"]
    assert (qa.prompt_set.prompts[1].question_id, qa.problems) == ("id-1", ())


def test_prompts_that_speed_bench_only_promises_are_left_out(tmp_path: Path) -> None:
    rows = records()
    rows[3]["turns"] = [f"{SPEED_BENCH_PLACEHOLDER} USING SPECDEC_BENCH"]
    (qa,) = import_prompts(parquet(tmp_path / "test.parquet", rows))
    assert [(p.question_id, p.rule) for p in qa.left_out] == [("84", "placeholder")]
    assert len(qa.prompt_set.prompts) == 29


def test_a_set_of_placeholders_is_refused_and_empty(tmp_path: Path) -> None:
    rows = records(count=3, turns=[SPEED_BENCH_PLACEHOLDER])
    (qa,) = import_prompts(json_lines(tmp_path / "a.jsonl", rows))
    assert (len(qa.left_out), qa.prompt_set.prompts, [p.rule for p in qa.problems]) == (3, (), ["too-few"])


def test_of_a_share_gpt_conversation_only_the_first_question_is_asked(tmp_path: Path) -> None:
    path = share_gpt(
        tmp_path / "sharegpt.json",
        [("system", "Be brief."), ("human", "Why does ice float?"), ("gpt", "Because."), ("human", "Why?")],
        [("gpt", "…and so on."), ("human", "Go on.")],
        [("user", "Who was Hypatia?")],
        [],
    )
    assert texts(path, "chat") == [("Why does ice float?",), ("Who was Hypatia?",)]
    (found,) = import_prompts(path, "chat")
    assert [p.question_id for p in found.prompt_set.prompts] == ["sharegpt-0001", "sharegpt-0003"]


def test_plain_text_has_a_prompt_on_each_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("Why does ice float?\nWho was Hypatia?\n", encoding="utf-8")
    assert texts(path, "qa") == [("Why does ice float?",), ("Who was Hypatia?",)]


def test_plain_text_with_blank_lines_has_a_prompt_in_each_block(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("Mend this:\n  x = 1\n\n \nWho was Hypatia?\n", encoding="utf-8")
    assert texts(path, "qa") == [("Mend this:\n  x = 1",), ("Who was Hypatia?",)]


def test_all_categories_together_become_sub_categories(tmp_path: Path) -> None:
    rows = [*records("qa", 40), *[{**row, "question_id": f"c{row['question_id']}"} for row in records("coding", 40)]]
    (found,) = import_prompts(json_lines(tmp_path / "a.jsonl", rows), "mixed", limit=40)
    prompts = found.prompt_set.prompts
    assert {p.category for p in prompts} == {"mixed"}
    assert [p.sub_category for p in prompts].count("qa") == [p.sub_category for p in prompts].count("coding") == 20


def test_a_prompt_that_asks_the_same_again_is_left_out(tmp_path: Path) -> None:
    rows = records()
    rows[5]["turns"] = rows[4]["turns"]
    (qa,) = import_prompts(json_lines(tmp_path / "a.jsonl", rows))
    assert [(p.question_id, p.rule) for p in qa.left_out] == [("86", "duplicate")]
    assert lint(qa.prompt_set) == []


def test_a_set_too_small_to_measure_says_so(tmp_path: Path) -> None:
    (qa,) = import_prompts(json_lines(tmp_path / "a.jsonl", records(count=10)))
    assert [p.rule for p in qa.problems] == ["too-few"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.xlsx", ""),
        ("a.jsonl", '{"prompt": "Why?"}'),
        ("a.jsonl", "Why?"),
        ("a.jsonl", ""),
        ("a.json", '{"conversations": []}'),
        ("a.json", '[{"messages": []}]'),
        ("a.json", '[{"conversations": [{"from": "human"}]}]'),
        ("a.txt", " \n"),
    ],
)
def test_a_file_of_no_known_shape_is_refused_with_what_is_expected(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PromptError) as refused:
        import_prompts(path, "qa")
    assert str(refused.value).startswith(str(path))
    assert EXPECTED in str(refused.value)


def test_parquet_with_other_columns_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [{"prompt": "Why?"}])
    with pytest.raises(PromptError, match="row 1: question_id and category and turns missing") as refused:
        import_prompts(path)
    assert EXPECTED in str(refused.value)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        import_prompts(path)


def test_without_pyarrow_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", records())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install 'specwatch\[parquet\]'"):
        import_prompts(path)


@pytest.mark.parametrize("name", ["a.json", "a.txt"])
def test_a_shape_without_categories_needs_a_domain(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(PromptError, match="--domain"):
        import_prompts(path)


def test_an_id_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="more than once"):
        import_prompts(parquet(tmp_path / "a.parquet", records(question_id="same")))


def specwatch_import(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["prompts", "import", *map(str, arguments)])


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    source, out = json_lines(tmp_path / "a.jsonl", records()), tmp_path / "sets"
    result = specwatch_import(source, "--out", out)
    assert (result.exit_code, result.stdout) == (0, f"qa: 30 prompts, {out / 'qa.jsonl'}\n")
    (imported,) = import_prompts(source)
    assert load_prompt_set(out / "qa.jsonl") == imported.prompt_set


def test_a_set_that_is_there_is_overwritten_only_by_force(tmp_path: Path) -> None:
    source, mine = json_lines(tmp_path / "a.jsonl", records()), tmp_path / "qa.jsonl"
    mine.write_text("mine", encoding="utf-8")
    refused = specwatch_import(source, "--out", tmp_path)
    assert "qa.jsonl is there already; nothing was written" in str(refused.exception)
    assert mine.read_text(encoding="utf-8") == "mine"
    assert specwatch_import(source, "--out", tmp_path, "--force").exit_code == 0
    assert len(load_prompt_set(mine).prompts) == 30


def test_a_refused_set_is_written_only_when_that_is_wanted(tmp_path: Path) -> None:
    source, out = json_lines(tmp_path / "a.jsonl", records(count=10)), tmp_path / "sets"
    refused = specwatch_import(source, "--out", out)
    assert "1 of 1 sets are refused" in str(refused.exception)
    assert "qa: 10 prompts, refused\n  too-few: has 10 prompts" in refused.stdout
    assert list(out.iterdir()) == []
    assert specwatch_import(source, "--out", out, "--keep-refused").exit_code == 0
    assert len(load_prompt_set(out / "qa.jsonl").prompts) == 10


def test_a_domain_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", records())
    assert "'a_b' can" in str(specwatch_import(source, "--out", tmp_path, "--domain", "A/b").exception)
