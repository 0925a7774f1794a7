"""A process whose bodies ignore their cancellation makes room for another, once its metrics have told of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.observe.health import Vitals
from dovetail.worker import deafness
from dovetail.worker.deafness import Deafness


def vitals(deaf: int, *, is_helpless: bool = False) -> Vitals:
    return Vitals(timedelta(), True, deaf, False, deaf=deaf, is_helpless=is_helpless)


def test_one_who_hears_stays():
    assert Deafness(lambda: None).reason_to_go(vitals(0)) is None
    assert Deafness(lambda: None).reason_to_go(None) is None


def test_it_goes_at_once_if_nobody_could_fetch_the_metrics():
    assert Deafness(lambda: None).reason_to_go(vitals(2)) == "2 runs were cancelled and go on"


def test_it_goes_once_the_metrics_were_fetched():
    fetches = 5
    deaf = Deafness(lambda: fetches)
    assert deaf.reason_to_go(vitals(1)) is None
    assert deaf.reason_to_go(vitals(1)) is None
    fetches += 1
    assert deaf.reason_to_go(vitals(1)) is not None


def test_a_fetch_before_it_was_noticed_does_not_count():
    fetches = 5
    deaf = Deafness(lambda: fetches)
    assert deaf.reason_to_go(vitals(1)) is None
    assert deaf.reason_to_go(vitals(0)) is None  # it has ended after all
    fetches += 1
    assert deaf.reason_to_go(vitals(1)) is None


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch):
    deaf = Deafness(lambda: 0)
    assert deaf.reason_to_go(vitals(1)) is None
    monkeypatch.setattr(deafness, "TELLING", 0.0)
    assert deaf.reason_to_go(vitals(1)) is not None


def test_it_does_not_wait_if_no_slot_is_left():
    assert Deafness(lambda: 0).reason_to_go(vitals(1, is_helpless=True)) is not None
