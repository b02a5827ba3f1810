"""Every engine over real HTTP: a server that answers with the shapes of its fixtures, probed from end to end."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from replicas import prompt_set

from monitor.cli import cli
from monitor.core.figures import aggregate
from monitor.core.records import Reason, Run, Sampling
from monitor.errors import UsageError
from monitor.probing.recognise import engine_at
from monitor.probing.replay import replay
from monitor.probing.target import Target
from monitor.prompts.sets import PromptSet, content_hash
from monitor.service.jobs import ProbeJob
from monitor.service.probes import run_probe
from tests.engines import FIXTURES, page
from tests.factories import make_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class EngineServer:
    """Answers as the engine's fixtures do; its counters move by those of one stream with each answer."""

    def __init__(self, engine: str, stream: str = "stream") -> None:
        self.engine = engine
        self.bodies: list[dict[str, object]] = []
        self._stream = (FIXTURES / engine / f"{stream}.txt").read_bytes()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(await self._answer(head, reader))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        method, path, _ = head.decode().split(" ", 2)
        if method == "POST":
            fields = [line.partition(":") for line in head.decode().lower().split("\r\n")]
            length = next(int(value) for name, _, value in fields if name == "content-length")
            self.bodies.append(json.loads(await reader.readexactly(length)))
            return response(self._stream, "text/event-stream")
        text = moved(self.engine, path, len(self.bodies)) if path.endswith("/metrics") else page(self.engine, path)
        return response(b"", "text/plain", "404 Not Found") if text is None else response(text.encode(), "text/plain")


def response(body: bytes, kind: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def moved(engine: str, path: str, answers: int) -> str | None:
    """The metrics page after so many answers, each of which moves it from `metrics` to `metrics_after`."""
    before, after = page(engine, path), page(engine, f"{path}_after")
    if before is None or after is None:
        return before
    start, step = values(before), values(after)
    lines = [f"{name} {start.get(name, 0.0) + answers * (end - start.get(name, 0.0))}" for name, end in step.items()]
    return "\n".join(lines) + "\n"


def values(text: str) -> dict[str, float]:
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


@asynccontextmanager
async def serving(server: EngineServer) -> AsyncIterator[str]:
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def run_of(
    server: EngineServer, engine: str = "auto", prompts: PromptSet | None = None, **options: object
) -> Run:
    async with serving(server) as url:
        target = Target(url)
        settings = {"route": "r", "sampling": Sampling(max_tokens=16), "concurrency": 2, **options}
        prompts = prompts or prompt_set(3)
        run = await replay(target, await engine_at(target, engine), prompts, **settings)  # type: ignore[arg-type]
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize(
    ("engine", "source", "steps", "accepted", "drafted"),
    [
        ("sglang", "request", 15, 21, 45),
        ("trtllm", "stream", 12, 18, 36),
        ("llamacpp", "request", 15, 21, 42),
        ("tgi", "counters", 15, 21, None),
        ("openai", "stream", 12, 18, None),
    ],
)
async def test_each_engine_is_recognised_and_counted_by_its_best_source(engine, source, steps, accepted, drafted):
    run = await run_of(EngineServer(engine))
    assert run.invalid_reason is None, run.invalid_detail
    figures = aggregate(run.domain, run.samples)
    assert (figures.source, figures.steps, figures.accepted) == (source, steps, accepted)
    assert figures.acceptance_length == 1 + accepted / steps
    assert figures.acceptance_rate == (None if drafted is None else accepted / drafted)
    assert run.identity.engine == (None if engine == "openai" else engine)


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "llamacpp"])
async def test_the_counters_of_a_quiet_server_say_the_same(engine):
    run = await run_of(EngineServer(engine), source="counters")
    assert run.invalid_reason is None, run.invalid_detail
    figures = aggregate(run.domain, run.samples)
    assert (figures.steps, figures.accepted, figures.acceptance_length) == (15, 21, 2.4)


async def test_counters_and_counts_per_request_agree_without_being_asked():
    run = await run_of(EngineServer("sglang"))
    assert run.acceptance_by_source["request"] == run.acceptance_by_source["counters"] == 2.4


@pytest.mark.parametrize("engine", ["tgi", "llamacpp"])
async def test_a_stream_of_single_tokens_is_refused_as_a_source(engine):
    run = await run_of(EngineServer(engine), source="stream")
    assert run.invalid_reason == "tokens_not_steps"


