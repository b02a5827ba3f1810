"""Everything a replica can do wrong, over real HTTP: one stable reason and one message that says what to do."""

from __future__ import annotations

import asyncio
import gzip
import socket
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from replicas import QUICK, certificate, prompt_set, response, run_of, sends

from monitor.core.records import Identity, Sampling
from monitor.engines.vllm import VllmEngine
from monitor.errors import TargetError, UsageError
from monitor.probing.client import Client
from monitor.probing.replay import StandAside, replay
from monitor.probing.stream import PIECES_KEPT
from monitor.probing.target import Target, Timeouts
from monitor.sim.behaviour import Fault, FaultKind
from monitor.sim.server import ServerConfig, SimulatedServer

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.core.records import Run


def reasons(run: Run) -> list[str | None]:
    return [sample.invalid_reason for sample in run.samples]


def detail(run: Run) -> str:
    return run.invalid_detail or ""


class TestOnePrompt:
    """A fault of one request leaves the other prompts of the run valid."""

    @pytest.mark.parametrize(
        ("fault", "reason", "words"),
        [
            (Fault(FaultKind.ERROR_IN_STREAM), "error_in_stream", "the server reported in mid-answer: EngineCore"),
            (Fault(FaultKind.ABORT), "aborted", "the server gave up in mid-answer, with finish reason 'abort'"),
            (Fault(FaultKind.CUT), "cut_off", "the connection broke in mid-answer"),
            (Fault(FaultKind.HANG), "stalled", "the stream fell silent for 0.3 s"),
            (Fault(FaultKind.HANG, after_chunks=0), "first_token_timeout", "no token within 0.5 s"),
            (Fault(FaultKind.INVALID_JSON), "invalid_json", "a chunk of the stream is not JSON"),
            (Fault(FaultKind.REJECT, times=2, status=500), "server_error", "answered 500"),
            (Fault(FaultKind.REJECT, status=400), "bad_request", "answered 400"),
        ],
    )
    async def test_a_fault_is_told_by_its_reason(self, server, url, fault, reason, words):
        server.inject(fault)
        quick = Timeouts(first_token_seconds=0.5, stall_seconds=0.3)
        run = await run_of(Target(url, timeouts=quick), prompt_set(3), concurrency=1)
        assert reasons(run) == [reason, None, None]
        assert run.invalid_reason is None
        said = run.samples[0].invalid_detail or ""
        assert said.startswith(f"{url}/v1/chat/completions: {words}")
        assert len(said.splitlines()) == 1

    async def test_chunks_received_before_the_fault_are_kept(self, server, url):
        server.inject(Fault(FaultKind.CUT, after_chunks=4))
        run = await run_of(url, prompt_set(1))
        assert sum(run.samples[0].chunk_tokens[0]) > 0
        assert run.samples[0].total_seconds is not None

    async def test_a_stream_without_its_usage_chunk_has_no_counts(self, server, url):
        server.inject(Fault(FaultKind.NO_USAGE))
        run = await run_of(url, prompt_set(3), concurrency=1)
        assert reasons(run) == ["no_request_counts", None, None]

    async def test_a_rate_limit_is_waited_out(self, server, url):
        server.inject(Fault(FaultKind.REJECT, times=2, status=429, retry_after_seconds=0))
        run = await run_of(url, prompt_set(2), concurrency=1)
        assert reasons(run) == [None, None]

    async def test_one_server_error_before_the_answer_is_tried_again(self, server, url):
        server.inject(Fault(FaultKind.REJECT, status=503))
        assert reasons(await run_of(url, prompt_set(1))) == [None]

    async def test_a_stream_that_has_begun_is_never_asked_for_again(self, server, url):
        server.inject(Fault(FaultKind.CUT))
        run = await run_of(url, prompt_set(1))
        assert reasons(run) == ["cut_off"]

    async def test_an_answer_that_takes_too_long_in_all_is_given_up(self, server, url):
        server.behave(step_time_seconds=0.05)
        patient = Timeouts(first_token_seconds=5, stall_seconds=5, total_seconds=0.4)
        run = await run_of(Target(url, timeouts=patient), prompt_set(1))
        assert reasons(run) == ["total_timeout"]
        assert "not complete after 0.4 s" in detail(run)

    async def test_keep_alive_comments_do_not_pass_for_an_answer(self, server, url):
        server.behave(keep_alive_comments=True)
        server.inject(Fault(FaultKind.HANG))
        assert reasons(await run_of(url, prompt_set(1))) == ["stalled"]

    async def test_a_prompt_longer_than_the_context_does_not_stop_the_others(self):
        server = SimulatedServer(ServerConfig(max_model_len=256))
        long = prompt_set(5)
        prompts = tuple(
            type(p)(p.question_id, p.category, "", ("word " * 2000,) if n < 4 else p.turns)
            for n, p in enumerate(long.prompts)
        )
        with server.run_in_thread() as url:
            run = await run_of(url, type(long)("coding", prompts, "h"), concurrency=1)
        assert reasons(run) == ["context_too_long"] * 4 + [None]
        assert "maximum context length is 256 tokens" in (run.samples[0].invalid_detail or "")


