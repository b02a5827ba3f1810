"""What a promotion announces of the change from production to the candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.core.bumps import Announced
from monitor.core.promotion import Promotion, announced
from monitor.core.records import Identity

BEFORE = Identity(model="chat", root="/models/v1", version="0.32.0", drafter="org/drafter", fingerprint="a", k=4)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Identity(model="chat", root="/models/v2"), Announced(model="/models/v2")),
        (Identity(model="chat-v2", root="/models/v2"), Announced(model="/models/v2")),
        (Identity(model="chat-v2", root="/models/v1"), Announced()),
        (Identity(model="chat-v2"), Announced(model="chat-v2")),
        (Identity(version="0.33.0", drafter="org/drafter-v2"), Announced(None, "org/drafter-v2", "0.33.0")),
        (Identity(fingerprint="b", k=5), Announced()),
    ],
    ids=["weights", "weights and name", "name alone", "name, weights unseen", "drafter and engine", "unnamed"],
)
def test_it_names_what_both_show_and_differ_in(now: Identity, said: Announced) -> None:
    assert announced(BEFORE, now) == replace(said, candidate=now)


def test_without_an_identity_of_what_served_it_fits_what_the_candidate_showed() -> None:
    now = Identity(model="chat", drafter="org/drafter-v2")
    said = announced(None, now)
    assert said == Announced(candidate=now)
    assert said.fits({"drafter": ("org/drafter", "org/drafter-v2")})
    assert not said.fits({"drafter": ("org/drafter", "org/drafter-v3")})


def test_what_it_says_fits_the_change_that_the_rollout_will_show() -> None:
    now = Identity(model="chat", root="/models/v1", version="0.32.0", drafter="org/drafter-v2", fingerprint="b", k=5)
    assert announced(BEFORE, now).fits(now.changes_from(BEFORE))


def test_a_candidate_like_production_announces_no_other_change() -> None:
    said = announced(BEFORE, BEFORE)
    assert said.named() == {}
    assert not said.fits({"fingerprint": ("a", "c")})


def test_a_promotion_has_one_shape_before_and_after() -> None:
    promotion = Promotion("ann", "https://ci.example.com/42")
    proposed = [{"domain": "math", "id": 7, "run_ids": [1, 2]}]
    done = promotion.done(
        {"id": 3, "route": "chat-prod"}, proposed, ["no baseline of qa: run 5 is not comparable with run 4"]
    )
    assert done.keys() == promotion.pending().keys()
    assert done["text"] == (
        "the bump is announced ('specwatch bumps --route chat-prod' follows it), and 1 baseline proposed; "
        "'specwatch baseline approve 7' approves them once the candidate serves; "
        "no baseline of qa: run 5 is not comparable with run 4"
    )
    assert promotion.pending()["announcement"] is None
