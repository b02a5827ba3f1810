"""A small streaming client of vLLM and the prompts it replays, independent of the product that these servers test."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from tests.real.servers import SERVED_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

# In the words the tiny models were trained on; elsewhere they answer nonsense and acceptance tells little.
PROMPTS = {
    "math": [
        "What is 12 + 30?",
        "Continue the sequence: 4, 11, 18",
        "Write the times table of 7.",
        "Continue the sequence: 3, 5, 7",
        "Write the times table of 4.",
        "What is 9 * 8?",
    ],
    "coding": [
        "Write a Python function named close.",
        "Write a Python function named __init__.",
        "Write a Python function named parse_args.",
        "Write a Python function named get_value.",
        "Write a Python function named read.",
        "Write a Python function named test_main.",
    ],
    "prose": [
        "Continue the text: The license grants you the right to",
        "Continue the text: This module provides a simple way of",
        "Continue the text: You may copy and distribute",
        "Continue the text: The following table shows the list of",
        "Continue the text: If you modify this program, you",
        "Continue the text: Returns a new object that",
    ],
}
ALL_PROMPTS = [prompt for prompts in PROMPTS.values() for prompt in prompts]


@dataclass
class Answer:
    """What one streamed chat brought; `counts` is vLLM's per-request record, None from a plain server."""

    prompt: str
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)  # tokens of each chunk that carried any
    events: list[dict] = field(default_factory=list)
    usage: dict | None = None
    counts: dict | None = None
    finish_reason: str | None = None
    error: dict | None = None
    done: bool = False

    def take(self, line: str) -> None:
        """Add one line of the event stream."""
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.done = True
            return
        event = json.loads(line.removeprefix("data: "))
        self.events.append(event)
        self.error = event.get("error", self.error)
        self.usage = event.get("usage") or self.usage
        self.counts = (event.get("metrics") or {}).get("speculative_decoding") or self.counts
        for choice in event.get("choices", []):
            self._take_choice(choice)

    def _take_choice(self, choice: dict) -> None:
        self.text += choice["delta"].get("content") or ""
        self.finish_reason = choice["finish_reason"] or self.finish_reason
        if ids := choice.get("token_ids"):
            self.token_ids += ids
            self.chunk_tokens.append(len(ids))


@dataclass(frozen=True)
class Counters:
    """The server's counters summed over engines and positions kept apart; subtract two for what lies between."""

    drafts: int
    drafted: int
    accepted: int
    per_position: tuple[int, ...]
    generated: int

    def __sub__(self, earlier: Counters) -> Counters:
        before = earlier.per_position or (0,) * len(self.per_position)
        return Counters(
            self.drafts - earlier.drafts,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in zip(self.per_position, before, strict=True)),
            self.generated - earlier.generated,
        )


def chat_body(prompt: str, max_tokens: int = 150, **more: object) -> dict[str, object]:
    """A greedy streamed chat that asks for token ids and running usage."""
    return {
        "model": SERVED_MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    } | more


CLIENT = httpx.Client(timeout=120, verify=False, limits=httpx.Limits(max_connections=None))
"""One for all threads: a client of their own would read trusted certificates for each request, which takes longer than
a short answer where the processor is shared."""


def stream_chat(base_url: str, prompt: str, max_tokens: int = 150, **more: object) -> Answer:
    """Replay one prompt to the end of its stream; raises httpx's errors when the stream breaks."""
    answer = Answer(prompt)
    body = chat_body(prompt, max_tokens, **more)
    with CLIENT.stream("POST", f"{base_url}/v1/chat/completions", json=body) as response:
        if response.is_error:
            response.read()
            raise RuntimeError(f"{response.status_code}: {response.text[:500]}")
        for line in _lines(response):
            answer.take(line)
    return answer


def _lines(response: httpx.Response) -> Iterator[str]:
    """Not iter_lines(), which also cuts at separators that JSON allows inside a string: a model may answer them."""
    rest = b""
    for received in response.iter_bytes():
        *lines, rest = (rest + received).split(b"\n")
        yield from (line.decode() for line in lines)


def stream_chats(base_url: str, prompts: list[str], concurrency: int = 4, **more: object) -> list[Answer]:
    """Replay the prompts so many at a time; answers in the order of the prompts."""
    with ThreadPoolExecutor(concurrency) as threads:
        return list(threads.map(lambda prompt: stream_chat(base_url, prompt, **more), prompts))


def read_counters(base_url: str) -> Counters:
    """The counters of `/metrics` now."""
    text = CLIENT.get(f"{base_url}/metrics").text
    speculation = "vllm:spec_decode_num_"
    positions = sorted({int(found) for found in re.findall(r"_per_pos_total\{.*position=\"(\d+)\"", text)})
    per_position = [_total(text, f"{speculation}accepted_tokens_per_pos_total", f'position="{i}"') for i in positions]
    return Counters(
        _total(text, f"{speculation}drafts_total"),
        _total(text, f"{speculation}draft_tokens_total"),
        _total(text, f"{speculation}accepted_tokens_total"),
        tuple(per_position),
        _total(text, "vllm:generation_tokens_total"),
    )


def requests_running(base_url: str) -> int:
    """How many requests the server is working on, by its own gauge."""
    return _total(CLIENT.get(f"{base_url}/metrics").text, "vllm:num_requests_running")


def counters_after(base_url: str, before: Counters, generated: int, timeout_seconds: float = 15) -> Counters:
    """The change since `before`, once the server has counted so many generated tokens: it counts a little late."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        change = read_counters(base_url) - before
        if change.generated >= generated or time.monotonic() > deadline:
            return change
        time.sleep(0.1)


def acceptance_length(answers: list[Answer]) -> float:
    """1 + accepted/steps over all the answers."""
    records = [answer.counts for answer in answers if answer.counts]
    steps = sum(record["num_spec_steps"] for record in records)
    return 1 + sum(record["num_accepted_draft_tokens"] for record in records) / steps


def _total(text: str, name: str, label: str = "") -> int:
    samples = re.findall(rf"^{name}(\{{.*\}})? ([0-9.eE+]+)$", text, re.MULTILINE)
    return round(sum(float(value) for labels, value in samples if label in labels))
