"""Finding: what users ask for, as a query to the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from dovetail import checks
from dovetail.errors import InvalidArgument
from dovetail.model import RunQuery, State


def query_of(
    states: Iterable[State | str],
    tasks: tuple[str, ...],
    queues: Iterable[str],
    groups: Iterable[str],
    tags: Iterable[str],
    key_prefix: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
    error: str | None,
    newest_first: bool,
    limit: int,
    cursor: str | None,
) -> RunQuery:
    """The query, if there is sense in what was asked."""
    for name, text in (("key_prefix", key_prefix), ("error", error), ("cursor", cursor)):
        if text is not None:
            checks.text(text, name)
    for name, moment in (("created_after", created_after), ("created_before", created_before)):
        if moment is not None:
            checks.moment(moment, name)
    if created_after is not None and created_before is not None and created_after >= created_before:
        raise InvalidArgument(
            f"created_after must be before created_before: nothing was made from {created_after} to {created_before}"
        )
    return RunQuery(
        states=_states(states),
        tasks=tasks,
        queues=tuple(checks.texts(queues, "queues")),
        groups=tuple(checks.texts(groups, "groups")),
        tags=tuple(checks.texts(tags, "tags")),
        key_prefix=key_prefix,
        created_after=created_after,
        created_before=created_before,
        error_contains=error,
        newest_first=checks.truth(newest_first, "newest_first"),
        limit=checks.whole(limit, "limit", least=1),
        cursor=cursor,
    )


def _states(states: Any) -> tuple[State, ...]:
    given = checks.members(states, "states must be a list of states, such as ['failed', 'cancelled']", but=(str,))
    known = tuple(state.value for state in State)
    return tuple(State(checks.one_of(each, "each of states", known)) for each in given)
