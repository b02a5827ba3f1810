"""Counts by labels start at zero for what is known."""

from __future__ import annotations

from monitor.core.tally import Tally


def test_what_is_known_is_there_at_zero_and_what_is_not_when_it_first_happens() -> None:
    tally = Tally({"receiver": ["hook", "log"], "reason": ["error"]})
    assert tally.labels == ("receiver", "reason")
    assert tally.counts == {("hook", "error"): 0, ("log", "error"): 0}
    tally.add("hook", "error")
    tally.add("gone", "removed")
    assert tally.counts == {("hook", "error"): 1, ("log", "error"): 0, ("gone", "removed"): 1}
    assert tally.total == 2
