"""Drafting: a call becomes a run, as its task's behaviors plan it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Behavior, PayloadError
from dovetail.codec import codec_named
from dovetail.model import Claim, Conflict, NewRun, Retention
from dovetail.tasks import Drafter, Task

RETENTION = Retention.of(timedelta(minutes=1))


class Prioritized(Behavior):
    """Plans a run by its arguments."""

    single = False

    def __init__(self, by: int = 1) -> None:
        self.by = by

    def plan(self, draft: NewRun, arguments: Any) -> NewRun:
        return draft.but(priority=draft.priority + self.by * arguments.get("level", 0))


async def plain(level: int = 5) -> None: ...


@pytest.fixture
def drafter() -> Drafter:
    return Drafter(codec_named("json"))


def draft(drafter: Drafter, function: Any, *args: Any, **settings: Any) -> NewRun:
    return drafter.draft(Task.of(function), "name", args, {}, retention=RETENTION, **settings)


def test_a_call_without_a_key_is_called_by_its_id(drafter: Drafter):
    run = draft(drafter, plain)
    assert run.key == run.id


def test_a_draft_carries_what_it_was_given(drafter: Drafter):
    due = datetime(2030, 1, 1, tzinfo=UTC)
    run = draft(drafter, plain, key="k", due=due, conflict=Conflict.REPLACE, queue="side", priority=2, group="tenant")
    assert (run.key, run.task, run.due, run.conflict) == ("k", "name", due, Conflict.REPLACE)
    assert (run.queue, run.priority, run.group, run.retention) == ("side", 2, "tenant", RETENTION)


def test_the_arguments_are_in_the_payload(drafter: Drafter):
    run = draft(drafter, plain, 7)
    assert drafter.codec.load_call(Task.of(plain).types, run.payload) == ((7,), {})


def test_an_argument_that_cannot_be_stored_is_refused_by_name(drafter: Drafter):
    with pytest.raises(PayloadError, match="level"):
        draft(drafter, plain, object())


def test_behaviors_plan_by_the_arguments_defaults_included(drafter: Drafter):
    async def task(level: int = 5, one: Prioritized = Prioritized(), ten: Prioritized = Prioritized(10)) -> None: ...

    assert draft(drafter, task, 2, priority=1).priority == 1 + 2 + 20
    assert draft(drafter, task).priority == 5 + 50


def test_a_follower_takes_the_place_of_its_claim(drafter: Drafter):
    claim = Claim("id", 3, "k", "alias", b"", 4, datetime(2030, 1, 1, tzinfo=UTC), "side", 2, "tenant")
    run = drafter.follow(claim, Task.of(plain), timedelta(seconds=5), (7,), {}, RETENTION)
    assert (run.key, run.task, run.queue, run.priority, run.group) == ("k", "alias", "side", 2, "tenant")
    assert (run.due, run.attempt) == (timedelta(seconds=5), 1)
    assert run.id != "id"


def test_a_follower_leaves_a_pending_run_in_peace(drafter: Drafter):
    claim = Claim("id", 3, "k", "t", b"", 1, datetime(2030, 1, 1, tzinfo=UTC))
    assert drafter.follow(claim, Task.of(plain), timedelta(), (), {}, RETENTION).conflict is Conflict.KEEP_PENDING
