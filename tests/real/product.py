"""The product at work on a real server: its command as a process, its replay in this one, and what it counted."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from monitor.core.records import Run, Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing.replay import replay
from monitor.probing.target import Target
from tests.real.client import Counters, requests_running
from tests.real.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from monitor.prompts.sets import PromptSet

Found = TypeVar("Found")
COMMAND = [sys.executable, "-m", "monitor"]
METHODS = {"draft": "draft_model", "ngram": "ngram", "eagle": "eagle", "suffix": "suffix"}
"""What vLLM calls the method of each kind of server."""


def environment(**more: str) -> dict[str, str]:
    """This process's, without a store of its own and with the tree under test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DATABASE_URL")}
    return inherited | {"PYTHONPATH": str(ROOT)} | more


def eventually(look: Callable[[], Found], what: str, seconds: float = 60, pause_seconds: float = 0.1) -> Found:
    """The first true result of `look`; fails, saying what did not happen, when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause_seconds)
    return found


def specwatch(*arguments: str, timeout_seconds: float = 500, **more: str) -> subprocess.CompletedProcess[str]:
    """`specwatch ARGUMENTS` to its end, whatever its exit code; `more` are environment variables."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def probed(url: str, *options: str) -> dict[str, Any]:
    """The document of a successful `specwatch probe URL --format json`."""
    result = specwatch("probe", url, "--format", "json", *options)
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def replayed(url: str, sets: Sequence[PromptSet], max_tokens: int = 100, **options: Any) -> list[Run]:
    """One run of each set; `options` are those of `replay`."""

    async def replay_all() -> list[Run]:
        sampling = Sampling(max_tokens=max_tokens)
        runs = [
            await replay(Target(url), VllmEngine(), prompt_set, route="", sampling=sampling, **options)
            for prompt_set in sets
        ]
        return [run for run in runs if isinstance(run, Run)]

    return asyncio.run(replay_all())


def counted(samples: Iterable[Mapping[str, Any]]) -> Counters:
    """What the server's counters must have moved by for these samples (documents), the invalid ones among them."""
    found = list(samples)
    size = max((len(sample["histogram"]) for sample in found), default=1)
    histogram = [sum(sample["histogram"][j] for sample in found if sample["histogram"]) for j in range(size)]
    return Counters(
        drafts=sum(sample["steps"] for sample in found),
        drafted=sum(sample["drafted"] or 0 for sample in found),
        accepted=sum(sample["accepted"] for sample in found),
        per_position=tuple(sum(histogram[i + 1 :]) for i in range(size - 1)),
        generated=sum(sample["completion_tokens"] for sample in found),
    )


def documents(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Every sample of the runs as its document."""
    return [sample.as_dict() for run in runs for sample in run.samples]


@contextmanager
def background_clients(url: str, clients: int, *domain: str) -> Iterator[None]:
    """So many clients in a process of their own, all at work until the end of the block; fails when they are not.

    They ask what is asked in the domain of `client.PROMPTS`, in all of them where none is named.
    """
    # What clients of an earlier block left is shown as running for a while, and is not what this one waits for.
    eventually(lambda: requests_running(url) == 0, "the server is idle before the background clients begin", 60)
    command = [sys.executable, "-m", "tests.real.background", url, str(clients), *domain]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the background clients ended before they were at work"
            eventually(lambda: requests_running(url) > 0, "the background clients are at work", 120, 0.02)
            yield
            assert process.poll() is None, "the background clients ended by themselves; their errors are above"
        finally:
            process.kill()