async def test_an_unknown_server_that_streams_token_by_token_is_refused():
    run = await run_of(EngineServer("openai", "stream_by_token"))
    assert run.invalid_reason == "tokens_not_steps"


async def test_a_named_engine_is_not_looked_up():
    run = await run_of(EngineServer("sglang"), "openai")
    assert (run.identity.engine, run.samples[0].source) == (None, "stream")


async def test_of_cold_runs_alone_it_is_said_that_no_salt_keeps_them_apart():
    advice = "this server has no cache_salt: a cold run may meet what an earlier one left in its cache"
    for engine in ("openai", "tgi"):
        cold, warm = [
            await run_of(EngineServer(engine), sampling=Sampling(max_tokens=16, cache=cache))
            for cache in ("cold", "warm")
        ]
        assert advice in cold.warnings
        assert set(cold.warnings) - set(warm.warnings) == {advice}


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"])
async def test_a_server_that_cannot_be_looked_at_is_not_asked_twice(monkeypatch, answer):
    monkeypatch.setattr("monitor.probing.client.LOOKUP_SECONDS", 0.2)
    asked: list[bytes] = []
    left = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer or b"")
        await reader.read()  # until we have hung up
        writer.close()
        await writer.wait_closed()
        left.release()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        target = Target(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        engine = await engine_at(target, "auto")
        run = await replay(target, engine, prompt_set(3), route="r", sampling=Sampling(max_tokens=16))
        assert isinstance(run, Run)
        assert run.invalid_reason == ("no_answer" if answer is None else "not_openai")
        assert len(asked) == 1
        await left.acquire()
        again = await replay(target, engine, prompt_set(3), route="r", sampling=Sampling(max_tokens=16))
        assert isinstance(again, Run)
        assert (again.invalid_reason, len(asked)) == (run.invalid_reason, 2)
        await left.acquire()


async def test_the_shell_names_the_engine_that_it_found():
    async with serving(EngineServer("sglang")) as url:
        arguments = ["probe", url, "--domain", "math", "--prompts", "2", "--format", "json"]
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["identity"]["engine"], document["identity"]["version"]) == ("sglang", "0.5.23")
    assert document["domains"][0]["acceptance_length"] == 2.4


async def test_a_route_is_probed_as_the_engine_that_it_names():
    async with serving(EngineServer("tgi")) as url:
        route = make_route(engine="tgi", replicas=[url], min_prompts=1, max_waiting=2)
        run = await run_probe(route, ProbeJob("k", route.name, "coding", url, Reason.SCHEDULED), prompt_set(3))
    assert isinstance(run, Run)
    assert (run.identity.engine, run.samples[0].source, run.invalid_reason) == ("tgi", "counters", None)


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def with_keys(**keys: object) -> PromptSet:
    """Three prompts, the first of which brings these keys of the request."""
    first, *others = prompt_set(3).prompts
    prompts = (replace(first, request_keys=keys), *others)
    return PromptSet("coding", prompts, content_hash(prompts))


async def test_what_a_prompt_brings_with_it_is_sent_with_it_alone_and_recorded():
    server = EngineServer("sglang")
    run = await run_of(server, prompts=with_keys(tools=[WEATHER], tool_choice="auto"), concurrency=1)
    assert run.invalid_reason is None, run.invalid_detail
    assert run.sampling.prompt_keys == ("tools", "tool_choice")
    assert [(body.get("tools"), body.get("tool_choice")) for body in server.bodies] == [
        ([WEATHER], "auto"), (None, None), (None, None),
    ]  # fmt: skip


async def test_the_output_format_of_a_prompt_goes_before_that_of_the_route():
    server, own = EngineServer("sglang"), {"type": "json_object"}
    sampling = Sampling(max_tokens=16, extra_body=(("response_format", {"type": "text"}),))
    await run_of(server, prompts=with_keys(response_format=own), sampling=sampling, concurrency=1)
    assert [body["response_format"] for body in server.bodies] == [own, {"type": "text"}, {"type": "text"}]


async def test_tools_are_refused_on_an_endpoint_that_has_none():
    with pytest.raises(UsageError, match="coding has prompts with tools, which only the endpoint chat takes"):
        await run_of(EngineServer("sglang"), prompts=with_keys(tools=[WEATHER]), sampling=Sampling("completions"))
