"""`specwatch probe`, against simulated servers over real HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import ConfigError, StoreError, TargetError
from monitor.sim.behaviour import Fault, FaultKind
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer


def probe(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["probe", *arguments], env=environment)


def test_the_table_has_a_line_for_every_domain_and_fits_a_terminal(url):
    result = probe(url, "--prompts", "2")
    first, _, *lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert first == "valid 2/2 · source request"
    assert " ".join(lines[0].split()) == "domain AL (mean) survival AR tok/step tok/s TTFT"
    assert [line.split()[0] for line in lines[2:13]] == [
        "coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem", "summarization",
        "writing",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("engine vllm · version 0.32.0 · model tiny") for line in lines)


def test_a_domain_with_prompts_of_several_lengths_has_its_figures_by_context(url):
    result = probe(url, "--domain", "rag", "--domain", "roleplay")
    document = json.loads(probe(url, "--domain", "rag", "--format", "json").stdout)
    (domain,) = document["domains"]
    assert [bucket["source"] for bucket in domain["by_context"]] == ["request"] * len(domain["by_context"])
    assert sum(bucket["prompts"] for bucket in domain["by_context"]) == domain["prompts_valid"]
    assert sum(bucket["steps"] for bucket in domain["by_context"]) == domain["steps"]
    shown = result.stdout.partition("prompt tokens")[2]
    assert re.findall(r"^rag +(\S+)", shown, re.MULTILINE) == ["256–1k", "1k–4k"]


def test_the_json_has_identity_figures_and_raw_counts(url):
    result = probe(url, "--prompts", "3", "--domain", "math", "--domain", "coding", "--format", "json")
    document = json.loads(result.stdout)
    assert (document["identity"]["model"], document["identity"]["k"]) == ("tiny", 4)
    assert [domain["domain"] for domain in document["domains"]] == ["math", "coding"]
    for domain in document["domains"]:
        own = [sample for sample in document["samples"] if sample["domain"] == domain["domain"]]
        assert len(own) == domain["prompts_valid"] == domain["prompts_total"] == 3
        assert sum(sample["steps"] for sample in own) == domain["steps"]
        assert sum(sample["accepted"] for sample in own) == domain["accepted"]
        assert domain["acceptance_length"] == 1 + domain["accepted"] / domain["steps"]
        assert 1 + sum(domain["survival"]) == pytest.approx(domain["acceptance_length"])
        assert domain["ttft_seconds"].keys() == domain["tokens_per_second"].keys() == {"p50", "p95"}
    assert [warning for warning in document["warnings"] if not warning.startswith("this machine was late")] == []


def test_csv_and_markdown_hold_the_same_figures(url):
    options = ("--prompts", "2", "--domain", "math", "--format")
    (row,) = csv.DictReader(io.StringIO(probe(url, *options, "csv").stdout))
    markdown = probe(url, *options, "markdown").stdout.splitlines()
    assert (row["domain"], row["prompts_valid"], row["source"]) == ("math", "2", "request")
    assert markdown[0].startswith("| domain | AL (mean) |")
    assert markdown[2].startswith("| math |")


def test_a_server_without_the_flag_is_told_how_to_switch_it_on():
    with SimulatedServer(ServerConfig(per_request_counts="none")).run_in_thread() as url:
        result = probe(url, "--prompts", "2", "--domain", "math")
    assert result.exit_code == 0
    assert "warning: counts are estimated from the stream" in result.stderr
    assert "--per-request-spec-decode-metrics summary (vLLM ≥ 0.29)" in result.stderr


def test_invalid_prompts_are_counted_and_the_first_is_explained(server, url):
    server.inject(Fault(FaultKind.CUT))
    result = probe(url, "--prompts", "3", "--domain", "math", "--concurrency", "1")
    assert "2/3" in result.stdout
    assert "warning: math: 1 of 3 prompts are invalid, the first cut_off: http://127.0.0.1" in result.stderr


def test_where_no_terminal_is_each_domain_that_is_done_is_a_line_on_stderr(url):
    result = probe(url, "--prompts", "3", "--domain", "math", "--domain", "coding", "--format", "json")
    assert [line.partition(" in ")[0] for line in result.stderr.splitlines()] == [
        "math is measured: 3 of 6 prompts",
        "coding is measured: 6 of 6 prompts",
    ]
    assert len(json.loads(result.stdout)["domains"]) == 2


def test_nothing_measured_exits_with_13_and_one_message():
    result = probe("http://127.0.0.1:9", "--domain", "math")
    assert result.stderr == ""
    assert isinstance(result.exception, TargetError)
    assert (result.exception.exit_code, result.exception.reason) == (13, "unreachable")
    assert result.stdout == ""


@pytest.mark.parametrize("has_models", [False, True])
def test_a_server_that_answers_no_prompt_of_a_domain_is_not_asked_those_of_the_next(has_models):
    """Whether what it is cannot be read, or only its prompts are refused."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = has_models and self.path == "/v1/models"
            body = b'{"object": "list", "data": [{"id": "m", "object": "model"}]}' if found else b""
            self._answer(200 if found else 404 if has_models else 501, body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path)
            self._answer(501, b"")

        def _answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        result = probe(
            url, "--engine", "openai", "--prompts", "2", "--max-tokens", "8", "--domain", "math", "--domain", "coding"
        )
        server.shutdown()
        thread.join()
    assert isinstance(result.exception, TargetError)
    assert result.exception.reason == "server_error"
    assert "answered 501" in str(result.exception)
    assert result.stderr == ""
    assert asked == ["/v1/chat/completions"] * (2 * 2 if has_models else 0)  # two prompts, each tried twice


