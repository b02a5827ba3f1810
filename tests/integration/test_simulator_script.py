"""What a script makes a simulated server do, seen by its clients."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

pytest.register_assert_rewrite("tests.contract")

from monitor.errors import UsageError  # noqa: E402
from monitor.sim import Behaviour, Drafter, Fault, FaultKind, ServerConfig, SimulatedServer, Target  # noqa: E402
from tests import contract  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAT = contract.PATHS["chat"]


@contextlib.contextmanager
def running(
    config: ServerConfig | None = None, behaviour: Behaviour | None = None
) -> Iterator[tuple[SimulatedServer, httpx.Client]]:
    server = SimulatedServer(config, behaviour)
    with server.run_in_thread() as url, httpx.Client(base_url=url, timeout=10) as client:
        yield server, client


def body(prompt: str = "hello", max_tokens: int = 60, **more: Any) -> dict[str, Any]:
    return contract.streaming_body("chat", "tiny", prompt, max_tokens, **more)


def stream(client: httpx.Client, prompt: str = "hello", max_tokens: int = 60, **more: Any) -> contract.Transcript:
    return contract.record(client, "chat", body(prompt, max_tokens, **more))


def ids(transcript: contract.Transcript) -> list[int]:
    return [i for chunk in contract.token_chunks(transcript) for i in chunk["choices"][0]["token_ids"]]


def sizes(transcript: contract.Transcript) -> list[int]:
    return [len(chunk["choices"][0]["token_ids"]) for chunk in contract.token_chunks(transcript)]


def until_cut(texts: Iterator[str]) -> Iterator[str]:
    """What arrives before the connection breaks, which it must."""
    with pytest.raises(httpx.RemoteProtocolError):
        yield from texts


def metric(client: httpx.Client, name: str, **labels: str) -> float:
    return contract.total_of(client.get("/metrics").text, f"vllm:{name}", **labels)


# --- scripting the model -------------------------------------------------------------------------------------------


def test_the_answer_does_not_depend_on_the_drafter() -> None:
    with running() as (server, client):
        with_draft = ids(stream(client))
        server.swap_drafter(Drafter(method="ngram"))
        with_ngram = ids(stream(client))
        server.swap_drafter(Drafter(method=None))
        assert with_draft == with_ngram == ids(stream(client))


def test_another_target_gives_another_answer_and_fingerprint() -> None:
    with running() as (server, client):
        before = stream(client)
        server.restart(target=Target("models/other"))
        after = stream(client)
        assert ids(before) != ids(after)
        assert (
            contract.chunks_of(before)[-1]["system_fingerprint"] != contract.chunks_of(after)[-1]["system_fingerprint"]
        )


def test_the_acceptance_of_one_domain_can_fall_alone() -> None:
    domains = {"solve this": "math", "write code": "coding"}
    drafter = Drafter(run_noise_ratio=0.0)
    with running(ServerConfig(domains=domains, drafter=drafter)) as (_, client):
        before = {p: contract.counts_of(stream(client, p)) for p in domains}
        assert client.post("/_sim", json={"acceptance": {"coding": [0.1, 0.1]}}).status_code == 200
        after = {p: contract.counts_of(stream(client, p)) for p in domains}
        assert after["solve this"] == before["solve this"]
        assert after["write code"]["mean_acceptance_length"] < 1.5 < before["write code"]["mean_acceptance_length"]


def test_a_restart_forgets_counters_and_shows_a_new_start_time() -> None:
    with running() as (server, client):
        stream(client)
        started = contract.total_of(client.get("/metrics").text, "process_start_time_seconds")
        server.restart(version="0.33.0")
        text = client.get("/metrics").text
        assert contract.counters_of(text) == (0, 0, 0, [0, 0, 0, 0])
        assert contract.total_of(text, "process_start_time_seconds") > started
        assert client.get("/version").json() == {"version": "0.33.0"}


def test_a_restart_cuts_open_streams() -> None:
    with running(behaviour=Behaviour(step_time_seconds=0.01)) as (server, client):
        with client.stream("POST", CHAT, json=body(max_tokens=5000, ignore_eos=True)) as response:
            events = response.iter_text()
            next(events)
            server.restart()
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                list(events)
        assert metric(client, "num_requests_running") == 0


def test_a_hot_swap_keeps_counters_and_fingerprint_and_changes_acceptance() -> None:
    with running() as (server, client):
        before = stream(client)
        server.swap_drafter(Drafter(name="models/rotten", default_acceptance=(0.02,)), restart=False)
        after = stream(client)
        assert (
            contract.chunks_of(before)[-1]["system_fingerprint"] == contract.chunks_of(after)[-1]["system_fingerprint"]
        )
        assert contract.counts_of(after)["mean_acceptance_length"] < 1.3
        steps = sum(contract.counts_of(t)["num_spec_steps"] for t in (before, after))
        assert contract.counters_of(client.get("/metrics").text)[0] == steps


def test_a_hot_swap_to_another_draft_length_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a restart"):
        SimulatedServer().swap_drafter(Drafter(num_speculative_tokens=7), restart=False)


def test_traffic_of_others_moves_the_counters() -> None:
    with running() as (server, client):
        server.traffic("math", requests=5, max_tokens=30)
        assert metric(client, "generation_tokens_total") == 150
        assert metric(client, "request_success_total") == 5
        assert metric(client, "num_requests_running") == 0


def test_a_replayed_prompt_is_found_in_the_prefix_cache_unless_its_salt_is_new() -> None:
    with running(ServerConfig(prompt_tokens_details=True)) as (_, client):
        cached = [
            contract.chunks_of(stream(client, "x" * 200, cache_salt=salt))[-1]["usage"]["prompt_tokens_details"]
            for salt in ("a", "a", "b")
        ]
        assert cached == [{"cached_tokens": 0}, {"cached_tokens": 48}, {"cached_tokens": 0}]
        assert metric(client, "prefix_cache_hits_total") == 48


# --- faults --------------------------------------------------------------------------------------------------------


def test_requests_are_rejected_as_often_as_asked() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.REJECT, times=2, status=429, retry_after_seconds=1.5))
        answers = [client.post(CHAT, json=body()) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [429, 429, 200]
        assert answers[0].headers["retry-after"] == "1.5"
        assert answers[0].json()["error"]["code"] == 429


def test_an_error_stands_inside_the_stream_before_its_end() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.ERROR_IN_STREAM, after_chunks=2))
        events = [event for _, event in stream(client)]
        assert len(events) == 5, "a role chunk, two token chunks, the error, the end"
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        rest = '"type": "InternalServerError", "param": null, "code": 500'
        assert events[3:] == [f'data: {{"error": {{"message": "{message}", {rest}}}}}', "data: [DONE]"]
        assert metric(client, "request_success_total", finished_reason="error") == 1


def test_an_abort_ends_the_answer_in_good_order_without_counts() -> None:
    with running() as (_, client):
        client.post("/_sim", json={"fault": {"kind": "abort", "after_chunks": 2}})
        transcript = stream(client)
        *_, last, closing = contract.chunks_of(transcript)
        assert last["choices"][0]["finish_reason"] == "abort"
        assert (closing["choices"], closing["usage"]["completion_tokens"]) == ([], sum(sizes(transcript)))
        assert "metrics" not in closing or "speculative_decoding" not in closing["metrics"]
        assert [event for _, event in transcript][-1] == "data: [DONE]"
        assert metric(client, "request_success_total", finished_reason="abort") == 1
        contract.check_stream(stream(client), "chat", contract.Expected(k=4))


def test_a_cut_ends_the_connection_in_the_middle_of_a_chunk() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.CUT))
        with client.stream("POST", CHAT, json=body()) as response:
            received = "".join(until_cut(response.iter_text()))
        assert received.count("\n\n") == 4
        assert not received.endswith("\n\n")


def test_a_hanging_stream_stays_open_and_silent() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.HANG))
        with client.stream("POST", CHAT, json=body(), timeout=0.3) as response, pytest.raises(httpx.ReadTimeout):
            list(response.iter_text())


def test_one_chunk_is_not_json() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.INVALID_JSON))
        events = [event for _, event in stream(client)]
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            json.loads(events[4].removeprefix("data: "))
        assert events[-1] == "data: [DONE]"


def test_the_usage_chunk_can_be_missing() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.NO_USAGE))
        assert contract.chunks_of(stream(client))[-1]["choices"][0]["finish_reason"] == "length"
        assert contract.chunks_of(stream(client))[-1]["choices"] == []


@pytest.mark.parametrize(
    ("kind", "status", "works"),
    [(FaultKind.ERROR_IN_STREAM, 500, True), (FaultKind.INVALID_JSON, 200, False), (FaultKind.NO_USAGE, 200, True)],
)
def test_faults_strike_whole_answers_too(kind: FaultKind, status: int, works: bool) -> None:
    with running() as (server, client):
        server.inject(Fault(kind))
        answer = client.post(CHAT, json=body(stream=False, stream_options=None))
        assert answer.status_code == status
        with contextlib.nullcontext() if works else pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            assert not answer.json().get("usage")


def test_a_whole_answer_can_be_cut() -> None:
    with running() as (server, client):
        server.inject(Fault(FaultKind.CUT))
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(CHAT, json=body(stream=False, stream_options=None))


# --- behaviour -----------------------------------------------------------------------------------------------------


def test_merged_chunks_hold_the_tokens_of_several_steps() -> None:
    with running(behaviour=Behaviour(merge_probability=0.5)) as (_, client):
        transcript = stream(client, max_tokens=150, ignore_eos=True)
        assert max(sizes(transcript)) > 5
        assert sum(sizes(transcript)) == 150
        assert len(sizes(transcript)) < contract.counts_of(transcript)["num_spec_steps"]


def test_a_stream_interval_gathers_tokens_between_the_first_and_the_last_chunk() -> None:
    with running(behaviour=Behaviour(stream_interval=8)) as (_, client):
        first, *middle, _last = sizes(stream(client, max_tokens=100))
        assert first == 1
        assert min(middle) >= 8


def test_a_request_may_ask_for_a_longer_stream_interval() -> None:
    with running() as (_, client):
        assert min(sizes(stream(client, max_tokens=100, stream_interval=10))[1:-1]) >= 10


def test_keep_alive_comments_stand_between_the_chunks() -> None:
    with running(behaviour=Behaviour(keep_alive_comments=True)) as (_, client):
        transcript = stream(client)
        assert [event for _, event in transcript].count(": keep-alive") >= 2
        contract.check_stream(transcript, "chat", contract.Expected(k=4))


def test_speculative_metrics_can_be_missing() -> None:
    with running(behaviour=Behaviour(omit_request_counts=True, omit_spec_metrics=True)) as (_, client):
        contract.check_stream(stream(client), "chat", contract.Expected(k=4, counts="none"))
        assert "spec_decode" not in client.get("/metrics").text


def test_a_page_of_another_program_stands_on_every_path() -> None:
    with running(behaviour=Behaviour(not_vllm=True)) as (_, client):
        for path in ("/", "/v1/models", "/metrics", "/version"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert client.post(CHAT, json=body()).text.startswith("<!DOCTYPE html>")


def test_a_dead_engine_answers_errors_and_bad_health_while_metrics_still_work() -> None:
    with running(behaviour=Behaviour(engine_dead=True)) as (_, client):
        assert client.get("/health").status_code == 503
        assert client.post(CHAT, json=body()).status_code == 500
        assert client.get("/metrics").status_code == 200


def test_the_queue_can_look_longer_than_it_is() -> None:
    with running() as (server, client):
        server.behave(waiting=42)
        assert metric(client, "num_requests_waiting") == 42
        server.behave(waiting=None)
        assert metric(client, "num_requests_waiting") == 0


def test_the_pace_sets_the_time_of_a_step() -> None:
    with running(behaviour=Behaviour(step_time_seconds=0.02)) as (_, client):
        transcript = stream(client, max_tokens=30, ignore_eos=True)
        steps = len(sizes(transcript))
        assert transcript[-1][0] >= steps * 0.02
        assert transcript[-1][0] < steps * 0.02 + 2.0


def test_a_step_costs_more_with_longer_drafts_and_larger_batches() -> None:
    behaviour = Behaviour(step_time_seconds=0.01, draft_time_seconds=0.001, token_time_seconds=0.0001)
    assert behaviour.step_seconds(running=1, k=0) == pytest.approx(0.0101)
    assert behaviour.step_seconds(running=1, k=4) == pytest.approx(0.0145)
    assert behaviour.step_seconds(running=32, k=4) == pytest.approx(0.030)


def test_the_first_token_can_be_late() -> None:
    with running(behaviour=Behaviour(latency_seconds=0.2)) as (_, client):
        assert stream(client)[0][0] >= 0.2


# --- load ----------------------------------------------------------------------------------------------------------


async def until(client: httpx.AsyncClient, name: str, value: float) -> None:
    """Returns once the metric has the value; the test's time-out is the limit."""
    while contract.total_of((await client.get("/metrics")).text, f"vllm:{name}") != value:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_requests_beyond_the_slots_wait_and_are_served_in_turn() -> None:
    server = SimulatedServer(ServerConfig(max_num_seqs=2), Behaviour(step_time_seconds=0.01))
    with server.run_in_thread() as url:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            jobs = [asyncio.create_task(client.post(CHAT, json=body(f"p{n}", 60))) for n in range(5)]
            await until(client, "num_requests_waiting", 3)
            text = (await client.get("/metrics")).text
            assert contract.total_of(text, "vllm:num_requests_running") == 2
            assert contract.total_of(text, "vllm:kv_cache_usage_perc") > 0
            assert (await client.get("/load")).json() == {"server_load": 5}
            assert [answer.status_code for answer in await asyncio.gather(*jobs)] == [200] * 5
            text = (await client.get("/metrics")).text
            assert contract.total_of(text, "vllm:num_requests_running") == 0
            assert contract.total_of(text, "vllm:kv_cache_usage_perc") == 0


