"""Gathers the facts of a run: a few bounded reads, whatever the backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dovetail.engine import Engine
from dovetail.execution import Disposition, Execution
from dovetail.holds import Strike, arguments_of, concerns, those_that_forbid
from dovetail.model import Hold, HoldKind, Run, RunQuery, Standing
from dovetail.model.identifier import is_id
from dovetail.previewing import has_named_arguments
from dovetail.strikelist import StrikeList
from dovetail.why.answers import Why
from dovetail.why.facts import Facts
from dovetail.why.judging import judge

ATTEMPTS = 10
"""How often a run is read again because it changed while its surroundings were looked at."""
RELATIVES = 100
"""How many parents and slot holders are read at most."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Whom to ask."""

    engine: Engine
    strike_list: StrikeList
    execution_of: Callable[[Run], Execution[Any]]
    now: Callable[[], datetime]
    silence: timedelta

    async def why(self, meant: str | Execution[Any]) -> Why:
        """Why the run of an execution, or the newest of a key, is not running."""
        strikes = await self.strike_list.strikes()
        if isinstance(meant, Execution) and meant.disposition is Disposition.STRUCK:
            return judge(self._of_a_call_that_was_struck(meant, strikes))
        holds = await self.engine.holds()
        run, standing = await self._look(meant)
        if run is None:
            key = meant if isinstance(meant, str) else meant.key
            return judge(Facts(key, self.now()))
        forbidding, doubtful = ([], []) if run.state.is_terminal else self._judged(strikes, run)
        return judge(
            Facts(
                run.key,
                standing.at if standing else self.now(),
                run,
                standing,
                _pause_of(run.queue, holds),
                tuple(forbidding),
                tuple(doubtful),
                await self._relatives(run, standing),
                self.silence,
            )
        )

    async def _look(self, meant: str | Execution[Any]) -> tuple[Run | None, Standing | None]:
        """The run, and where it stands, both of one moment: a run that moves meanwhile is looked at again."""
        run = await self._find(meant)
        standing = None
        for _ in range(ATTEMPTS):
            if run is None or run.state.is_terminal:
                return run, None
            standing = await self.engine.standing(run.id)
            if standing is not None and _agree(run, standing):
                break
            run = await self._find(meant)
        return run, standing

    async def _find(self, meant: str | Execution[Any]) -> Run | None:
        # An execution means its own run, and not whatever has its key by now.
        if isinstance(meant, Execution):
            which = RunQuery(ids=(meant.id,), limit=1) if meant.id else RunQuery.newest_of(meant.key)
            return _first(await self.engine.find(which))
        found = _first(await self.engine.find(RunQuery.newest_of(meant)))
        if found is None and is_id(meant):
            return _first(await self.engine.find(RunQuery(ids=(meant,), limit=1)))
        return found

    async def _relatives(self, run: Run, standing: Standing | None) -> dict[str, Run]:
        ids = [*([run.doomed_by] if run.doomed_by else []), *run.parents]
        if standing is not None:
            ids += [holder for use in standing.limits if use.is_full for holder in use.holders]
        if not ids:
            return {}
        wanted = tuple(dict.fromkeys(ids))[:RELATIVES]
        return {each.id: each for each in await self.engine.find(RunQuery(ids=wanted, limit=RELATIVES))}

    def _judged(self, strikes: list[Strike], run: Run) -> tuple[list[Strike], list[Strike]]:
        """The strikes that forbid a run, and those that may: its arguments cannot always be told apart here."""
        if not any(concerns(strike, run.task) for strike in strikes):
            return [], []
        execution = self.execution_of(run)
        forbidding = _forbidding(strikes, execution)
        doubtful = (
            ()
            if has_named_arguments(execution)
            else (each for each in strikes if concerns(each, run.task) and each.parameter)
        )
        return forbidding, [strike for strike in doubtful if strike not in forbidding]

    def _of_a_call_that_was_struck(self, execution: Execution[Any], strikes: list[Strike]) -> Facts:
        return Facts(execution.key, self.now(), strikes=tuple(_forbidding(strikes, execution)))


def _forbidding(strikes: list[Strike], execution: Execution[Any]) -> list[Strike]:
    arguments = arguments_of(execution.function, execution.args, execution.kwargs)
    return those_that_forbid(strikes, execution.function_name, arguments)


def _agree(run: Run, standing: Standing) -> bool:
    return (run.state, run.epoch, run.parked_on) == (standing.state, standing.epoch, standing.parked_on)


def _pause_of(queue: str, holds: Iterable[Hold]) -> Hold | None:
    return next((hold for hold in holds if hold.kind is HoldKind.PAUSE and hold.queue == queue), None)


def _first(runs: Iterable[Run]) -> Run | None:
    return next(iter(runs), None)
