"""The runs that another run names by their ids: found again, so that people read keys and states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.engine import Engine
    from dovetail.model import Run

TOLD = 20
"""Parents that are named; of more, `dovetail graph` tells."""


@dataclass(frozen=True, slots=True)
class Relatives:
    """What a run waits for, and what cancelled it. One whose record is gone is named by its id."""

    run: Run
    found: Mapping[str, Run]  # by id

    @property
    def parents(self) -> str:
        """`order:17 (completed), order:18 (failed)`."""
        named = [self._named(each) for each in self.run.parents[:TOLD]]
        more = len(self.run.parents) - TOLD
        return ", ".join([*named, f"{more:,} more; see `dovetail graph`"] if more > 0 else named)

    @property
    def doomed_by(self) -> str | None:
        return self._named(self.run.doomed_by) if self.run.doomed_by else None

    @property
    def data(self) -> list[dict[str, Any]]:
        """The same for programs; without those whose records are gone, of which `parents` has the ids."""
        return [
            {"id": each.id, "key": each.key, "task": each.task, "state": each.state} for each in self.found.values()
        ]

    def _named(self, relative: str) -> str:
        known = self.found.get(relative)
        return f"{known.key} ({known.state})" if known else f"{relative} (no record)"


async def relatives_of(engine: Engine, run: Run) -> Relatives:
    """In one question, and none if there is nobody to ask for."""
    from dovetail.model import RunQuery

    ids = list(run.parents[:TOLD])
    if run.doomed_by is not None and run.doomed_by not in ids:
        ids.append(run.doomed_by)
    found = await engine.find(RunQuery(ids=tuple(ids), limit=len(ids))) if ids else ()
    return Relatives(run, {each.id: each for each in found})
