"""Sharing: which queue the next starts belong to."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import Queue
from dovetail.clock import from_microseconds
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.model import Claim, Claimed
from dovetail.queues import taken
from dovetail.worker.sharing import STALE, Sharing

FOREVER = 10**6


def claims(queue: str, count: int) -> list[Claim]:
    return [Claim(f"{n}", 1, f"{n}", "task", b"", 1, from_microseconds(0), queue) for n in range(count)]


class Field:
    """Queues with backlogs, and what was started of each, in order."""

    def __init__(self, *queues: Queue, **backlog: int) -> None:
        self.sharing = Sharing(queues)
        self.backlog = backlog
        self.started: list[str] = []
        self.asked: list[str] = []
        self.held = Counter[str]()

    def look(self, room: int, *, now: float = 0.0, anew: bool = True, wait: timedelta | None = None) -> int:
        """Fill the room; how much of it was."""
        self.sharing.begin(now, anew=anew)
        filled = 0
        while portions := self.sharing.portions(room - filled, self.held):
            for name, want in portions.items():
                count = min(want, self.backlog.get(name, 0))
                self.asked.append(name)
                self.backlog[name] = self.backlog.get(name, 0) - count
                self.sharing.brought(name, want, Claimed(claims(name, count), wait), now)
                self.started += [name] * count
                self.held[name] += count
                filled += count
        return filled


@pytest.mark.parametrize("room", [1, 2, 7, 40])
def test_starts_are_shared_by_weight(room: int):
    field = Field(Queue("a", weight=3), Queue("b"), a=FOREVER, b=FOREVER)
    for _ in range(400 // room):
        assert field.look(room) == room
    share = field.started.count("a") / len(field.started)
    assert share == pytest.approx(0.75, abs=0.02)


def test_turns_are_smooth():
    field = Field(Queue("a", weight=3), Queue("b"), a=FOREVER, b=FOREVER)
    for _ in range(40):
        field.look(1)
    assert all("b" in field.started[n : n + 4] for n in range(36))


def test_what_a_queue_does_not_use_goes_to_the_others_at_once():
    field = Field(Queue("a", weight=9), Queue("b"), b=FOREVER)
    assert field.look(10) == 10
    assert field.started == ["b"] * 10


def test_a_queue_is_not_paid_for_the_time_it_had_nothing():
    field = Field(Queue("a"), Queue("b"), b=FOREVER)
    for _ in range(100):
        field.look(1)
    field.backlog["a"] = FOREVER
    for _ in range(20):
        field.look(1)
    assert 9 <= field.started[100:].count("a") <= 11


def test_no_more_of_a_queue_is_in_hand_than_its_concurrency():
    field = Field(Queue("a", weight=5, concurrency=2), Queue("b"), a=FOREVER, b=FOREVER)
    assert field.look(10) == 10
    assert Counter(field.started) == {"a": 2, "b": 8}
    field.held["a"] -= 1
    assert field.look(1) == 1
    assert field.started[-1] == "a"


def test_nothing_is_asked_when_every_queue_is_at_its_bound():
    field = Field(Queue("a", concurrency=1), a=FOREVER)
    assert field.look(10) == 1
    assert field.look(10) == 0
    assert field.asked == ["a"]
    assert field.sharing.wait(0.0) is None


def test_a_queue_that_had_nothing_is_asked_again_only_for_a_reason():
    field = Field(Queue("a"), Queue("b"), b=FOREVER)
    field.look(2)
    asked = field.asked.count("a")
    field.look(2, anew=False)
    assert field.asked.count("a") == asked
    field.look(2, anew=True)
    assert field.asked.count("a") == asked + 1
    field.look(2, anew=False, now=STALE)
    assert field.asked.count("a") == asked + 2


def test_a_queue_is_asked_again_when_something_in_it_becomes_due():
    field = Field(Queue("a"))
    field.look(1, wait=timedelta(seconds=2))
    assert field.sharing.wait(0.5) == timedelta(seconds=1.5)
    field.look(1, anew=False, now=1.0)
    assert field.asked == ["a"]
    field.look(1, anew=False, now=2.0)
    assert field.asked == ["a", "a"]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.none() | st.integers(1, 4), st.integers(0, 30)), min_size=1, max_size=5),
    st.lists(st.integers(1, 9), max_size=20),
)
def test_room_is_left_only_when_nothing_more_may_start(queues: list[tuple[int, int | None, int]], rooms: list[int]):
    shares = [Queue(f"{n}", weight, bound) for n, (weight, bound, _) in enumerate(queues)]
    field = Field(*shares, **{f"{n}": count for n, (_, _, count) in enumerate(queues)})
    for room in rooms:
        able = sum(min(field.backlog[q.name], (q.concurrency or 99) - field.held[q.name]) for q in shares)
        assert field.look(room) == min(room, able)
        assert all(field.held[q.name] <= (q.concurrency or FOREVER) for q in shares)


# What a worker is given


def test_names_alone_have_no_shares():
    assert taken(["a", "b"]) == (("a", "b"), ())


def test_one_share_gives_the_other_names_theirs():
    assert taken(["a", Queue("b", weight=2)]) == (("a", "b"), (Queue("a"), Queue("b", weight=2)))


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("mail", "queues must be a list"),
        ({"mail": 3}, "queues must be a list"),
        ([Queue("mail"), "mail"], "the queue 'mail' is named twice"),
        ([Queue("mail"), ""], "must not be empty"),
        ([5], "each of queues must be text"),
    ],
)
def test_queues_that_make_no_sense_are_refused(queues: object, message: str):
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        taken(queues)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ("mail", "mail"),
        ("tenant:3", "tenant:3"),
        ("mail=3", Queue("mail", weight=3)),
        ("mail=3:2", Queue("mail", weight=3, concurrency=2)),
        ("a=b=1", Queue("a=b")),
    ],
)
def test_the_command_line_names_queues(text: str, queue: str | Queue):
    assert Queue.parse(text) == queue


@pytest.mark.parametrize("text", ["mail=", "mail=x", "mail=3:", "mail=1:2:3", "mail=-1", "mail=0", "mail=1:0", "=3"])
def test_nonsense_on_the_command_line_is_refused(text: str):
    with pytest.raises(InvalidArgument):
        Queue.parse(text)


@pytest.mark.parametrize("fields", [{"weight": 0}, {"weight": 1.5}, {"weight": True}, {"concurrency": 0}])
def test_a_share_that_makes_no_sense_is_refused(fields: dict[str, int]):
    with pytest.raises((InvalidArgument, InvalidType), match="of the queue 'mail'"):
        Queue("mail", **fields)
