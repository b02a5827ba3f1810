"""Reference lines from other tools' files: each shape with its own meaning of a figure, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import UsageError
from monitor.exchange.references import EXPECTED, ReferenceLine, read_references

VLLM_BENCH = {
    "date": "20261101-101500",
    "model_id": "org/target",
    "max_concurrency": 16,
    "output_throughput": 812.5,
    "spec_decode_acceptance_rate": 50.0,
    "spec_decode_acceptance_length": 2.5,
    "spec_decode_num_drafts": 200,
    "spec_decode_draft_tokens": 600,
    "spec_decode_accepted_tokens": 300,
    "spec_decode_per_position_acceptance_rates": [0.7, 0.5, 0.3],
}
PROFILE = {
    "schema_version": "1.0",
    "measured": True,
    "method": "eagle3",
    "draft_checkpoint": {"id": "org/drafter"},
    "target_model": {"id": "org/target"},
    "num_speculative_tokens": 3,
    "marginal_accept_rates": [0.7, 0.5, 0.3],
    "mean_accept_length": 2.5,
    "per_category": {"coding": {"mean_accept_length": 2.8}, "math": {"mean_accept_length": 2.2}},
}
GOLDEN = """\
# key = num_speculative_tokens; value = golden AL
some-model-fp8:
  thinking_on:
    1: 1.86
    3: 3.08
  thinking_off:
    1: 1.93
