"""A route's own figure from its domains."""

import pytest

from monitor.core.figures import mixed


def test_a_mix_weighs_each_domain_by_its_share() -> None:
    assert mixed({"coding": 3.0, "math": 2.0}, {"coding": 0.7, "math": 0.3}) == pytest.approx(2.7)


def test_a_domain_outside_the_mix_does_not_count() -> None:
    assert mixed({"coding": 3.0, "qa": 1.0}, {"coding": 1.0}) == 3.0


@pytest.mark.parametrize("values", [{"coding": 3.0}, {"coding": 3.0, "math": None}])
def test_a_route_half_measured_has_no_figure(values: dict[str, float | None]) -> None:
    assert mixed(values, {"coding": 0.7, "math": 0.3}) is None


def test_no_mix_is_no_figure() -> None:
    assert mixed({"coding": 3.0}, {}) is None
