from __future__ import annotations

import pytest

from monitor.probing.drafting import Drafting


@pytest.mark.parametrize(
    ("drafting", "every_step"),
    [
        (Drafting("eagle"), True),
        (Drafting("ngram"), False),
        (Drafting(None), None),
        (Drafting("homemade"), None),
        (Drafting(None, share=0.4), False),
        (Drafting(None, share=0.99, full=True), True),
        (Drafting(None, share=0.99, full=False), None),
        (Drafting("eagle", share=0.4), False),
        (Drafting("eagle", share=1.0, full=False), True),
        (Drafting("ngram", share=1.0, full=True), False),
    ],
)
def test_what_the_counters_show_weighs_more_than_a_name_except_where_the_name_rules_acceptance_out(
    drafting, every_step
):
    assert drafting.every_step is every_step


def test_nothing_is_said_where_acceptance_length_is_right():
    assert Drafting("eagle").warnings() == []
    assert Drafting(None, share=1.0, full=True).warnings() == []


def test_an_assumption_is_said_with_how_to_end_it():
    (warning,) = Drafting(None).warnings()
    assert warning == (
        "acceptance length assumes a method that drafts at every step, which the server does not tell; declare it with "
        "--method, or as identity.method in routes.yaml: draft_model, eagle, mtp, ngram or suffix"
    )
    (warning,) = Drafting("homemade").warnings()
    assert "of method 'homemade' this is not known" in warning


def test_drafts_shorter_than_k_leave_the_acceptance_length_and_take_the_rate():
    (warning,) = Drafting(None, share=0.99, full=False).warnings()
    assert warning == (
        "the server's counters show drafts of fewer than K tokens: the stream shows acceptance length, and no "
        "acceptance rate; the latter needs counts per request, or source counters"
    )


def test_steps_without_a_draft_are_shown_with_their_share():
    shown, needed = Drafting(None, share=0.37).warnings()
    assert shown == (
        "the server's counters show a draft in 37% of the decode steps: the stream shows tokens per step and no "
        "acceptance length"
    )
    assert "declare it with --method" in needed
