from __future__ import annotations

from typing import Any

from monitor.core.conditions import conditions_text, telling_conditions
from monitor.core.records import Sampling


def row(**changes: Any) -> dict[str, Any]:
    plain = {"domain": "coding", "method": None, "drafter": "org/drafter", "prompt_set_hash": "0123456789abcdef"}
    return {**plain, "concurrency": 4, "sampling": Sampling().as_dict(), **changes}


def test_rows_of_the_same_conditions_need_no_word_to_tell_them_apart():
    assert telling_conditions([row(), row()]) == {}
    assert telling_conditions([]) == {}


def test_domains_have_prompt_sets_of_their_own_which_tells_nothing():
    assert telling_conditions([row(), row(domain="math", prompt_set_hash="fedcba9876543210")]) == {}


def test_what_differs_within_a_domain_is_named_and_nothing_else():
    rows = [row(), row(sampling=Sampling(cache="warm").as_dict(), concurrency=16), row(domain="math")]
    telling = telling_conditions(rows)
    assert telling == {"coding": ["concurrency", "cache"]}
    assert [conditions_text(one, telling.get(one["domain"], ())) for one in rows] == [
        "concurrency 4, cache cold",
        "concurrency 16, cache warm",
        "",
    ]


def test_prompt_sets_are_shown_by_the_beginning_of_their_hash():
    assert conditions_text(row(), ["prompt set"]) == "prompt set 0123456789ab"


def test_what_a_server_does_not_tell_is_nothing_and_objects_are_json():
    with_tools = row(sampling=Sampling(prompt_keys=("tools",), extra_body=(("top_k", 5),)).as_dict())
    assert telling_conditions([row(), with_tools]) == {"coding": ["prompt_keys", "extra_body"]}
    names = ("method", "prompt_keys", "extra_body")
    assert conditions_text(row(), names) == "method –, prompt_keys –, extra_body {}"
    assert conditions_text(with_tools, names) == 'method –, prompt_keys ["tools"], extra_body {"top_k": 5}'