async def test_a_client_that_leaves_frees_its_slot_and_counts_as_aborted() -> None:
    server = SimulatedServer(ServerConfig(max_num_seqs=1), Behaviour(step_time_seconds=0.01))
    with server.run_in_thread() as url:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            long = [asyncio.create_task(client.post(CHAT, json=body(f"p{n}", 8000, ignore_eos=True))) for n in range(2)]
            await until(client, "num_requests_waiting", 1)
            for job in long:
                job.cancel()
            await asyncio.gather(*long, return_exceptions=True)
            await until(client, "num_requests_running", 0)
            assert (await client.post(CHAT, json=body())).status_code == 200
            text = (await client.get("/metrics")).text
            assert contract.total_of(text, "vllm:request_success_total", finished_reason="abort") >= 1
            assert contract.total_of(text, "vllm:request_success_total", finished_reason="length") == 1
            assert contract.total_of(text, "vllm:generation_tokens_total") < 8000


async def test_counters_are_exact_under_concurrency() -> None:
    server = SimulatedServer(ServerConfig(max_num_seqs=8, engines=2))
    with server.run_in_thread() as url:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            answers = await asyncio.gather(*[client.post(CHAT, json=body(f"p{n}", 100)) for n in range(24)])
            transcripts = [[(0.0, event) for event in answer.text.split("\n\n") if event] for answer in answers]
            text = (await client.get("/metrics")).text
    drafts, drafted, accepted, _ = contract.counters_of(text)
    counts = [contract.counts_of(transcript) for transcript in transcripts]
    assert drafts == sum(c["num_spec_steps"] for c in counts)
    assert drafted == sum(c["num_draft_tokens"] for c in counts)
    assert accepted == sum(c["num_accepted_draft_tokens"] for c in counts)
    assert contract.total_of(text, "vllm:generation_tokens_total") == sum(len(ids(t)) for t in transcripts)


