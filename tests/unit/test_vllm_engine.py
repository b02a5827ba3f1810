from __future__ import annotations

import pytest

from monitor.core.records import Identity, Sampling
from monitor.engines.base import Load, RequestCounts
from monitor.engines.models import choose_model
from monitor.engines.vllm import VllmEngine, request_counts
from monitor.engines.vllm_identity import identity_of
from monitor.engines.vllm_metrics import draft_positions, load_of, parse, speculates
from monitor.errors import TargetError

ENGINE = VllmEngine()
URL = "http://vllm:8000"
TALK = [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]


def reason_of(call) -> str:
    with pytest.raises(TargetError) as caught:
        call()
    assert str(caught.value).startswith(URL)
    return caught.value.reason


class TestBody:
    def test_a_chat_request_asks_for_everything_that_counting_needs(self):
        sampling = Sampling(max_tokens=64, seed=7, chat_template_kwargs=(("enable_thinking", False),))
        assert ENGINE.body("tiny", TALK, sampling, "salt-1") == {
            "model": "tiny",
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"},
                {"role": "user", "content": "Bye"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
            "max_tokens": 64,
            "temperature": 0.0,
            "seed": 7,
            "cache_salt": "salt-1",
            "chat_template_kwargs": {"enable_thinking": False},
        }
        assert ENGINE.path(sampling) == "/v1/chat/completions"

    def test_a_completion_gets_the_text_alone(self):
        sampling = Sampling(endpoint="completions", seed=None, chat_template_kwargs=(("enable_thinking", False),))
        body = ENGINE.body("tiny", TALK[:1], sampling, None)
        assert body["prompt"] == "Hi"
        assert not {"messages", "seed", "cache_salt", "chat_template_kwargs"} & body.keys()
        assert ENGINE.path(sampling) == "/v1/completions"

    def test_extra_body_has_the_last_word(self):
        body = ENGINE.body("tiny", TALK, Sampling(extra_body=(("priority", 10), ("temperature", 0.5))), None)
        assert (body["priority"], body["temperature"]) == (10, 0.5)


class TestChunk:
    def test_a_chunk_is_read(self):
        chunk = ENGINE.read(
            b'{"choices":[{"index":0,"delta":{"content":"4."},"finish_reason":"stop","stop_reason":null,'
            b'"token_ids":[24,18,1]}],"usage":{"prompt_tokens":12,"completion_tokens":14,'
            b'"prompt_tokens_details":{"cached_tokens":8}}}',
            URL,
        )
        assert (chunk.text, chunk.token_ids, chunk.completion_tokens) == ("4.", (24, 18, 1), 14)
        assert (chunk.prompt_tokens, chunk.cached_prompt_tokens) == (12, 8)
        assert (chunk.finish_reason, chunk.stopped_by_text, chunk.after_the_answer) == ("stop", False, False)

    def test_reasoning_is_counted_but_is_no_text_of_the_answer(self):
        chunk = ENGINE.read(b'{"choices":[{"delta":{"reasoning":"hm"},"token_ids":[5]}]}', URL)
        assert (chunk.text, chunk.token_ids, chunk.bears_tokens) == ("", (5,), True)

    def test_the_chunk_with_the_role_does_not_begin_the_answer(self):
        chunk = ENGINE.read(
            b'{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"completion_tokens":0}}', URL
        )
        assert not chunk.bears_tokens

    def test_the_last_chunk_has_fingerprint_and_counts(self):
        chunk = ENGINE.read(
            b'{"choices":[],"usage":{"completion_tokens":14},"system_fingerprint":"vllm-0.32.0-0b559caa","metrics":'
            b'{"speculative_decoding":{"acceptance_histogram":[3,1,0,0,2],"num_spec_steps":6,"new_key":1,'
            b'"num_accepted_draft_tokens":9,"num_draft_tokens":24,"num_spec_tokens":4}}}',
            URL,
        )
        assert chunk.after_the_answer
        assert chunk.fingerprint == "vllm-0.32.0-0b559caa"
        assert chunk.request_counts == RequestCounts(6, 9, 24, (3, 1, 0, 0, 2), 4)

    def test_a_stop_string_is_told_from_a_stop_token(self):
        assert ENGINE.read(b'{"choices":[{"text":"a","stop_reason":"END"}]}', URL).stopped_by_text
        assert not ENGINE.read(b'{"choices":[{"text":"a","stop_reason":128001}]}', URL).stopped_by_text

    def test_an_error_in_the_stream_is_quoted(self):
        event = b'{"error": {"message": "EngineCore encountered\\nan issue.", "code": 500}}'
        with pytest.raises(TargetError, match="EngineCore encountered an issue") as caught:
            ENGINE.read(event, URL)
        assert caught.value.reason == "error_in_stream"

    @pytest.mark.parametrize("finish_reason", ["abort", "error"])
    def test_an_answer_that_the_server_gave_up_is_a_failure(self, finish_reason):
        event = b'{"choices":[{"delta":{"content":"a"},"token_ids":[7],"finish_reason":"%s"}]}' % finish_reason.encode()
        with pytest.raises(TargetError, match=f"gave up in mid-answer, with finish reason '{finish_reason}'") as caught:
            ENGINE.read(event, URL)
        assert caught.value.reason == "aborted"

    @pytest.mark.parametrize("event", [b'{"choices":', b"\xff\xfe", b"[1]", b"", b"[" * 100_000])
    def test_what_is_not_a_json_object_is_refused(self, event):
        assert reason_of(lambda: ENGINE.read(event, URL)) == "invalid_json"

    @pytest.mark.parametrize(
        "event", [b"{}", b'{"choices":null}', b'{"choices":[null]}', b'{"choices":[{"delta":7}],"usage":"x"}']
    )
    def test_a_strange_chunk_says_nothing_but_is_no_error(self, event):
        chunk = ENGINE.read(event, URL)
        assert (chunk.text, chunk.token_ids, chunk.completion_tokens) == ("", None, None)


class TestRequestCounts:
    def test_k_follows_from_the_histogram_when_it_is_not_told(self):
        told = {"num_spec_steps": 2, "num_accepted_draft_tokens": 1, "acceptance_histogram": [1, 1, 0]}
        assert request_counts(told) == RequestCounts(2, 1, None, (1, 1, 0), 2)

    @pytest.mark.parametrize(
        "told", [{}, {"num_spec_steps": 2}, {"num_spec_steps": True, "num_accepted_draft_tokens": 1}]
    )
    def test_counts_without_steps_or_accepted_tokens_are_none(self, told):
        assert request_counts(told) is None


def card(name: str, root: str | None = None, parent: str | None = None) -> dict[str, object]:
    return {"id": name, "root": root or name, "parent": parent, "owned_by": "vllm", "max_model_len": 1024}


class TestModels:
    def test_the_only_model_is_taken(self):
        assert choose_model({"data": [card("tiny")]}, None, URL)["id"] == "tiny"

    def test_several_names_of_one_model_are_one(self):
        assert choose_model({"data": [card("a", "m"), card("b", "m")]}, None, URL)["id"] == "a"

    def test_of_several_models_one_must_be_named(self):
        listing = {"data": [card("base"), card("lora", "adapter", "base")]}
        with pytest.raises(TargetError, match="several models are served: base, lora; name the one") as caught:
            choose_model(listing, None, URL)
        assert caught.value.reason == "several_models"
        assert choose_model(listing, "lora", URL)["id"] == "lora"

    def test_a_model_that_is_not_served_is_told_with_those_that_are(self):
        with pytest.raises(TargetError, match="model 'x' is not served; served: tiny") as caught:
            choose_model({"data": [card("tiny")]}, "x", URL)
        assert caught.value.reason == "model_not_served"

    @pytest.mark.parametrize("listing", [None, [], {}, {"data": None}])
    def test_an_answer_that_lists_no_models_is_not_openai(self, listing):
        assert reason_of(lambda: choose_model(listing, None, URL)) == "not_openai"

    def test_a_server_without_models_serves_none(self):
        assert reason_of(lambda: choose_model({"data": []}, None, URL)) == "model_not_served"


class TestIdentity:
    def test_card_and_version_make_the_identity(self):
        assert identity_of(card("tiny", "models/t"), {"version": "0.32.0"}, {}) == Identity(
            engine="vllm", version="0.32.0", model="tiny", root="models/t", max_model_len=1024
        )

    def test_server_info_adds_the_configuration(self):
        config = {
            "model_config": {"model": "models/t", "quantization": "fp8"},
            "parallel_config": {"tensor_parallel_size": 2},
            "speculative_config": {"method": "eagle", "model": "models/e", "num_speculative_tokens": 3},
        }
        found = identity_of(card("tiny"), {}, {"vllm_config": config})
        assert (found.target, found.drafter, found.method, found.k) == ("models/t", "models/e", "eagle", 3)
        assert (found.quantization, found.tensor_parallel) == ("fp8", 2)

    def test_a_method_without_a_model_has_no_drafter(self):
        config = {"speculative_config": {"method": "ngram", "model": "ngram", "num_speculative_tokens": 4}}
        assert identity_of(card("tiny"), {}, {"vllm_config": config}).drafter is None

    def test_a_configuration_in_text_is_passed_over(self):
        assert identity_of(card("tiny"), {}, {"vllm_config": "VllmConfig(…)"}).method is None


PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="tiny"} 7.0
process_start_time_seconds 1.79617487778e+09
"""
SPECULATION = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 37917.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="tiny"} 1.7961749401182523e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 28408.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="10"} 18258.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="9"} 13822.0
"""


