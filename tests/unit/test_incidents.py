"""The life of an incident: by example, and against a model that only remembers what happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.incidents import (
    BrokenDomain,
    IncidentState,
    Transition,
    covers,
    may_reopen,
    on_configured,
    on_confirmed,
    on_judged,
)
from monitor.core.judge import Line, Outcome, Verdict, judge_resolution
from tests.factories import START, make_candidate, make_reference

WELL = IncidentState()
RULE = "acceptance-drop"
NOW = START
LATER = START + timedelta(hours=2)


def verdict(above_resolve_line: bool | None) -> Verdict:
    """A verdict of a valid run, or of an invalid one for None."""
    outcome = Outcome.INVALID if above_resolve_line is None else Outcome.OK
    return Verdict(outcome, "", "acceptance_length", 0.15, above_resolve_line=above_resolve_line)


def broken(**domains: BrokenDomain) -> IncidentState:
    return IncidentState(domains)


def left(**domains: BrokenDomain) -> IncidentState:
    return IncidentState({}, domains)


def lost(share: float, *run_ids: int) -> Verdict:
    """A judged verdict of runs that lost this share of a baseline of 2.4."""
    runs = [make_candidate(2.4 * (1 - share), id=run_id) for run_id in run_ids]
    return judge_resolution(runs, make_reference(2.4), Line("acceptance_length", 0.15))


def test_the_first_confirmed_drop_opens_the_incident() -> None:
    state, transition = on_confirmed(WELL, "coding", RULE, "page", verdict(False), NOW)
    assert transition is Transition.OPENED
    assert state == broken(coding=BrokenDomain(RULE, "page", 0, joined_at=NOW))


def test_a_second_domain_updates_the_incident() -> None:
    state, transition = on_confirmed(
        broken(coding=BrokenDomain(RULE, "page")), "math", RULE, "page", verdict(False), NOW
    )
    assert transition is Transition.UPDATED
    assert sorted(state.domains) == ["coding", "math"]


def test_a_warning_that_becomes_a_page_updates_the_incident() -> None:
    state, transition = on_confirmed(
        broken(coding=BrokenDomain("mild", "warning", 1)), "coding", RULE, "page", verdict(False), NOW
    )
    assert transition is Transition.UPDATED
    assert state == broken(coding=BrokenDomain(RULE, "page", 0))
    assert state.severity == "page"


def test_a_page_that_is_also_worth_a_warning_says_nothing_but_starts_healing_anew() -> None:
    state, transition = on_confirmed(
        broken(coding=BrokenDomain(RULE, "page", 1)), "coding", "mild", "warning", verdict(False), NOW
    )
    assert transition is None
    assert state == broken(coding=BrokenDomain(RULE, "page", 0))


@pytest.mark.parametrize(
    ("known", "asked", "covered"),
    [("page", "page", True), ("page", "warning", True), ("warning", "warning", True), ("warning", "page", False)],
)
def test_an_incident_covers_trips_that_are_no_severer(known: str, asked: str, covered: bool) -> None:
    state = broken(coding=BrokenDomain(RULE, known))
    assert covers(state, "coding", asked) is covered
    assert covers(state, "math", asked) is False


def test_an_incident_is_as_severe_as_its_severest_domain() -> None:
    state = broken(coding=BrokenDomain("mild", "warning"), math=BrokenDomain(RULE, "page"))
    assert state.severity == "page"


def test_one_well_run_is_not_enough_to_resolve() -> None:
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page")), "coding", RULE, verdict(True), 2, NOW)
    assert (state.domains["coding"].well_runs, transition) == (1, None)


def test_the_second_well_run_in_a_row_resolves() -> None:
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page", 1)), "coding", RULE, verdict(True), 2, NOW)
    assert (state, transition) == (left(coding=BrokenDomain(RULE, "page", 2, left_at=NOW)), Transition.RESOLVED)


def test_a_run_below_the_resolve_line_starts_the_count_again() -> None:
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page", 1)), "coding", RULE, verdict(False), 2, NOW)
    assert (state.domains["coding"].well_runs, transition) == (0, None)


def test_an_invalid_run_moves_nothing() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "coding", RULE, verdict(None), 2, NOW) == (before, None)


def test_only_the_rule_that_broke_the_domain_heals_it() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "coding", "mild", verdict(True), 2, NOW) == (before, None)


def test_a_run_of_a_domain_that_is_not_broken_moves_nothing() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "math", RULE, verdict(True), 2, NOW) == (before, None)


def test_a_healed_domain_leaves_the_incident_open_for_the_others() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1), math=BrokenDomain(RULE, "page"))
    state, transition = on_judged(before, "coding", RULE, verdict(True), 2, NOW)
    assert (state.domains, transition) == ({"math": BrokenDomain(RULE, "page")}, None)
    assert state.left == {"coding": BrokenDomain(RULE, "page", 2, left_at=NOW)}


def test_an_incident_remembers_the_worst_figure_of_each_domain_and_when_it_joined_and_left() -> None:
    state, _ = on_confirmed(WELL, "coding", RULE, "page", lost(0.2, 31, 33, 34), NOW)
    state, _ = on_judged(state, "coding", RULE, lost(0.3, 35), 2, LATER)
    state, _ = on_judged(state, "coding", RULE, lost(0.25, 36), 2, LATER)
    for run_id in (37, 38):
        state, transition = on_judged(state, "coding", RULE, lost(0.01, run_id), 2, LATER)
    assert (transition, dict(state.domains)) == (Transition.RESOLVED, {})
    coding = state.left["coding"]
    assert (coding.joined_at, coding.left_at) == (NOW, LATER)
    assert coding.worst is not None
    assert (coding.worst.metric, coding.worst.run_ids) == ("acceptance_length", (35,))
    assert (coding.worst.change, coding.worst.value, coding.worst.baseline_value) == pytest.approx((-0.3, 1.68, 2.4))


def test_a_domain_that_breaks_again_is_back_with_its_history() -> None:
    state, _ = on_confirmed(WELL, "coding", RULE, "page", lost(0.3, 31), NOW)
    state, _ = on_confirmed(state, "math", RULE, "page", lost(0.2, 32), NOW)
    state = state.without({"coding"}, LATER)
    state, transition = on_confirmed(state, "coding", RULE, "page", lost(0.2, 40), LATER)
    assert transition is Transition.UPDATED
    coding = state.domains["coding"]
    assert (sorted(state.domains), dict(state.left)) == (["coding", "math"], {})
    assert (coding.joined_at, coding.left_at, coding.worst and coding.worst.run_ids) == (NOW, None, (31,))
    assert (coding.rejoined_at, state.domains["math"].rejoined_at) == (LATER, None)


def test_what_breaks_again_after_the_end_reopens_with_its_history() -> None:
    ended = left(coding=BrokenDomain(RULE, "page", 2, joined_at=NOW, left_at=NOW))
    state, transition = on_confirmed(ended, "math", RULE, "page", verdict(False), LATER)
    assert transition is Transition.REOPENED
    assert (list(state.domains), list(state.left)) == (["math"], ["coding"])


@pytest.mark.parametrize(
    ("was", "severity", "after", "reopens"),
    [
        ("page", "page", timedelta(minutes=29), True),
        ("page", "page", timedelta(minutes=30), False),
        ("page", "warning", timedelta(minutes=1), False),
        ("warning", "page", timedelta(minutes=1), True),
    ],
)
def test_only_what_is_no_milder_and_comes_soon_reopens(
    was: str, severity: str, after: timedelta, reopens: bool
) -> None:
    ended = left(coding=BrokenDomain(RULE, was, 2, left_at=NOW))
    assert may_reopen(ended, severity, NOW, NOW + after, timedelta(minutes=30)) is reopens


def test_an_incident_stays_as_severe_as_it_ever_was() -> None:
    state = broken(coding=BrokenDomain(RULE, "page"), math=BrokenDomain("mild", "warning"))
    assert state.without({"coding"}, NOW).severity == "page"


def test_a_domain_that_is_configured_no_more_leaves_the_incident() -> None:
    before = broken(coding=BrokenDomain(RULE, "page"), math=BrokenDomain(RULE, "page"))
    state, transition = on_configured(before, ["math", "qa"], NOW)
    assert (list(state.domains), state.left["coding"].left_at, transition) == (["math"], NOW, None)


def test_an_incident_whose_last_domain_is_configured_no_more_is_over() -> None:
    state, transition = on_configured(broken(coding=BrokenDomain(RULE, "page")), [], NOW)
    assert (dict(state.domains), list(state.left), transition) == ({}, ["coding"], Transition.RESOLVED)


def test_an_incident_whose_domains_are_all_configured_stays_as_it_is() -> None:
    before = broken(coding=BrokenDomain(RULE, "page"))
    assert on_configured(before, ["coding", "math"], NOW) == (before, None)


@dataclass(frozen=True)
class Happening:
    """Something that happened to a domain: a drop was confirmed, or a run was judged well, ill or invalid (None)."""

    domain: str
    confirmed: bool
    well: bool | None


happenings = st.lists(
    st.builds(Happening, st.sampled_from(["coding", "math", "qa"]), st.booleans(), st.sampled_from([True, False, None]))
)


def is_broken(past: list[Happening], domain: str, runs_to_resolve: int) -> bool:
    """The model: since the last confirmed drop there were never `runs_to_resolve` well runs in a row."""
    its_own = [h for h in past if h.domain == domain and (h.confirmed or h.well is not None)]
    confirmations = [n for n, h in enumerate(its_own) if h.confirmed]
    if not confirmations:
        return False
    since = "".join("+" if h.well else "-" for h in its_own[confirmations[-1] + 1 :])
    return "+" * runs_to_resolve not in since


@given(happenings, st.integers(1, 3))
def test_any_history_leads_to_the_state_and_messages_of_the_model(past: list[Happening], runs_to_resolve: int) -> None:
    state, known, ever = WELL, set[str](), False
    for number, happening in enumerate(past, 1):
        if happening.confirmed:
            state, told = on_confirmed(state, happening.domain, RULE, "page", verdict(False), NOW)
        else:
            state, told = on_judged(state, happening.domain, RULE, verdict(happening.well), runs_to_resolve, NOW)
        now = {domain for domain in ("coding", "math", "qa") if is_broken(past[:number], domain, runs_to_resolve)}
        assert set(state.domains) == now
        assert told is expected_message(known, now, ever)
        known, ever = now, ever or bool(now)


def expected_message(before: set[str], now: set[str], ever: bool) -> Transition | None:
    if now > before and not before:
        return Transition.REOPENED if ever else Transition.OPENED
    if now > before:
        return Transition.UPDATED
    return Transition.RESOLVED if before and not now else None


def test_a_drafter_that_dies_in_a_domain_that_had_dropped_is_told_once() -> None:
    dropped = broken(coding=BrokenDomain(RULE, "page", joined_at=NOW))
    assert covers(dropped, "coding", "page")
    assert not covers(dropped, "coding", "page", absolute=True)
    dead, transition = on_confirmed(dropped, "coding", "dead", "warning", verdict(False), LATER, absolute=True)
    assert transition is Transition.UPDATED
    known = dead.domains["coding"]
    assert (known.rule, known.severity, known.absolute, known.joined_at) == ("dead", "page", True, NOW)
    assert covers(dead, "coding", "page", absolute=True)
    assert covers(dead, "coding", "page"), "a drop of what is dead is no news"
