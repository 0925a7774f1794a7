"""The `dovetail` command on a store that stops to answer a verb after so many times: VERB TIMES COMMAND..."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dovetail.cli import main
from dovetail.docket import grounds
from tests.faults import Faulty

HALTED = "the store does not answer"


def halt(verb: str, answers: int) -> None:
    make = grounds.engine_for

    def engine_for(*args: Any, **kwargs: Any) -> Any:
        door = Faulty(make(*args, **kwargs))

        async def hang() -> None:
            if door.faults.calls[verb] > answers:
                print(HALTED, file=sys.stderr, flush=True)
                await asyncio.Event().wait()

        door.faults.before[verb] = hang
        return door

    grounds.engine_for = engine_for


if __name__ == "__main__":
    _, verb, answers, *command = sys.argv
    halt(verb, int(answers))
    sys.argv = ["dovetail", *command]
    main()