# --- access --------------------------------------------------------------------------------------------------------


def test_a_key_is_asked_for_under_v1_only() -> None:
    with running(ServerConfig(api_key="secret")) as (_, client):
        refused = client.get("/v1/models")
        assert (refused.status_code, refused.text) == (401, '{"error":"Unauthorized"}')
        assert client.post(CHAT, json=body()).status_code == 401
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_the_configuration_is_shown_in_dev_mode_only() -> None:
    with running() as (server, client):
        assert client.get("/server_info").status_code == 404
        server.restart(dev_mode=True)
        info = client.get("/server_info?config_format=json").json()
        assert info["vllm_config"]["speculative_config"]["model"] == "models/tiny-draft"


def test_the_script_is_spoken_over_http() -> None:
    with running() as (_, client):
        script = {
            "drafter": {
                "method": "eagle",
                "name": "models/e",
                "num_speculative_tokens": 3,
                "acceptance": {"math": [0.5]},
            },
            "behave": {"stream_interval": 2},
            "fault": {"kind": "reject", "status": 503},
        }
        state = client.post("/_sim", json=script).json()
        assert (state["drafter"]["method"], state["drafter"]["acceptance"]) == ("eagle", {"math": [0.5]})
        assert state["behaviour"]["stream_interval"] == 2
        assert client.post(CHAT, json=body()).status_code == 503
        client.post("/_sim", json={"fault": {"kind": "cut", "times": None}, "clear_faults": True})
        assert client.post(CHAT, json=body()).status_code == 200
        assert client.post("/_sim", json={"restart": {"target": "models/t2"}}).json()["target"] == "models/t2"
        assert client.post("/_sim", json={"traffic": {"requests": 2}}).json()["finished"] == {"length": 2}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"reboot": True}, "no command 'reboot'; known are drafter"),
        ({"behave": {"speed": 1}}, "behaviour: .*'speed'"),
        ({"fault": {"kind": "flood"}}, "'flood' is not a valid FaultKind"),
        ({"fault": {"kind": "cut", "when": 1}}, "fault has no 'when'; known are after_chunks"),
        ({"drafter": {"method": "medusa"}}, "'medusa' is not known"),
        ({"restart": {"colour": "red"}}, "restart: .*'colour'"),
        ([], "JSON object"),
    ],
)
def test_a_wrong_script_is_refused_with_its_reason(script: object, message: str) -> None:
    with running() as (_, client):
        answer = client.post("/_sim", json=script)
        assert answer.status_code == 400
        with pytest.raises(UsageError, match=message):
            raise UsageError(answer.json()["error"])


