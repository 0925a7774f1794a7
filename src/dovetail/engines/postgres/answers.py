"""What the functions in the database answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from dovetail.clock import from_microseconds
from dovetail.engines.postgres.news import News
from dovetail.engines.postgres.sight import headers_of
from dovetail.engines.postgres.texts import get, get_any
from dovetail.model import Cancelled, Claim, Finished, Placement, Placing, Result, State

_STATES = {"x": State.CANCELLED} | {state[0]: state for state in State if state is not State.CANCELLED}
_NO_HEADERS: dict[str, str] = {}


class Placed(News):
    """To each request: how each of its runs was placed, or their states as letters."""

    placed: list[str | list[tuple[Placing, str, State]]]

    def placements(self, ids: list[str]) -> list[Placement]:
        found: list[Placement] = []
        for answer in self.placed:
            if isinstance(answer, str):
                some = ids[len(found) : len(found) + len(answer)]
                found += [
                    Placement(Placing.PLACED, run_id, _STATES[letter])
                    for run_id, letter in zip(some, answer, strict=True)
                ]
            else:
                found += [Placement(placing, get(run_id), state) for placing, run_id, state in answer]
        return found


class Done(News):
    """The ids of plain verdicts that were accepted, True for all; and a word to each of the others."""

    done: bool | list[str]
    answers: list[Finished]


class Answered(News):
    answers: list[bool]


class Stopped(News):
    answers: list[Cancelled]


class Emptied(News):
    cleared: int


class Tidied(News):
    swept: tuple[int, int, int, int, int, bool]


def claim_of(row: tuple[Any, ...]) -> Claim:
    run_id, epoch, key, task, payload, attempt, due, queue, priority, tribe, crashes, headers, redelivered, results = (
        row
    )
    return Claim(
        get(run_id), epoch, get(run_id if key is None else key), get(task), payload, attempt, from_microseconds(due),
        get(queue), -priority, get_any(tribe), redelivered, crashes, headers_of(headers) if headers else _NO_HEADERS,
        _results_of(results) if results else (),
    )  # fmt: skip


class Closing(NamedTuple):
    """The last row of a claim, which is none: in the columns of one, what else there is to say."""

    id: None
    wait: int | None  # microseconds until there is reason to look again
    news: str
    poisoned: str | None  # tasks, as JSON
    payload: None
    attempt: None
    due: int | None  # from here on, where in claim order it ended
    queues: str | None  # that had work, as JSON
    priority: int | None
    last: str | None  # the id
    lapsed: int
    place: str | None
    redelivered: None
    results: None


def tasks_in(said: str | None) -> tuple[str, ...]:
    return tuple(map(get, msgspec.json.decode(said, type=list[str]))) if said else ()


def _results_of(told: str) -> tuple[Result, ...]:
    return tuple(Result(get(run_id), get(task), value) for run_id, task, value in _results.decode(told))


_results = msgspec.json.Decoder(list[tuple[str, str, bytes | None]])
placed = msgspec.json.Decoder(Placed)
done = msgspec.json.Decoder(Done)
answered = msgspec.json.Decoder(Answered)
stopped = msgspec.json.Decoder(Stopped)
emptied = msgspec.json.Decoder(Emptied)
tidied = msgspec.json.Decoder(Tidied)
news = msgspec.json.Decoder(News)
discarded = msgspec.json.Decoder(list[bool])
pulse = msgspec.json.Decoder(tuple[int, list[str], list[str]])
