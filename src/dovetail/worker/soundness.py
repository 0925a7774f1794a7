"""Whether a behavior's verdict is one that a store can keep."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dovetail import checks
from dovetail.behaviors import Behavior
from dovetail.errors import InvalidType
from dovetail.model import Claim, Requeue, Settle, State, Verdict


def sound(verdict: Any, claim: Claim, behavior: Behavior) -> Verdict:
    """The verdict. One that is none, or speaks of another run, is an error of the behavior's."""
    whose = type(behavior).__name__
    if not isinstance(verdict, Settle | Requeue):
        raise InvalidType(f"{whose} must give a Settle, a Requeue or None, not {verdict!r}")
    if verdict.claim is not claim and (verdict.claim.id, verdict.claim.epoch) != (claim.id, claim.epoch):
        raise InvalidType(f"{whose} gave a verdict on another run, {verdict.claim.key!r}")
    if isinstance(verdict, Requeue):
        checks.whole(verdict.attempt, f"the attempt that {whose} asks for", least=1)
        due: Any = verdict.due
        if not isinstance(due, timedelta):
            checks.moment(due, f"the time that {whose} asks for")
        return verdict
    state: Any = verdict.state
    if not isinstance(state, State) or not state.is_terminal:
        raise InvalidType(f"{whose} must settle a run as completed, failed or cancelled, not {state!r}")
    result: Any = verdict.result
    if not isinstance(result, bytes | None):
        raise InvalidType(f"{whose} must give a result as bytes, not {type(result).__name__}")
    return verdict