def test_figures_are_shown_also_when_they_cannot_be_kept(url):
    unreachable = "postgresql://127.0.0.1:1/x"
    arguments = ["--database-url", unreachable, "probe", url, "--prompts", "2", "--domain", "math", "--save"]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, StoreError)
    assert result.stdout.splitlines()[-2].startswith("engine vllm")


def test_a_warm_probe_meets_what_an_earlier_one_left_in_the_cache_and_a_cold_one_never_does():
    options = ("--prompts", "2", "--domain", "rag", "--format", "json")
    with SimulatedServer(ServerConfig(prompt_tokens_details=True)).run_in_thread() as url:
        found = [json.loads(probe(url, *options, "--cache", cache).stdout) for cache in ("warm", "warm", "cold")]
    cached = [sum(sample["cached_prompt_tokens"] for sample in document["samples"]) for document in found]
    assert [document["sampling"]["cache"] for document in found] == ["warm", "warm", "cold"]
    assert (cached[0], cached[1] > 0, cached[2]) == (0, True, 0)


def test_a_declared_method_is_part_of_the_identity_and_leaves_acceptance_out_of_a_stream():
    options = ("--prompts", "2", "--domain", "math", "--method", "ngram", "--source", "stream")
    with SimulatedServer(ServerConfig(drafter=Drafter(method="ngram"))).run_in_thread() as url:
        result = probe(url, *options, "--format", "json")
    document = json.loads(result.stdout)
    assert (document["identity"]["method"], document["identity"]["declared"]) == ("ngram", ["method"])
    assert document["domains"][0]["acceptance_length"] is None
    assert document["domains"][0]["tokens_per_step"] > 1
    assert "warning: ngram drafts only on a match" in result.stderr


def test_answers_too_short_to_judge_name_the_server_and_what_to_do(url):
    result = probe(url, "--prompts", "2", "--domain", "math", "--max-tokens", "4")
    assert isinstance(result.exception, TargetError)
    assert str(result.exception).startswith(f"{url}: ")
    assert " in an answer of 4 tokens, where 4 are needed; raise max_tokens" in str(result.exception)


def test_a_plain_server_is_said_to_have_no_speculation_and_its_json_is_kept():
    with SimulatedServer(ServerConfig(drafter=Drafter(method=None))).run_in_thread() as url:
        result = probe(url, "--prompts", "2", "--domain", "math", "--format", "json")
    assert isinstance(result.exception, TargetError)
    assert result.exception.reason == "no_speculation"
    assert json.loads(result.stdout)["domains"][0]["invalid_reasons"] == {"no_speculation": 2}


def test_a_replica_that_is_gone_is_not_asked_again_for_every_domain():
    result = probe("http://127.0.0.1:9", "--format", "json")
    assert len(json.loads(result.stdout)["domains"]) == 1


def test_the_key_comes_from_the_environment_or_a_file(tmp_path):
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    options = ("--prompts", "1", "--domain", "math")
    with SimulatedServer(ServerConfig(api_key="s3cret")).run_in_thread() as url:
        assert probe(url, *options, "--api-key-env", "MY_KEY", MY_KEY="s3cret").exit_code == 0
        assert probe(url, *options, "--api-key-env", "MY_KEY", MY_KEY_FILE=str(key)).exit_code == 0
        assert probe(url, *options, "--api-key-file", str(key)).exit_code == 0
        assert isinstance(probe(url, *options).exception, TargetError)
    assert isinstance(probe(url, *options, "--api-key-env", "UNSET").exception, ConfigError)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["localhost:8000"], "is not a server's address"),
        (["http://x:8000/v1"], "goes beyond the server's root"),
        (["http://x", "--domain", "nonsense"], "no domain 'nonsense'; there are: coding, "),
        (["http://x", "--extra-body", "{"], "not JSON"),
        (["http://x", "--extra-body", "[1]"], "write a JSON object"),
        (["http://x", "--header", "no-value"], "write NAME=VALUE"),
        (["http://x", "--api-key-env", "A", "--api-key-file", "b"], "not both"),
        (["http://x", "--prompts", "0"], "Invalid value for '--prompts'"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_allowed(arguments, words):
    result = probe(*arguments)
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_own_prompts_headers_and_body_keys_are_sent(server, url, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"question_id": 1, "category": "mine", "turns": ["Hello there"]}\n')
    result = probe(
        url, "--prompts-dir", str(tmp_path), "--header", "X-Team=chat", "--max-tokens", "30",
        "--extra-body", '{"priority": 10}', "--no-thinking", "--endpoint", "chat", "--format", "json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert [sample["question_id"] for sample in document["samples"]] == ["1"]
    assert document["samples"][0]["completion_tokens"] == 30
    assert document["sampling"]["chat_template_kwargs"] == {"enable_thinking": False}
