"""What a route may say, and what it is told when it may not."""

import re
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from monitor.config.replicas import Discovery, replica_url, targets_of
from monitor.config.routes import Route, RoutesFile
from monitor.config.secrets import Secret

REQUIRED: dict[str, Any] = {"name": "chat-prod", "replicas": ["http://vllm-0:8000"], "domains": ["coding", "math"]}


def route(**keys: Any) -> Route:
    return Route.model_validate(REQUIRED | keys, context={"known_domains": ["coding", "math", "qa"]})


def refusal(**keys: Any) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(ValidationError) as caught:
        route(**keys)
    (error,) = caught.value.errors()
    where = tuple(part for part in error["loc"] if not str(part).startswith("<"))  # as `explain` leaves them out
    return where, error["msg"].removeprefix("Value error, ")


def test_a_route_needs_only_a_name_and_a_replica() -> None:
    plain = route()
    assert plain.every == timedelta(minutes=40)
    assert plain.confirm_after == (timedelta(minutes=5), timedelta(minutes=10))
    assert (plain.max_tokens, plain.concurrency, plain.min_prompts, plain.max_waiting) == (128, 4, 12, 0)
    assert (plain.temperature, plain.seed, plain.thinking) == (0.0, 0, None)
    assert (plain.engine, plain.endpoint, plain.source, plain.cache) == ("vllm", "chat", "auto", "cold")
    assert plain.timeouts.model_dump() == {
        "connect": timedelta(seconds=5),
        "first_token": timedelta(seconds=60),
        "stall": timedelta(seconds=20),
        "total": timedelta(minutes=5),
    }
    assert plain.stand_aside.model_dump() == {
        "retry_after": timedelta(seconds=30),
        "give_up_after": timedelta(minutes=10),
    }
    assert plain.baseline.approve_after is None
    assert (plain.plain_twin, plain.model, plain.api_key, plain.ca_file) == (None, None, None, None)


def test_a_route_cannot_change_after_loading() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        route().every = timedelta(1)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("http://vllm-0:8000", "http://vllm-0:8000"),
        ("HTTP://VLLM-0:8000/", "http://vllm-0:8000"),
        ("https://host/team/chat/", "https://host/team/chat"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_replica_has_one_spelling(written: str, stored: str) -> None:
    assert replica_url(written) == stored


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("vllm-0:8000", "'vllm-0:8000' is not a server's address; write for example http://vllm-0:8000"),
        ("ftp://vllm-0", "'ftp://vllm-0' is not a server's address; write for example http://vllm-0:8000"),
        ("http://", "'http://' is not a server's address; write for example http://vllm-0:8000"),
        ("http://a/v1", "'http://a/v1' goes beyond the server's root; leave out '/v1'"),
        (
            "http://a/x/v1/chat/completions",
            "'http://a/x/v1/chat/completions' goes beyond the server's root; leave out '/v1/chat/completions'",
        ),
        ("http://a/metrics", "'http://a/metrics' goes beyond the server's root; leave out '/metrics'"),
        ("http://a?x=hidden", "'http://a?…' has a query or fragment; write only the server's address"),
        ("http://a b", "'http://a b' has white space in it"),
        (
            "http://a:99999",
            "'http://a:99999' is no URL, or its port is not one from 1 to 65535; write for example http://vllm-0:8000",
        ),
        ("http://me:pw@a", "a URL with a user or password in it is refused; use api_key or headers with a secret"),
    ],
)
def test_what_is_no_server_root_is_refused_as_a_replica(url: str, message: str) -> None:
    assert refusal(replicas=[url]) == (("replicas", 0), message)


def test_a_replica_is_listed_once() -> None:
    location, message = refusal(replicas=["http://a", "http://A/"])
    assert (location, message) == (("replicas",), "'http://a' is listed twice")


