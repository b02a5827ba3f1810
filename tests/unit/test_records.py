"""The values everything else passes around."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.records import Counts, Identity, Sample, Sampling
from tests.factories import IDENTITY, make_sample

counts = st.builds(
    Counts,
    steps=st.integers(0, 1000),
    drafted=st.none() | st.integers(0, 1000),
    accepted=st.integers(0, 1000),
    histogram=st.lists(st.integers(0, 100), max_size=6).map(tuple),
    decode_steps=st.integers(0, 1000),
)


def test_counts_add_up_step_by_step() -> None:
    assert Counts(10, 30, 12, (3, 4, 1, 2), 11) + Counts(2, 6, 1, (1, 1, 0, 0), 5) == Counts(
        12, 36, 13, (4, 5, 1, 2), 16
    )


def test_histograms_of_different_length_are_added_from_the_front() -> None:
    assert (Counts(histogram=(1,)) + Counts(histogram=(2, 3, 4))).histogram == (3, 3, 4)


def test_what_one_side_cannot_see_the_sum_cannot_see() -> None:
    assert (Counts(drafted=3) + Counts(drafted=None)).drafted is None


@given(counts, counts, counts)
def test_adding_counts_is_associative_and_commutative_and_nothing_changes_nothing(
    a: Counts, b: Counts, c: Counts
) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Counts() == a


def test_a_sample_is_valid_until_a_reason_says_otherwise() -> None:
    assert Sample("q00").valid
    assert not Sample("q00", invalid_reason="stream_cut").valid


def test_records_cannot_be_changed_after_they_were_measured() -> None:
    with pytest.raises(FrozenInstanceError):
        Sample("q00").question_id = "q01"  # type: ignore[misc]


def test_the_document_of_a_sample_holds_the_raw_counts_and_timings() -> None:
    assert make_sample("a", 2.4).as_dict() == {
        "question_id": "a",
        "source": "request",
        "k": 3,
        "steps": 1000,
        "drafted": 3000,
        "accepted": 1400,
        "histogram": [0, 600, 400, 0],
        "decode_steps": 1000,
        "prompt_tokens": 40,
        "cached_prompt_tokens": 0,
        "completion_tokens": 2401,
        "ttft_seconds": 0.05,
        "decode_seconds": 10.0,
        "decode_tokens": 2400,
        "total_seconds": 10.05,
        "chunk_tokens": [[1, 3, 2]],
        "chunk_seconds": [[0.05, 0.06, 0.075]],
        "loop_lag_seconds": 0.001,
        "finish_reason": "length",
        "output_hash": "ab12",
        "invalid_reason": None,
        "invalid_detail": None,
    }


def test_an_identity_reads_back_from_its_document() -> None:
    identity = Identity(engine="vllm", model="m", k=3, tensor_parallel=2, declared=("k", "drafter"))
    assert Identity.from_dict(identity.as_dict()) == identity
    assert identity.as_dict()["declared"] == ["k", "drafter"]


def test_an_identity_stored_before_there_were_declared_fields_reads_back() -> None:
    assert Identity.from_dict({"engine": "vllm", "declared": None}) == Identity(engine="vllm")


def test_a_change_names_each_field_with_both_values() -> None:
    now = Identity(engine="vllm", version="0.30.0", model="my-model", root="org/target", drafter="org/other", k=3)
    assert now.changes_from(IDENTITY) == {
        "version": ("0.29.1", "0.30.0"),
        "drafter": ("org/drafter", "org/other"),
    }


def test_what_is_unknown_on_either_side_is_not_a_change() -> None:
    assert Identity(engine="vllm", k=None, quantization="fp8").changes_from(IDENTITY) == {}


def test_declaring_what_was_observed_before_is_not_a_change() -> None:
    declared = Identity(**{**IDENTITY.as_dict(), "declared": ("k",)})
    assert declared.changes_from(IDENTITY) == {}


def test_sampling_is_written_with_plain_mappings() -> None:
    sampling = Sampling(temperature=0.5, chat_template_kwargs=(("enable_thinking", False),))
    assert sampling.as_dict() == {
        "endpoint": "chat",
        "max_tokens": 128,
        "temperature": 0.5,
        "seed": 0,
        "cache": "cold",
        "chat_template_kwargs": {"enable_thinking": False},
        "extra_body": {},
    }