class TestMetrics:
    def test_load_is_summed_over_the_engines(self):
        assert load_of(parse(PAGE)) == Load(5.0, 4.0, 0.5, 7.0, 1796174877.78)

    def test_positions_are_numbers_not_texts(self):
        assert draft_positions(parse(SPECULATION)) == 11

    def test_speculation_shows_in_its_counters(self):
        assert speculates(parse(PAGE + SPECULATION)) is True
        assert speculates(parse(PAGE)) is False

    def test_a_page_without_any_series_of_vllm_tells_nothing(self):
        assert speculates(parse("python_info 1.0\nprocess_start_time_seconds 1.0\n")) is None

    def test_open_metrics_text_is_read_too(self):
        page = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 2\n# EOF\n"
        assert load_of(parse(page)).running == 2.0

    def test_a_broken_page_tells_nothing(self):
        assert parse('vllm:num_requests_running{engine="0 3.0\n') == {}
        assert load_of({}) == Load()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.28.1", "vLLM 0.28.1 cannot report counts per request; from 0.29 on, start it with"),
        ("0.29.0", "for exact counts start the server with --per-request-spec-decode-metrics summary"),
        ("1.0", "for exact counts start"),
        (None, "for exact counts start"),
        ("dev", "for exact counts start"),
    ],
)
def test_the_advice_fits_the_version(version, expected):
    assert ENGINE.counts_advice(version).startswith(expected)