def test_it_speaks_tls_with_a_given_certificate(tmp_path: Path) -> None:
    certfile, keyfile = self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(certfile))
    with SimulatedServer().run_in_thread(certfile=certfile, keyfile=keyfile) as url:
        assert url.startswith("https://")
        with httpx.Client(base_url=url, verify=context) as client:
            contract.check_stream(stream(client), "chat", contract.Expected(k=4))


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simulator")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    certfile, keyfile = folder / "cert.pem", folder / "key.pem"
    certfile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    keyfile.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return certfile, keyfile


def test_it_stands_alone_as_a_process_and_leaves_when_told(tmp_path: Path) -> None:
    (tmp_path / "math.jsonl").write_text('{"question_id": "m1", "category": "math", "turns": ["solve this"]}\n')
    options = ["--drafter", '{"acceptance": {"math": [0.0]}}', "--probes", str(tmp_path), "--model", "m"]
    command = [sys.executable, "-m", "monitor.sim", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            with httpx.Client(base_url=process.stdout.readline().strip()) as client:
                answer = contract.record(client, "chat", contract.streaming_body("chat", "m", "solve this", 20))
            assert contract.counts_of(answer)["mean_acceptance_length"] == 1.0
        finally:
            process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        process.wait(10)
        assert time.monotonic() - started < 5