class TestWholeRun:
    """What makes every prompt fail is asked a few times, not once per prompt."""

    async def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        run = await run_of(f"http://127.0.0.1:{port}")
        assert run.invalid_reason == "unreachable"
        assert reasons(run) == ["unreachable"] * 6
        assert detail(run).endswith("check the address and that the server is running")

    async def test_a_port_that_takes_connections_and_is_silent(self, monkeypatch):
        monkeypatch.setattr("monitor.probing.client.LOOKUP_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            run = await run_of(url)
        assert (run.invalid_reason, reasons(run)) == ("no_answer", ["no_answer"] * 6)
        assert detail(run).startswith(
            f"{url}/v1/models: accepted the connection and answered nothing in 0.2 s; is it an HTTP server?"
        )

    async def test_a_page_that_begins_and_never_ends(self, monkeypatch):
        monkeypatch.setattr("monitor.probing.client.LOOKUP_SECONDS", 0.2)
        left = asyncio.Event()
        begun = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(begun)
            await reader.read()
            writer.close()
            await writer.wait_closed()
            left.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            run = await run_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await left.wait()
        assert run.invalid_reason == "no_answer"
        assert "the answer was not complete after 0.2 s" in detail(run)

    async def test_a_host_that_does_not_exist(self):
        run = await run_of("http://no-such-host.invalid:8000")
        assert (run.invalid_reason, "cannot be resolved" in detail(run)) == ("unreachable", True)

    async def test_a_missing_key(self):
        server = SimulatedServer(ServerConfig(api_key="right"))
        with server.run_in_thread() as url:
            run = await run_of(Target(url, api_key="wrong-secret"))
            right = await run_of(Target(url, api_key="right"), prompt_set(1))
        assert (run.invalid_reason, reasons(run)) == ("unauthorized", ["unauthorized"] * 6)
        assert "give the right API key" in detail(run)
        assert "wrong-secret" not in repr(run)
        assert right.invalid_reason is None

    async def test_a_model_that_is_not_served(self, url):
        run = await run_of(Target(url, model="nope"))
        assert run.invalid_reason == "model_not_served"
        assert detail(run) == f"{url}: model 'nope' is not served; served: tiny; name a model that the server serves"

    async def test_a_server_that_is_not_vllm(self, server, url):
        server.behave(not_vllm=True)
        run = await run_of(url)
        assert run.invalid_reason in ("not_openai", "not_vllm")

    @pytest.mark.parametrize(
        ("answer", "reason", "words"),
        [
            (response(b"<html>Hello</html>", content_type="text/html"), "not_openai", "answers '<html>Hello</html>'"),
            (response(b"hello"), "invalid_json", "answers 'hello' where JSON belongs"),
            (response(b'{"detail":"Not Found"}', "404 Not Found"), "not_openai", "there is no /v1/models"),
            (response(b'{"data":"x"}'), "not_openai", "does not answer with a list of models"),
            (response(b'{"data":[{"id":"m","owned_by":"other"}]}'), "not_vllm", "the model is owned by 'other'"),
            (response(b'{"data":[{"id":"m"}]}'), "not_vllm", "the model names no owner"),
            (response(b"", "307 Moved", location="http://x/"), "not_openai", "answered 307 to http://x/"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "not_openai", "does not speak HTTP"),
            (b"", "cut_off", "closed before an answer"),
            (response(b"short", content_length="100"), "cut_off", "broke in mid-answer"),
        ],
    )
    async def test_something_else_answers(self, answer, reason, words):
        async with sends(answer) as url:
            run = await run_of(url)
        assert (run.invalid_reason, words in detail(run)) == (reason, True), detail(run)
        assert detail(run).startswith(url)

    async def test_a_gateway_that_hides_vllm_is_believed_when_the_engine_is_declared(self):
        cards = response(b'{"data":[{"id":"m","owned_by":"other"}]}')
        async with sends(cards) as url, Client(Target(url), 1) as client:
            seen = await VllmEngine().observe(client, None, Identity(engine="vllm"))
        assert seen.model == "m"

    async def test_a_replica_that_fails_prompt_after_prompt_is_left_alone(self, server, url):
        server.inject(Fault(FaultKind.ERROR_IN_STREAM, times=None))
        run = await run_of(url, prompt_set(20), concurrency=2)
        sent = sum(sample.total_seconds is not None for sample in run.samples)
        assert (run.invalid_reason, reasons(run)) == ("error_in_stream", ["error_in_stream"] * 20)
        assert 3 <= sent <= 4

    async def test_a_body_that_the_server_refuses_is_not_sent_for_every_prompt(self, server, url):
        run = await run_of(url, prompt_set(20), sampling=Sampling(extra_body=(("temperature", -1),)))
        sent = sum(sample.total_seconds is not None for sample in run.samples)
        assert (run.invalid_reason, 4 <= sent <= 7) == ("bad_request", True)
        assert "temperature must be non-negative" in detail(run)

    async def test_a_lasting_rate_limit_is_the_reason_of_the_run(self, server, url):
        server.inject(Fault(FaultKind.REJECT, times=None, status=429, retry_after_seconds=60))
        run = await run_of(url)
        assert (run.invalid_reason, "lower the concurrency" in detail(run)) == ("rate_limited", True)

    async def test_too_few_valid_prompts_make_the_run_invalid(self, server, url):
        server.inject(Fault(FaultKind.CUT, times=2))
        run = await run_of(url, prompt_set(6), concurrency=1, min_prompts=5)
        assert run.invalid_reason == "too_few_valid_prompts"
        assert detail(run) == f"{url}: 4 of 6 prompts are valid, 5 are needed (2 cut_off)"

    async def test_a_queue_at_the_replica_is_left_alone(self, server, url):
        server.behave(waiting=3)
        options = {"route": "r", "sampling": Sampling()}
        found = await replay(Target(url), VllmEngine(), prompt_set(), max_waiting=2, **options)
        assert found == StandAside(waiting=3.0, max_waiting=2)
        assert 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 0' in await metrics_of(url)
        allowed = await run_of(url, prompt_set(1), max_waiting=3)
        assert allowed.warnings[0].startswith("3 requests were waiting at the replica already")


class TestTls:
    async def test_an_expired_certificate_is_named_as_that(self, server, tmp_path):
        certfile, keyfile = certificate(tmp_path, days=-1)
        with server.run_in_thread(certfile=certfile, keyfile=keyfile) as url:
            run = await run_of(Target(url, ca_file=certfile))
        assert (run.invalid_reason, "its certificate has expired" in detail(run)) == ("tls", True)

    async def test_an_unknown_authority_is_named_and_a_ca_file_cures_it(self, server, tmp_path):
        certfile, keyfile = certificate(tmp_path)
        with server.run_in_thread(certfile=certfile, keyfile=keyfile) as url:
            refused = await run_of(url)
            trusted = await run_of(Target(url, ca_file=certfile), prompt_set(1))
        assert (refused.invalid_reason, "its certificate is self-signed" in detail(refused)) == ("tls", True)
        assert trusted.invalid_reason is None

    async def test_a_certificate_of_another_host_is_named(self, server, tmp_path):
        certfile, keyfile = certificate(tmp_path, name="elsewhere.example")
        with server.run_in_thread(certfile=certfile, keyfile=keyfile) as url:
            run = await run_of(Target(url, ca_file=certfile))
        assert (run.invalid_reason, "is for another" in detail(run)) == ("tls", True)

    async def test_https_to_a_plain_server_is_explained(self, url):
        run = await run_of(url.replace("http:", "https:"))
        assert (run.invalid_reason, "plain http://" in detail(run)) == ("tls", True)

    @pytest.mark.parametrize(
        ("content", "words"), [("no certificate", "holds no certificate"), (None, "cannot be read")]
    )
    def test_an_unusable_ca_file_is_the_users_to_fix(self, tmp_path: Path, content, words):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(UsageError, match=words):
            Client(Target("https://x", ca_file=path), 1)


class TestSecrets:
    async def test_a_key_that_the_server_repeats_stays_out_of_the_message(self):
        echo = response(b'{"error":{"message":"bad key s3cret and h3ader"}}', "401 Unauthorized")
        async with sends(echo) as url:
            run = await run_of(Target(url, api_key="s3cret", headers={"X-Token": "h3ader"}))
        assert "bad key *** and ***" in detail(run)

    async def test_a_key_that_a_stream_repeats_stays_out_of_the_message(self):
        echo = response(b'data: {"error":{"message":"bad key s3cret"}}\n\n', content_type="text/event-stream")
        async with sends(echo) as url:
            run = await run_of(Target(url, api_key="s3cret"))
        assert "bad key ***" in detail(run)

    def test_a_target_does_not_show_its_secrets(self):
        assert "s3cret" not in repr(Target("http://x", api_key="s3cret", headers={"X-Token": "s3cret"}))

    def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(self):
        with pytest.raises(UsageError) as caught:
            Client(Target("http://x", api_key="s3cret\nkey"), 1)
        assert "s3cret" not in str(caught.value)


class TestClient:
    async def test_a_stream_that_ends_without_done_is_cut_off(self):
        async with sends(response(b"data: {}\n\n", content_type="text/event-stream")) as url:
            assert await failure_of_stream(url) == "cut_off"

    async def test_events_that_wait_to_be_handed_on_come_before_the_failure(self):
        async with sends(response(b"data: 1\n\ndata: 2\n\n: on\n\ndata: 3", content_type="text/event-stream")) as url:
            received = []
            with pytest.raises(TargetError) as caught:
                async with (
                    Client(Target(url, timeouts=QUICK), 1) as client,
                    client.stream("/v1/completions", {}) as events,
                ):
                    async for _, data in events:
                        received.append(data)
        assert (received, caught.value.reason) == ([b"1", b"2"], "cut_off")

    async def test_events_handed_on_together_keep_the_times_at_which_they_came(self, server, url):
        server.behave(step_time_seconds=0.02)
        run = await run_of(url, prompt_set(1), sampling=Sampling(max_tokens=100))
        (times,) = run.samples[0].chunk_seconds
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert len(gaps) > PIECES_KEPT
        assert statistics.median(gaps) == pytest.approx(0.02, abs=0.01)

    async def test_a_stream_compressed_against_our_wish_is_read_all_the_same(self):
        body = gzip.compress(b"data: 1\n\ndata: [DONE]\n\n")
        compressed = response(body, content_type="text/event-stream", content_encoding="gzip")
        async with sends(compressed) as url, Client(Target(url), 1) as client:
            assert await events_of(client) == [b"1"]

    async def test_an_answer_that_is_no_stream_is_refused(self):
        async with sends(response(b'{"choices":[]}', content_type="application/json")) as url:
            assert await failure_of_stream(url) == "not_openai"

    async def test_a_connection_that_is_never_accepted_times_out(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            port = silent.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):  # fills the queue of connections
                target = Target(
                    f"http://127.0.0.1:{port}", timeouts=Timeouts(connect_seconds=0.2, first_token_seconds=1)
                )
                async with Client(target, 1) as client:
                    with pytest.raises(TargetError) as caught:
                        await events_of(client)
        assert caught.value.reason in ("connect_timeout", "first_token_timeout")

    async def test_leaving_a_stream_makes_the_server_drop_the_request(self, server, url):
        server.behave(step_time_seconds=0.01)
        task = asyncio.create_task(run_of(url, prompt_set(4), sampling=Sampling(max_tokens=4000)))
        while sum(engine.running for engine in server.engines) < 4:  # noqa: ASYNC110  (it runs in another thread)
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            while any(engine.running for engine in server.engines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def events_of(client: Client) -> list[bytes]:
    async with client.stream("/v1/completions", {}) as events:
        return [event.data async for event in events]


async def failure_of_stream(url: str) -> str:
    async with Client(Target(url, timeouts=QUICK), 1) as client:
        with pytest.raises(TargetError) as caught:
            await events_of(client)
    return caught.value.reason


async def metrics_of(url: str) -> str:
    async with Client(Target(url), 1) as client:
        return await client.get_text("/metrics")
