"""The life of an incident: by example, and against a model that only remembers what happened."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.incidents import BrokenDomain, IncidentState, Transition, covers, on_confirmed, on_judged
from monitor.core.judge import Outcome, Verdict

WELL = IncidentState()
RULE = "acceptance-drop"


def verdict(above_resolve_line: bool | None) -> Verdict:
    """A verdict of a valid run, or of an invalid one for None."""
    outcome = Outcome.INVALID if above_resolve_line is None else Outcome.OK
    return Verdict(outcome, "", "acceptance_length", 0.15, above_resolve_line=above_resolve_line)


def broken(**domains: BrokenDomain) -> IncidentState:
    return IncidentState(domains)


def test_the_first_confirmed_drop_opens_the_incident() -> None:
    state, transition = on_confirmed(WELL, "coding", RULE, "page")
    assert transition is Transition.OPENED
    assert state == broken(coding=BrokenDomain(RULE, "page", 0))


def test_a_second_domain_updates_the_incident() -> None:
    state, transition = on_confirmed(broken(coding=BrokenDomain(RULE, "page")), "math", RULE, "page")
    assert transition is Transition.UPDATED
    assert sorted(state.domains) == ["coding", "math"]


def test_a_warning_that_becomes_a_page_updates_the_incident() -> None:
    state, transition = on_confirmed(broken(coding=BrokenDomain("mild", "warning", 1)), "coding", RULE, "page")
    assert transition is Transition.UPDATED
    assert state == broken(coding=BrokenDomain(RULE, "page", 0))
    assert state.severity == "page"


def test_a_page_that_is_also_worth_a_warning_says_nothing_but_starts_healing_anew() -> None:
    state, transition = on_confirmed(broken(coding=BrokenDomain(RULE, "page", 1)), "coding", "mild", "warning")
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
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page")), "coding", RULE, verdict(True), 2)
    assert (state.domains["coding"].well_runs, transition) == (1, None)


def test_the_second_well_run_in_a_row_resolves() -> None:
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page", 1)), "coding", RULE, verdict(True), 2)
    assert (state, transition) == (WELL, Transition.RESOLVED)


def test_a_run_below_the_resolve_line_starts_the_count_again() -> None:
    state, transition = on_judged(broken(coding=BrokenDomain(RULE, "page", 1)), "coding", RULE, verdict(False), 2)
    assert (state.domains["coding"].well_runs, transition) == (0, None)


def test_an_invalid_run_moves_nothing() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "coding", RULE, verdict(None), 2) == (before, None)


def test_only_the_rule_that_broke_the_domain_heals_it() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "coding", "mild", verdict(True), 2) == (before, None)


def test_a_run_of_a_domain_that_is_not_broken_moves_nothing() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1))
    assert on_judged(before, "math", RULE, verdict(True), 2) == (before, None)


def test_a_healed_domain_leaves_the_incident_open_for_the_others() -> None:
    before = broken(coding=BrokenDomain(RULE, "page", 1), math=BrokenDomain(RULE, "page"))
    state, transition = on_judged(before, "coding", RULE, verdict(True), 2)
    assert (state, transition) == (broken(math=BrokenDomain(RULE, "page")), None)


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
    state, known = WELL, set[str]()
    for number, happening in enumerate(past, 1):
        if happening.confirmed:
            state, told = on_confirmed(state, happening.domain, RULE, "page")
        else:
            state, told = on_judged(state, happening.domain, RULE, verdict(happening.well), runs_to_resolve)
        now = {domain for domain in ("coding", "math", "qa") if is_broken(past[:number], domain, runs_to_resolve)}
        assert set(state.domains) == now
        assert told is expected_message(known, now)
        known = now


def expected_message(before: set[str], now: set[str]) -> Transition | None:
    if now > before:
        return Transition.UPDATED if before else Transition.OPENED
    return Transition.RESOLVED if before and not now else None