def test_a_route_has_at_least_one_replica() -> None:
    assert refusal(replicas=[])[0] == ("replicas",)


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ({"dns": "http://VLLM.svc:8000/"}, "dns"),
        ({"file_sd": "vllm.json"}, "file_sd"),
        ({"http_sd": "https://inventory/vllm?cluster=a"}, "http_sd"),
    ],
)
def test_instead_of_a_list_a_route_says_where_its_replicas_are_found(where: dict[str, str], key: str) -> None:
    found = route(replicas=where).replicas
    assert isinstance(found, Discovery)
    assert found.key == key


def test_what_is_shown_of_where_replicas_are_found_has_no_query() -> None:
    assert Discovery(dns="http://VLLM.svc:8000/").shown == "http://vllm.svc:8000"
    assert Discovery(http_sd="https://inventory/vllm?token=hidden").shown == "https://inventory/vllm?…"


@pytest.mark.parametrize(
    ("where", "location", "message"),
    [
        ({}, (), "give exactly one of dns, file_sd and http_sd"),
        ({"dns": "http://a", "http_sd": "http://b"}, (), "give exactly one of dns, file_sd and http_sd"),
        ({"dns": "vllm.svc"}, ("dns",), "'vllm.svc' is not a server's address; write for example http://vllm-0:8000"),
        ({"http_sd": "inventory"}, ("http_sd",), "this is not an address; write for example http://inventory/vllm"),
        ({"http_sd": "http://me:pw@b"}, ("http_sd",), "a URL with a user or password in it is refused"),
    ],
)
def test_where_replicas_are_found_is_said_in_one_way(
    where: dict[str, str], location: tuple[str, ...], message: str
) -> None:
    assert refusal(replicas=where) == (("replicas", *location), message)


def test_targets_of_prometheus_are_replicas() -> None:
    groups = [
        {"targets": ["b:8000", "a:8000"]},
        {"targets": ["c", "http://d/prefix/"], "labels": {"__scheme__": "https", "env": "prod"}},
        {"targets": ["a:8000"]},
    ]
    assert targets_of(groups) == ("http://a:8000", "http://b:8000", "http://d/prefix", "https://c")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"targets": ["a"]}, "is not a list of groups, such as [{targets: [vllm-0:8000]}]"),
        (None, "is not a list of groups, such as [{targets: [vllm-0:8000]}]"),
        (["a:8000"], "[0] has no list of texts named targets"),
        ([{"targets": []}, {"targets": "a:8000"}], "[1] has no list of texts named targets"),
        ([{"targets": ["a:8000/metrics"]}], "[0].targets: 'http://a:8000/metrics' goes beyond the server's root"),
        ([{"targets": ["a"], "labels": {"__scheme__": 7}}], "[0].targets: '7://a' is not a server's address"),
    ],
)
def test_another_shape_than_that_of_prometheus_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        targets_of(document)


def test_ranks_are_for_vllm_which_has_a_header_that_chooses_one() -> None:
    assert route(data_parallel_ranks=4).data_parallel_ranks == 4
    assert refusal(engine="sglang", data_parallel_ranks=2) == (
        ("data_parallel_ranks",),
        "engine sglang has no header that chooses a rank; only vllm has one",
    )
    assert refusal(data_parallel_ranks=2, headers={"x-data-parallel-rank": "1"}) == (
        ("data_parallel_ranks",),
        "headers names one X-data-parallel-rank for all probes; leave one of the two out",
    )
    assert refusal(data_parallel_ranks=1)[0] == ("data_parallel_ranks",)


def test_the_plain_twin_is_another_server_than_the_replicas() -> None:
    assert refusal(plain_twin="http://vllm-0:8000/") == (
        ("plain_twin",),
        "'http://vllm-0:8000' is one of the replicas; the plain twin is a server without speculation",
    )


@pytest.mark.parametrize("name", ["Chat", "-chat", "chat prod", "chät", "", "a" * 64])
def test_a_name_is_plain(name: str) -> None:
    assert refusal(name=name)[0] == ("name",)


def test_the_weights_of_a_mix_add_up_to_one() -> None:
    assert route(mix={"coding": 3, "math": 1}).mix == {"coding": 0.75, "math": 0.25}


