from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from monitor.probing.responses import Refusal

URL = "http://vllm:8000/v1/chat/completions"
NOW = datetime(2026, 12, 2, 12, 0, 0, tzinfo=UTC)


def refusal(status: int, body: object = "", **headers: str) -> Refusal:
    text = body if isinstance(body, str) else json.dumps(body)
    return Refusal(URL, status, {name.replace("_", "-"): value for name, value in headers.items()}, text)


def vllm_error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "X", "code": 400}}


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (401, "Unauthorized", "unauthorized"),
        (403, "no", "unauthorized"),
        (404, "The model `nope` does not exist. Valid aliases: tiny.", "model_not_served"),
        (404, "Not Found", "not_found"),
        (405, "Method Not Allowed", "not_found"),
        (400, "This model's maximum context length is 1024 tokens. However, your prompt …", "context_too_long"),
        (400, "max_tokens=2000 cannot be greater than max_model_len=1024.", "context_too_long"),
        (400, "The min_p and logit_bias sampling parameters are not yet supported …", "bad_request"),
        (422, "no", "bad_request"),
        (429, "slow down", "rate_limited"),
        (500, "EngineCore encountered an issue.", "server_error"),
        (503, "busy", "server_error"),
        (307, "", "not_openai"),
    ],
)
def test_a_status_with_its_message_has_one_meaning(status, message, reason):
    error = refusal(status, vllm_error(message)).error()
    assert error.reason == reason
    assert str(error).startswith(f"{URL}: answered {status}: {message.rstrip('.')}"[:-2])


@pytest.mark.parametrize(
    "body", [{"detail": "Not Found"}, {"message": "Not Found"}, {"error": "Not Found"}, "Not\nFound"]
)
def test_the_message_is_found_wherever_servers_put_it(body):
    assert refusal(404, body).message == "Not Found"


def test_a_web_page_is_not_quoted():
    assert str(refusal(502, "<html><body>Bad Gateway</body></html>").error()) == (
        f"{URL}: answered 502; look at the server's log"
    )


def test_a_long_message_is_cut_to_one_line():
    assert len(refusal(400, vllm_error("x " * 1000)).message) == 300


def test_a_redirect_says_where_to():
    assert "answered 308 to https://elsewhere/;" in str(refusal(308, location="https://elsewhere/").error())


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("31", None),
        ("Wed, 02 Dec 2026 12:00:10 GMT", 10.0),
        ("Wed, 02 Dec 2026 11:00:00 GMT", 0.0),
        ("soon", 1.0),
    ],
)
def test_a_rate_limit_is_waited_out_when_it_is_short(asked, pause):
    assert refusal(429, retry_after=asked).pause_seconds(0, NOW) == pause


def test_a_rate_limit_is_waited_out_three_times():
    assert [refusal(429).pause_seconds(attempt, NOW) for attempt in range(4)] == [1.0, 2.0, 4.0, None]


def test_an_error_of_the_server_is_tried_once_more_and_one_of_ours_never():
    assert [refusal(500).pause_seconds(attempt, NOW) for attempt in range(2)] == [0.5, None]
    assert refusal(400).pause_seconds(0, NOW) is None


def test_a_body_nested_too_deeply_is_quoted_like_any_other_text():
    assert refusal(500, "[" * 100_000).message.startswith("[[[")
