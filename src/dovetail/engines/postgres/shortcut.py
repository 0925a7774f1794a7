"""A way past dead rows. While somebody keeps a transaction open for long, PostgreSQL cannot remove from the index what
was claimed since, and each claim would read past all of it again.

A claim that was slow is therefore followed by some that go on where it ended. Between two looks at everything there is
a pause ten times as long as the last one took, so they cost a tenth of the time however many dead rows there are. What
comes before that place, such as a run of a higher priority, may then wait for so long. As soon as there is nothing
beyond, everything is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dovetail.engines.postgres.answers import Closing

SLOW = 0.02
"""Seconds that a claim may take before it counts as slow."""
PAUSE = 10
"""How much longer than a look at everything the pause after it is."""
LONGEST = 5.0
"""Seconds of such a pause at most."""


class Shortcut:
    """Where the last claim ended, if the next may go on from there."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._queues: tuple[str, ...] = ()
        self._place: str | None = None
        self._until = 0.0

    def beyond(self, queues: Sequence[str]) -> str | None:
        """Where a claim on these queues may go on; None to look at everything."""
        return self._place if self._monotonic() < self._until and tuple(queues) == self._queues else None

    def note(self, queues: Sequence[str], closing: Closing, took: float, *, was_full: bool, went_beyond: bool) -> None:
        """A claim brought as many as it was asked for, or not, and its last row says where it ended."""
        self._queues = tuple(queues)
        if not went_beyond:
            is_slow = was_full and took > SLOW
            self._until = self._monotonic() + min(PAUSE * took, LONGEST) if is_slow else 0.0
        if was_full and closing.queues is not None and closing.place is not None:
            # A place in the order of all queues that had work, so that none of them overtakes another.
            beyond = {
                "queues": msgspec.Raw(closing.queues.encode()), "priority": closing.priority,
                "place": float(closing.place), "due": closing.due, "id": closing.last,
            }  # fmt: skip
            self._place = msgspec.json.encode(beyond).decode()
        else:
            self._place = None
