"""Which servers a gate that is asked over HTTP may call."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from monitor.config.gates import Gates


def gates(*candidates: str) -> Gates:
    return Gates.model_validate({"candidates": list(candidates)})


@pytest.mark.parametrize(
    ("url", "candidates"),
    [
        ("http://vllm-canary:8000", ["vllm-canary"]),
        ("http://VLLM-Canary.:8000", ["vllm-canary"]),
        ("https://a.b.canary.svc/prefix", ["*.canary.svc"]),
        ("http://10.20.3.4:8000", ["10.20.0.0/16"]),
        ("http://10.20.3.4:8000", ["other", "10.20.3.4"]),
        ("http://[::ffff:10.20.3.4]:8000", ["10.20.0.0/16"]),
        ("http://[fd00::7]:8000", ["fd00::/8"]),
        ("http://anything:8000", ["*"]),
    ],
)
def test_what_is_named_is_admitted(url: str, candidates: list[str]) -> None:
    assert gates(*candidates).admits(url)


@pytest.mark.parametrize(
    ("url", "candidates"),
    [
        ("http://vllm-canary.evil.example:8000", ["vllm-canary"]),
        ("http://canary.svc:8000", ["*.canary.svc"]),
        ("http://evilcanary.svc:8000", ["*.canary.svc"]),
        ("http://evil.example\\.canary.svc", ["*.canary.svc"]),
        ("http://evil.example%2f.canary.svc", ["*.canary.svc"]),
        ("http://127.0.0.1:8000", ["10.0.0.0/8", "vllm-canary"]),
        ("http://169.254.169.254", ["*.canary.svc"]),
        ("http://2130706433:8000", ["127.0.0.0/8"]),
        ("http://0x7f.1:8000", ["127.0.0.0/8"]),
        ("http://localhost:8000", ["127.0.0.0/8"]),
    ],
)
def test_what_is_not_named_is_refused_also_where_it_only_looks_alike(url: str, candidates: list[str]) -> None:
    assert not gates(*candidates).admits(url)


def test_unset_admits_any_host() -> None:
    assert Gates().admits("http://anything:8000")


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        ("http://vllm-canary:8000", "'http://vllm-canary:8000' is neither a host nor a network"),
        ("vllm-canary:8000", "without a scheme and port"),
        ("10.0.0.7/8", "did you mean '10.0.0.0/8'?"),
        ("10.0.0.300", "neither a host nor a network"),
        ("vllm-*", "neither a host nor a network"),
        ("", "neither a host nor a network"),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_is(candidate: str, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        gates(candidate)
    assert told in str(caught.value)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValidationError):
        gates()