def test_without_a_mix_all_domains_weigh_the_same() -> None:
    assert route().mix == {"coding": 0.5, "math": 0.5}


def test_a_domain_left_out_of_the_mix_does_not_count_for_the_route() -> None:
    assert route(mix={"math": 2}).mix == {"math": 1.0}


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ({"qa": 1}, "'qa' is not among the domains of this route: coding, math"),
        ({"math": 0}, "math weighs 0; write a number above 0, or leave the domain out"),
        ({"math": -1}, "math weighs -1; write a number above 0, or leave the domain out"),
    ],
)
def test_a_mix_is_over_declared_domains_with_weights_above_zero(mix: dict[str, float], message: str) -> None:
    assert refusal(mix=mix) == (("mix",), message)


def test_an_unknown_domain_is_refused_with_those_there_are() -> None:
    assert refusal(domains=["coding", "sports"]) == (
        ("domains",),
        "'sports' is not a prompt set; there are: coding, math, qa",
    )


def test_a_domain_is_listed_once() -> None:
    assert refusal(domains=["coding", "coding"]) == (("domains",), "'coding' is listed twice")


@pytest.mark.parametrize("value", [["5m"], ["5m", "10m", "15m"], "5m", None])
def test_there_are_exactly_two_confirmation_runs(value: object) -> None:
    assert refusal(confirm_after=value) == (
        ("confirm_after",),
        "must be a list of exactly two durations; write for example [5m, 10m]",
    )


@pytest.mark.parametrize("value", [["10m", "5m"], ["5m", "300s"]])
def test_the_second_confirmation_comes_after_the_first(value: list[str]) -> None:
    assert refusal(confirm_after=value)[1].endswith("is not ascending; the second run comes after the first")


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("max_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("cache_salt", "cache"),
        ("model", "model"),
    ],
)
def test_extra_body_may_not_set_what_has_a_key_of_its_own(key: str, instead: str) -> None:
    assert refusal(extra_body={key: 1}) == (
        ("extra_body",),
        f"{key} is set by the probe, from the setting {instead}",
    )


def test_extra_body_may_not_set_what_the_probe_needs() -> None:
    assert refusal(extra_body={"stream": False}) == (("extra_body",), "stream is set by the probe")


def test_extra_body_takes_anything_else() -> None:
    body = {"priority": 10, "guided": {"choice": ["a", None, 1.5]}}
    assert route(extra_body=body).extra_body == body


def test_thinking_is_not_hidden_in_the_template_arguments() -> None:
    assert refusal(chat_template_kwargs={"enable_thinking": True}) == (
        ("chat_template_kwargs",),
        "enable_thinking has a key of its own; use thinking: true or thinking: false",
    )


def test_a_header_is_a_text_or_a_secret() -> None:
    headers = route(headers={"X-Team": "chat", "Authorization": {"env": "KEY"}}).headers
    assert headers == {"X-Team": "chat", "Authorization": Secret(env="KEY")}


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "X-Auth-Token", "Cookie"])
def test_a_credential_in_a_header_is_refused_without_repeating_it(name: str) -> None:
    assert refusal(headers={name: "hunter2"}) == (
        ("headers",),
        f"{name} is a secret; name where it is: {{env: NAME}} or {{file: PATH}}",
    )


@pytest.mark.parametrize("name", ["", "X Team", "X:Team", "Ü"])
def test_a_header_name_is_one_that_http_allows(name: str) -> None:
    assert refusal(headers={name: "a"}) == (("headers",), f"{name!r} is not the name of an HTTP header")


def test_a_header_cannot_smuggle_in_another() -> None:
    assert refusal(headers={"X-Team": "a\r\nX-Other: b"}) == (
        ("headers",),
        "the value of X-Team has characters that an HTTP header cannot carry",
    )


@pytest.mark.parametrize("label", ["route", "domain", "severity", "alertname", "rule", "replica"])
def test_a_label_of_our_own_cannot_be_overwritten(label: str) -> None:
    assert refusal(labels={label: "x"}) == (
        ("labels",),
        f"{label!r} is a label that Specwatch sets itself; choose another name",
    )


