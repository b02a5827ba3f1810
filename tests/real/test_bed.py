"""The bed itself: each kind of server speculates, counts what it accepts and answers what the plain one answers."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.real.client import (
    ALL_PROMPTS,
    PROMPTS,
    Answer,
    acceptance_length,
    chat_body,
    counters_after,
    read_counters,
    stream_chat,
    stream_chats,
)
from tests.real.servers import DRAFT_TOKENS, ROOT, RealServer, ServerDiedError, realtime
from tests.real.variants import deep_target, graded_drafter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.real.pool import ServerPool
    from tests.real.tables import Tables


@pytest.fixture(scope="module")
def mortal_server(servers: ServerPool) -> Iterator[RealServer]:
    servers.stop_all()
    with RealServer("draft") as server:
        yield server


@pytest.fixture
def mortal(mortal_server: RealServer) -> RealServer:
    """A server apart from the shared ones, to be killed; started again on its port when an earlier test has."""
    return mortal_server if mortal_server.is_running else mortal_server.restart()


def test_a_plain_server_streams_tokens_and_no_counts_of_speculation(plain_answers: list[Answer]) -> None:
    for answer in plain_answers:
        assert answer.done
        assert answer.counts is None
        assert answer.usage is not None
        assert answer.usage["completion_tokens"] == len(answer.token_ids) > 0
        assert answer.chunk_tokens[0] == 1


def test_a_worse_drafter_is_accepted_less_in_every_domain(servers: ServerPool, tables: Tables) -> None:
    rows = []
    for noise in (0.4, 0.2, 0):  # ends with the server that the next tests use
        server = servers.get("draft", drafter=graded_drafter(noise)) if noise else servers.get("draft")
        answers = stream_chats(server.base_url, ALL_PROMPTS, concurrency=8)
        rows.append(acceptance_row(server, answers))
        tables.add("real vLLM: acceptance length by noise on the drafter", noise=noise, **rows[-1])
    for worse, better in itertools.pairwise(rows):
        assert all(worse[domain] < better[domain] for domain in [*PROMPTS, "all"])


def test_the_last_chunk_carries_counts_that_agree_with_each_other(speculative: RealServer) -> None:
    answer = stream_chat(speculative.base_url, "Write the times table of 7.")
    assert answer.done
    counts = answer.counts
    assert counts is not None
    k = DRAFT_TOKENS[speculative.kind]
    histogram = counts["acceptance_histogram"]
    assert len(histogram) == k + 1
    assert sum(histogram) == counts["num_spec_steps"] == len(counts["per_step_accepted"])
    assert sum(i * steps for i, steps in enumerate(histogram)) == counts["num_accepted_draft_tokens"] > 0
    assert counts["num_draft_tokens"] == sum(counts["per_step_drafted"]) <= k * counts["num_spec_steps"]


def test_the_tokens_of_a_stream_add_up_to_its_usage(speculative: RealServer) -> None:
    answer = stream_chat(speculative.base_url, "Write a Python function named read.")
    assert answer.usage is not None
    assert sum(answer.chunk_tokens) == answer.usage["completion_tokens"]


def test_per_request_counts_add_up_to_the_counters_exactly(speculative: RealServer, tables: Tables) -> None:
    before = read_counters(speculative.base_url)
    answers = stream_chats(speculative.base_url, ALL_PROMPTS, concurrency=8)
    change = counters_after(speculative.base_url, before, sum(len(answer.token_ids) for answer in answers))
    records = [answer.counts for answer in answers if answer.counts]
    assert sum(record["num_spec_steps"] for record in records) == change.drafts
    assert sum(record["num_draft_tokens"] for record in records) == change.drafted
    assert sum(record["num_accepted_draft_tokens"] for record in records) == change.accepted == sum(change.per_position)
    assert sum(len(answer.token_ids) for answer in answers) == change.generated
    tables.add("real vLLM: acceptance length by kind", **acceptance_row(speculative, answers))


def test_greedy_output_is_that_of_the_plain_server(plain_answers: list[Answer], speculative: RealServer) -> None:
    answers = stream_chats(speculative.base_url, ALL_PROMPTS)
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in plain_answers]


def test_a_prompt_of_thousands_of_tokens_is_served(speculative: RealServer) -> None:
    answer = stream_chat(speculative.base_url, "Summarise the following. " + "You may copy and distribute it. " * 1200)
    assert answer.usage is not None
    assert answer.usage["prompt_tokens"] > 8192
    assert answer.counts is not None
    assert answer.counts["num_spec_steps"] > 0


def test_a_deep_target_answers_the_same_and_gains_from_speculation(
    plain_answers: list[Answer], servers: ServerPool, tables: Tables
) -> None:
    seconds = {}
    for kind in ("plain", "draft"):
        server = servers.get(kind, target=deep_target())
        stream_chats(server.base_url, ALL_PROMPTS[:2])
        with realtime():
            started = time.monotonic()
            answers = [stream_chat(server.base_url, prompt) for prompt in ALL_PROMPTS[::3]]
            seconds[kind] = time.monotonic() - started
        assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in plain_answers[::3]]
    tables.add("real vLLM: deep target, one request at a time", **seconds, speedup=seconds["plain"] / seconds["draft"])
    assert seconds["draft"] < seconds["plain"]


def test_the_engines_death_is_told_in_the_stream(mortal: RealServer) -> None:
    answer = stream_and_kill(mortal, mortal.kill_engine)
    assert answer.error is not None
    assert answer.error["code"] == 500
    assert answer.done
    wait_for_end(mortal)


def test_the_death_of_the_api_server_breaks_the_stream_off(mortal: RealServer) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        stream_and_kill(mortal, mortal.kill_api_server)
    wait_for_end(mortal)


def test_a_restart_with_another_drafter_keeps_the_port_and_begins_its_counters_at_zero(mortal: RealServer) -> None:
    url = mortal.base_url
    stream_chat(url, "What is 12 + 30?")
    mortal.restart(drafter=graded_drafter(0.3))
    assert mortal.base_url == url
    assert read_counters(url).generated == 0
    assert graded_drafter(0.3).name in mortal.log_path.read_text()


def test_nothing_is_left_of_a_stopped_server(mortal: RealServer) -> None:
    processes = mortal.processes()
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= processes.keys()
    mortal.stop()
    assert not any(is_alive(pid) for pid in processes.values())


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerDiedError, match="no-such-flag"):
        RealServer("plain", flags=("--no-such-flag",), log_directory=tmp_path).start()


def test_a_server_does_not_outlive_a_test_run_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from tests.real.servers import RealServer\n"
        "server = RealServer('plain', log_directory=pathlib.Path(sys.argv[1])); server.spawn()\n"
        "print(server._process.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        server_pid = int(run.stdout.readline())
        assert is_alive(server_pid)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(server_pid), timeout_seconds=10)


def acceptance_row(server: RealServer, answers: list[Answer]) -> dict[str, object]:
    """Acceptance length by domain of one replay of all prompts, and tokens per decode chunk."""
    by_prompt = {answer.prompt: answer for answer in answers}
    row: dict[str, object] = {"kind": server.kind, "k": server.draft_tokens}
    row |= {domain: acceptance_length([by_prompt[p] for p in prompts]) for domain, prompts in PROMPTS.items()}
    chunks = [tokens for answer in answers for tokens in answer.chunk_tokens[1:]]
    return row | {"all": acceptance_length(answers), "tokens_per_chunk": sum(chunks) / len(chunks)}


def stream_and_kill(server: RealServer, kill: Callable[[], None]) -> Answer:
    """Start a long stream and call `kill` at its twentieth event."""
    body = chat_body("Write the times table of 7.", max_tokens=8000, ignore_eos=True)
    answer = Answer(body["messages"][0]["content"])
    with httpx.stream("POST", f"{server.base_url}/v1/chat/completions", json=body, timeout=60) as response:
        for line in response.iter_lines():
            answer.take(line)
            if len(answer.events) == 20 and kill is not None:
                kill()
                kill = None
    return answer


def wait_for_end(server: RealServer) -> None:
    """Wait until the HTTP process is gone too; vLLM ends it a few seconds after its engine."""
    wait_until(lambda: not server.is_running, timeout_seconds=60)


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> None:
    """Poll until the condition holds; fail after the time-out."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout_seconds} s"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
