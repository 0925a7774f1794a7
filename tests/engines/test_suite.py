"""The suite itself: no test hides another, and each is a sentence."""

from collections import Counter

from dovetail.testing.conformance import Conformance


def names_of_tests(area: type) -> list[str]:
    return [name for name in vars(area) if name.startswith("test_")]


def test_no_area_hides_a_test_of_another() -> None:
    counts = Counter(name for area in Conformance.__mro__ for name in names_of_tests(area))
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_area_has_tests() -> None:
    assert all(names_of_tests(area) for area in Conformance.__bases__)