"""
ACCEPTANCE = """\
subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,acceptance_at_pos_0,acceptance_at_pos_1
HumanEval,100.0,200.0,120.0,2.2,0.8,0.4
speedbench/qualitative/coding,10.0,20.0,5.0,1.5,0.2,0.05
"""


def written(directory: Path, name: str, content: Any) -> Path:
    path = directory / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def aiperf(accepted: dict[str, int], phase: str = "profiling", **changes: Any) -> str:
    steps = sum(accepted.values())
    tokens = sum(int(length) * count for length, count in accepted.items())
    record = {
        "engine": "vllm",
        "mean_acceptance_length": 1 + tokens / steps,
        "acceptance_histogram": accepted,
        "num_accepted_draft_tokens": tokens,
        "num_draft_tokens": 3 * steps,
        "num_spec_steps": steps,
        "num_spec_tokens": 3,
    }
    metadata = {"benchmark_phase": phase, "turn_index": 0}
    return json.dumps({"metadata": metadata, "metrics": {}, "spec_decode_acceptance": {**record, **changes}}) + "\n"


def test_vllm_bench_reports_its_rate_in_percent(tmp_path: Path) -> None:
    (line,) = read_references(written(tmp_path, "result.json", VLLM_BENCH), "coding")
    assert line == ReferenceLine(
        tool="vllm bench serve",
        domain="coding",
        model="org/target",
        label="concurrency 16",
        k=3,
        acceptance_length=2.5,
        acceptance_rate=0.5,
        survival=(0.7, 0.5, 0.3),
        steps=200,
    )


def test_aiperf_records_are_pooled_over_their_steps_without_the_warm_up(tmp_path: Path) -> None:
    records = [
        aiperf({"0": 1, "3": 1}),
        aiperf({"1": 6}),
        aiperf({"3": 50}, phase="warmup"),
        '{"metadata": {"benchmark_phase": "profiling"}, "metrics": {}, "error": {"code": 499}}\n',
    ]
    (line,) = read_references(written(tmp_path, "profile_export.jsonl", "".join(records)))
    assert (line.tool, line.domain, line.label, line.k, line.steps) == ("AIPerf", None, "vllm", 3, 8)
    assert (line.acceptance_length, line.acceptance_rate) == (1 + 9 / 8, 9 / 24)
    assert line.survival == (7 / 8, 1 / 8, 1 / 8)
    assert line.acceptance_length == 1 + sum(line.survival)


def test_aiperf_records_of_several_draft_lengths_have_no_k(tmp_path: Path) -> None:
    text = aiperf({"1": 2}) + aiperf({"1": 2}, num_spec_tokens=None)
    (line,) = read_references(written(tmp_path, "a.jsonl", text))
    assert line.k is None


def test_speculators_reports_a_line_per_subset(tmp_path: Path) -> None:
    human_eval, coding = read_references(written(tmp_path, "acceptance.csv", ACCEPTANCE))
    assert (human_eval.domain, human_eval.acceptance_length, human_eval.acceptance_rate) == ("HumanEval", 2.2, 0.6)
    assert (human_eval.k, human_eval.survival, human_eval.steps) == (2, (0.8, 0.4), 100)
    assert coding.domain == "coding"


def test_positions_that_contradict_the_length_are_not_taken_over(tmp_path: Path) -> None:
    _, coding = read_references(written(tmp_path, "acceptance.csv", ACCEPTANCE))
    assert (coding.acceptance_length, coding.survival) == (1.5, ())


def test_golden_lengths_are_a_line_per_model_mode_and_draft_length(tmp_path: Path) -> None:
    lines = read_references(written(tmp_path, "golden.yaml", GOLDEN))
    assert [(line.model, line.label, line.k, line.acceptance_length) for line in lines] == [
        ("some-model-fp8", "thinking_on", 1, 1.86),
        ("some-model-fp8", "thinking_on", 3, 3.08),
        ("some-model-fp8", "thinking_off", 1, 1.93),
    ]
    assert {line.domain for line in lines} == {"coding"}


def test_a_speculation_profile_has_its_whole_and_its_categories(tmp_path: Path) -> None:
    lines = read_references(written(tmp_path, "speculation_profile.json", PROFILE))
    assert [(line.domain, line.acceptance_length) for line in lines] == [(None, 2.5), ("coding", 2.8), ("math", 2.2)]
    assert (lines[0].model, lines[0].label, lines[0].k) == ("org/target", "eagle3", 3)
    assert [line.survival for line in lines] == [(0.7, 0.5, 0.3), (), ()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.xlsx", ""),
        ("result.json", {"output_throughput": 812.5}),
        ("result.json", [1, 2]),
        ("result.json", 5),
        ("result.json", {**VLLM_BENCH, "spec_decode_num_drafts": "many"}),
        ("result.json", {key: value for key, value in VLLM_BENCH.items() if key != "spec_decode_num_drafts"}),
        ("speculation_profile.json", {**PROFILE, "measured": False, "mean_accept_length": None}),
        ("profile_export.jsonl", '{"metadata": {}, "metrics": {}}\n'),
        ("profile_export.jsonl", aiperf({"1": 2}, acceptance_histogram=None)),
        ("acceptance.csv", "subset,acceptance\ncoding,2.0\n"),
        ("acceptance.csv", ""),
        ("golden.yaml", "thinking_on: 2.5\n"),
        ("golden.yaml", "a: [\n"),
        ("golden.yaml", ""),
    ],
)
def test_a_file_of_no_known_shape_is_refused_with_what_is_expected(tmp_path: Path, name: str, content: Any) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(UsageError) as refused:
        read_references(path)
    assert str(refused.value).startswith(str(path))
    assert EXPECTED in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_decode_acceptance_length": 0.0},
        {"spec_decode_acceptance_length": 4.5},
        {"spec_decode_acceptance_length": float("nan")},
        {"spec_decode_acceptance_rate": 130.0},
    ],
)
def test_a_figure_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        read_references(written(tmp_path, "result.json", {**VLLM_BENCH, **changes}))


def test_a_file_that_is_not_json_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not one JSON document"):
        read_references(written(tmp_path, "result.json", "{}\n{}\n"))


def test_nothing_that_judges_reads_reference_lines() -> None:
    root = Path(__file__).parents[2] / "monitor"
    readers = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if "reference_lines" in path.read_text("utf-8")
    }
    assert readers == {"store/measurement_tables.py", "store/references.py", "store/schema.py"}
    users = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if "store.references" in path.read_text("utf-8")
    }
    assert users == {"cli/references.py"}
