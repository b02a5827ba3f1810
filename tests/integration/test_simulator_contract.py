"""The simulator and captures of a real vLLM 0.32 are held to one contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.register_assert_rewrite("tests.contract")

from monitor.sim import Drafter, ServerConfig, SimulatedServer  # noqa: E402
from tests import contract  # noqa: E402
from tests.contract import Expected  # noqa: E402

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "fixtures" / "vllm-0.32.0"
ALL = ROOT.parent / "shared" / "fixtures" / "vllm-0.32.0"

LOOKUP = {"ngram", "suffix"}
FLAGS = {
    "plain": Expected(k=0, timings=False),
    "draft": Expected(k=4),
    "deep_draft": Expected(k=4),
    "deep_plain": Expected(k=0, timings=False),
    "dp2": Expected(k=4),
    "eagle": Expected(k=3),
    "ngram": Expected(k=4, always_drafts=False),
    "suffix": Expected(k=8, always_drafts=False),
}
PROMPTS = [
    "What is 12 + 30?",
    "Write the times table of 7.",
    "Continue the text: You may",
    "def main(",
    "Why is it so?",
]


def captures(pattern: str) -> list[Path]:
    """Captures kept with these tests, then the wider collection where it is at hand."""
    return sorted(OWN.glob(pattern)) + sorted(ALL.glob(pattern))


def setup_of(name: str) -> str:
    return max((setup for setup in FLAGS if name.startswith(setup)), key=len)


@pytest.mark.parametrize("path", captures("sse/*.sse.txt"), ids=lambda path: path.stem)
def test_a_captured_stream_keeps_the_contract(path: Path) -> None:
    transcript = contract.read_capture(path)
    kind = "chat" if "chat" in path.name else "completion"
    contract.check_stream(transcript, kind, FLAGS[setup_of(path.name)])


@pytest.mark.parametrize("path", captures("*/metrics_*.txt"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_captured_metrics_page_keeps_the_contract(path: Path) -> None:
    engines = 2 if path.parent.name == "dp2" else 1
    contract.check_metrics(path.read_text(), FLAGS[path.parent.name], model="tiny", engines=engines)


@pytest.mark.parametrize("path", captures("errors.txt"), ids=lambda path: path.parents[2].name)
def test_captured_errors_keep_the_contract(path: Path) -> None:
    answers = contract.read_errors(path)
    for case in contract.ERRORS:
        contract.check_error(case, *answers[case.name], model="tiny", limit=1024, tokens=2000)
    contract.check_bad_json(*answers["bad json"])
    contract.check_answer(answers["structured json"][1], "chat")
    contract.check_answer(answers["prompt+max_tokens > max_model_len"][1], "completion")


@pytest.mark.parametrize("path", captures("*/models.json"), ids=lambda path: path.parent.name)
def test_captured_small_pages_keep_the_contract(path: Path) -> None:
    contract.check_models(json.loads(path.read_text()), "tiny")
    contract.check_version(json.loads(path.with_name("version.json").read_text()))


@pytest.mark.parametrize("path", sorted(ALL.glob("*/server_info.json")), ids=lambda path: path.parent.name)
def test_a_captured_configuration_keeps_the_contract(path: Path) -> None:
    contract.check_server_info(json.loads(path.read_text()), FLAGS[path.parent.name])


DRAFTERS = {
    "plain": Drafter(method=None),
    "draft": Drafter(),
    "eagle": Drafter(method="eagle", name="models/tiny-eagle", num_speculative_tokens=3),
    "ngram": Drafter(method="ngram"),
    "suffix": Drafter(method="suffix", num_speculative_tokens=8),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_simulator_keeps_the_contract(name: str) -> None:
    expected = FLAGS[name]
    config = ServerConfig(drafter=DRAFTERS[name], max_model_len=1024, per_request_timings=expected.timings)
    with SimulatedServer(config).run_in_thread() as url, httpx.Client(base_url=url) as client:
        contract.exercise(client, expected, PROMPTS)


@pytest.mark.parametrize(("counts", "timings"), [("none", True), ("none", False), ("summary", False)])
def test_the_simulator_keeps_the_contract_whatever_its_flags(counts: Any, timings: bool) -> None:
    config = ServerConfig(per_request_counts=counts, per_request_timings=timings)
    with SimulatedServer(config).run_in_thread() as url, httpx.Client(base_url=url) as client:
        contract.exercise(client, Expected(k=4, counts=counts, timings=timings), PROMPTS[:2])


def test_two_engines_of_the_simulator_keep_the_contract() -> None:
    with (
        SimulatedServer(ServerConfig(engines=2, dev_mode=True)).run_in_thread() as url,
        httpx.Client(base_url=url) as client,
    ):
        contract.exercise(client, Expected(k=4), PROMPTS[:2], engines=2)
        contract.check_server_info(client.get("/server_info?config_format=json").json(), Expected(k=4))