@pytest.mark.parametrize("label", ["1st", "a-b", "__name", ""])
def test_a_label_is_one_that_prometheus_allows(label: str) -> None:
    assert refusal(labels={label: "x"}) == (
        ("labels",),
        f"{label!r} is not a label name; use letters, digits and _, no digit or __ first",
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"max_tokens": True},
        {"max_tokens": "128"},
        {"max_tokens": 0},
        {"concurrency": 1.5},
        {"temperature": "0"},
        {"temperature": 2.5},
        {"temperature": float("nan")},
        {"seed": -1},
        {"thinking": "true"},
        {"endpoint": "responses"},
        {"source": "guess"},
        {"cache": "hot"},
        {"max_waiting": -1},
        {"baseline": {"approve_after": 0}},
        {"identity": {"color": "red"}},
        {"timeouts": {"stall": 20}},
        {"labels": {"tier": 1}},
    ],
)
def test_a_value_of_the_wrong_type_is_never_bent_into_shape(keys: dict[str, Any]) -> None:
    assert refusal(**keys)[0][0] == next(iter(keys))


def test_a_route_names_its_engine_and_none_is_guessed() -> None:
    assert route(engine="sglang").engine == "sglang"
    where, message = refusal(engine="auto")
    assert where == ("engine",)
    assert message == "Input should be 'vllm', 'sglang', 'trtllm', 'llamacpp', 'tgi' or 'openai'"


def test_a_warm_pass_is_refused_for_a_drafter_that_learns_from_the_cold_one() -> None:
    assert route(cache="both", identity={"method": "ngram"}).cache == "both"
    assert route(cache="warm", identity={"method": "suffix"}).cache == "warm"
    for engine, method in (("vllm", "suffix"), ("sglang", "ngram")):
        where, message = refusal(cache="both", engine=engine, identity={"method": method})
        assert where == ("identity",)
        assert message == (
            f"method {method} drafts from answers it has seen, so that a warm pass shows them and not the cache; use "
            "cache: cold instead of cache: both"
        )


def test_speedup_is_not_measured_more_often_than_runs_are_made() -> None:
    assert route().speedup_every == timedelta(hours=6)
    assert route(every="12h").speedup_every == timedelta(hours=6)
    assert route(every="30m", speedup_every="30m").speedup_every == timedelta(minutes=30)
    assert refusal(every="40m", speedup_every="10m") == (
        ("speedup_every",),
        "10m is less than every 40m; a measurement of speedup asks for three times what a run does",
    )


def test_samples_are_kept_until_the_runs_of_a_baseline_are_made() -> None:
    def kept(**keys: Any) -> RoutesFile:
        slow = {**REQUIRED, "every": "24h", "baseline": {"approve_after": 10}, **keys}
        return RoutesFile.model_validate({"routes": [slow], "retention": {"samples": "9d"}})

    assert kept(every="40m").retention.samples == timedelta(days=9)
    assert kept(baseline={"approve_after": 9}).retention.samples == timedelta(days=9)
    assert kept(baseline={}).retention.samples == timedelta(days=9)
    with pytest.raises(ValidationError) as caught:
        kept()
    (error,) = caught.value.errors()
    assert (error["loc"], error["msg"]) == (
        ("retention",),
        "Value error, samples are removed after 9d, before chat-prod, which runs every 1d, has the 10 with samples "
        "that its baseline is approved from; keep them for 10d at least, or lower baseline.approve_after",
    )


def test_a_plain_twin_is_nobody_s_replica() -> None:
    plain = {**REQUIRED, "name": "plain", "replicas": ["http://plain:8000"]}
    with pytest.raises(ValidationError, match="the plain twin of chat-prod, is a replica of plain; "):
        RoutesFile.model_validate({"routes": [{**REQUIRED, "plain_twin": "http://plain:8000"}, plain]})
