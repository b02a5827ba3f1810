"""`specwatch sweep` of given addresses where the servers are not vLLM."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import TargetError, UsageError
from monitor.sim.server import SimulatedServer
from tests.engines import FIXTURES, events
from tests.integration.test_engines import EngineServer, response, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STEP_SECONDS = 0.004
QUICK = ("--concurrency", "1", "--prompts", "12", "--repeats", "1", "--max-tokens", "16")


class SglangStepByStep(EngineServer):
    """Takes a moment for every chunk; plain, it sends the same tokens one by one."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__("sglang")
        self._plain = plain
        self._events = [event(tokens) for tokens in range(1, 14)] if plain else events("sglang")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                answer = await self._answer(head, reader)
                if not head.startswith(b"POST"):
                    writer.write(answer)
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                async for piece in self._paced():
                    writer.write(piece)
                    await writer.drain()
                writer.close()
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _paced(self) -> AsyncIterator[bytes]:
        for data in self._events:
            yield b"data: " + data + b"\n\n"
            await asyncio.sleep(STEP_SECONDS)
        yield b"data: [DONE]\n\n"

    async def _answer(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        if self._plain and b"server_info" in head.partition(b"\r\n")[0]:
            info = json.loads((FIXTURES / "sglang/server_info.json").read_text()) | {"speculative_algorithm": None}
            return response(json.dumps(info).encode(), "application/json")
        return await super()._answer(head, reader)


def event(tokens: int) -> bytes:
    """The chunk that brings the answer to so many tokens."""
    choice = {"index": 0, "delta": {"content": " x"}, "finish_reason": "length" if tokens == 13 else None}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 12, "completion_tokens": tokens}}).encode()


async def sweep(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, ["sweep", *arguments])


@pytest.mark.parametrize("named", [(), ("--engine", "sglang")])
async def test_a_pair_of_another_engine_is_recognised_or_named_and_measured(named):
    async with serving(SglangStepByStep(plain=True)) as plain, serving(SglangStepByStep()) as speculative:
        pair = ("--plain", plain, "--speculative", speculative)
        result = await sweep(*pair, *named, *QUICK, "--format", "json")
    assert result.exit_code == 0, result.output
    (document,) = json.loads(result.stdout)
    assert document["speculative_identity"]["engine"] == document["plain_identity"]["engine"] == "sglang"
    (point,) = document["points"]
    assert point["speculative"]["source"] == "request"
    assert point["speculative"]["acceptance_length"] == 2.4
    assert 1.5 < point["speedup"]["ratio"] < 3.5, "12 tokens after the first in 5 steps and an end, against 12 steps"


@pytest.mark.parametrize("engine", ["llamacpp", "tgi"])
async def test_an_engine_that_streams_token_by_token_cannot_be_swept_and_is_told_why(engine):
    async with serving(EngineServer(engine)) as plain, serving(EngineServer(engine)) as speculative:
        result = await sweep("--plain", plain, "--speculative", speculative, *QUICK)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(f"{engine} sends every token in a chunk of its own")


async def test_servers_of_two_engines_are_not_compared():
    async with serving(EngineServer("trtllm")) as plain, serving(EngineServer("sglang")) as speculative:
        result = await sweep("--plain", plain, "--speculative", speculative, *QUICK)
    assert isinstance(result.exception, UsageError)
    assert f"{plain} is trtllm, {speculative} is sglang" in str(result.exception)


async def test_a_server_that_is_not_there_is_no_other_engine():
    async with serving(EngineServer("sglang")) as speculative:
        result = await sweep("--plain", "http://127.0.0.1:9", "--speculative", speculative, *QUICK)
    assert isinstance(result.exception, TargetError)
    assert (result.exception.reason, result.exit_code) == ("unreachable", 1)


@pytest.mark.parametrize(
    "servers", [("chat",), ("--model", "m", "--speculative-config", '{"num_speculative_tokens": 2}')]
)
async def test_an_engine_is_named_only_for_given_addresses(servers):
    result = await sweep(*servers, "--engine", "sglang")
    assert result.exit_code == 2
    assert "--engine is for --plain and --speculative" in result.stderr


async def test_a_named_engine_is_taken_at_its_word():
    with SimulatedServer().run_in_thread() as url:
        result = await sweep("--plain", url, "--speculative", url, "--engine", "llamacpp", *QUICK)
    assert isinstance(result.exception, UsageError)
