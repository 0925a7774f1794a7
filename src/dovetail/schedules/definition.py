"""A schedule as it is stored: what is called, when, and how it stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from dovetail.behaviors.cron import SLOT
from dovetail.codec import CallTypes, Codec
from dovetail.model import Claim, Conflict, Limit, NewRun, Retention, Run, new_id
from dovetail.model.noun import Noun
from dovetail.queues import Pause
from dovetail.schedules.timing import Timing

TASK = "dovetail.schedule"
QUEUE = "dovetail.schedules"
PRIORITY = 1_000_000
"""What has to be placed comes before all that is placed already."""
NEVER = datetime(2200, 1, 1, tzinfo=UTC)
"""When a paused schedule is due. Redis keeps moments as numbers that are exact until the year 2255."""
CRASHES = 2**31 - 1
"""Workers that may vanish with a schedule in hand: whatever killed them, the schedule is to go on."""
NOTHING_KEPT = Retention.of(timedelta())

Overlap = Literal["queue", "skip", "allow"]
Misfire = Literal["once", "all", "skip"]


class Call(Noun, frozen=True):
    """What is called: a run as it was drafted, without a name and a time."""

    task: str
    payload: bytes
    queue: str
    priority: int
    group: str | None
    weight: float
    limits: tuple[Limit, ...]
    crash_limit: int
    retention: Retention
    headers: dict[str, str]

    @classmethod
    def of(cls, run: NewRun) -> Call:
        return cls(
            run.task, run.payload, run.queue, run.priority, run.group, run.weight, run.limits, run.crash_limit,
            run.retention, dict(run.headers),
        )  # fmt: skip


class Definition(Noun, frozen=True):
    """All there is to know of a schedule."""

    name: str
    call: Call
    timing: Timing
    created: datetime
    slot: datetime  # the time that is next
    overlap: Overlap = "queue"
    misfire: Misfire = "once"
    until: datetime | None = None
    paused: Pause | None = None
    last_time: datetime | None = None
    last_key: str | None = None

    def is_over_at(self, moment: datetime) -> bool:
        return self.until is not None and moment > self.until

    def is_like(self, other: Definition) -> bool:
        """Whether the two were asked for in the same words, however each stands by now."""
        mine, its = (
            (each.call, each.overlap, each.misfire, each.until and each.until.astimezone(UTC)) for each in (self, other)
        )
        return mine == its and self.timing.is_like(other.timing)

    def run_at(self, slot: datetime, *, name: str | None = None) -> NewRun:
        """The run of one of its times. Where runs must not overlap they have one key, and one that lives keeps the next
        one out."""
        call = self.call
        common = f"schedule:{self.name}"
        key = common if self.overlap == "skip" else f"{common}:{name or slot.astimezone(UTC).isoformat()}"
        one_at_a_time = (Limit(common, 1),) if self.overlap == "queue" else ()
        return NewRun(
            new_id(), key, call.task, call.payload, slot, call.queue, call.priority, call.group, call.weight,
            limits=call.limits + one_at_a_time, crash_limit=call.crash_limit, retention=call.retention,
            headers={**call.headers, SLOT: slot.isoformat()},
        )  # fmt: skip

    def waiting(self, codec: Codec, conflict: Conflict = Conflict.KEEP_PENDING) -> NewRun:
        """The schedule itself, as the run that waits for its next time."""
        due = self.slot if self.paused is None else NEVER
        return NewRun(
            new_id(), key_of(self.name), TASK, codec.dump_call(TYPES, (_encode(self).decode(),), {}, TASK), due,
            QUEUE, PRIORITY, conflict=conflict, crash_limit=CRASHES, retention=NOTHING_KEPT,
        )  # fmt: skip

    @classmethod
    def read(cls, codec: Codec, payload: bytes) -> Definition:
        (text,), _ = codec.load_call(TYPES, payload, TASK)
        return _decode(text)


def _tick(definition: str) -> None:
    """What a schedule is called with: it goes through the codec, which may sign it."""


TYPES = CallTypes.of(_tick)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Definition).decode


def key_of(name: str) -> str:
    """The key under which a schedule waits."""
    return f"{TASK}:{name}"


def is_key(key: str) -> bool:
    """Whether a key is that of a schedule."""
    return key.startswith(f"{TASK}:")


def is_tick(run: Run | NewRun | Claim) -> bool:
    """Whether a run is a schedule that waits or ticks, and none of its calls."""
    return run.task == TASK
