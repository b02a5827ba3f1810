from __future__ import annotations

from monitor.core.records import Identity, Sampling, Source
from monitor.engines.base import Load
from monitor.engines.counts import Reading, counts_of, show_steps
from monitor.engines.openai import OpenAIEngine
from monitor.errors import TargetError
from tests.engines import FixtureReplica, answer_of, events, now

ENGINE = OpenAIEngine()
SERVER = FixtureReplica("openai")


def test_the_request_holds_nothing_that_a_strict_server_refuses():
    body = ENGINE.body("chat", [("user", "Hi")], Sampling(seed=7, max_tokens=64), "salt")
    assert body == {
        "model": "chat",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
    }


def test_steps_are_told_from_the_running_usage():
    answer = answer_of(ENGINE, events("openai"))
    assert answer.chunk_tokens == [1, 3, 2, 4, 1, 2]
    counts = counts_of(answer, Reading(Source.STREAM))
    assert (counts.steps, counts.accepted, counts.histogram) == (4, 6, (1, 1, 1, 1))
    assert show_steps([answer])


def test_a_server_that_streams_token_by_token_shows_no_steps():
    assert not show_steps([answer_of(ENGINE, events("openai", "stream_by_token"))])


def test_only_the_models_are_observed():
    look = now(ENGINE.observe(SERVER, None, Identity()))
    assert (look.model, look.identity, look.glance.load) == ("chat", Identity(model="chat"), Load())
    assert look.glance.speculates is None
    assert (look.notes, look.cold_notes) == (
        (),
        ("this server has no cache_salt: a cold run may meet what an earlier one left in its cache",),
    )


def test_there_are_no_counters_that_could_be_read():
    found = now(ENGINE.glance(SERVER, "chat")).counters
    assert isinstance(found, TargetError)
    assert (found.reason, "nothing is known of this server's counters" in str(found)) == ("no_counters", True)
