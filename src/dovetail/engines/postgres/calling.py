"""Calling the database: by its name a function, over whatever connection is free, again if others were in the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from dovetail.clock import Clock
from dovetail.engines.postgres.failing import ConnectionLost, Contended, nothing_done
from dovetail.engines.postgres.location import Location
from dovetail.engines.postgres.pool import Pool
from dovetail.errors import EngineUnavailable

ATTEMPTS = 10
"""How often a call is made again because others were in the way."""
RECONNECTIONS = 3
"""How often a call that may be repeated is made again because its connection broke."""


class Caller:
    """Calls functions and statements of one schema."""

    def __init__(self, location: Location, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._schema = f'"{location.schema}"'
        self._statements: dict[tuple[str, int], str] = {}

    async def call(self, function: str, *values: Any, repeatable: bool = True) -> Any:
        """The one value that a function answers."""
        return (await self.rows(self._statement(function, len(values)), values, repeatable=repeatable))[0][0]

    async def table(self, function: str, *values: Any) -> list[Any]:
        """The rows that a function answers. It is one that must not be repeated."""
        return await self.rows(self._statement(function, len(values), rows=True), values, repeatable=False)

    async def read(self, statement: str, values: Sequence[Any]) -> list[Any]:
        try:
            return await self.rows(statement.replace("{schema}", self._schema), values)
        except ConnectionLost as error:
            raise nothing_done(error) from error

    def _statement(self, function: str, count: int, *, rows: bool = False) -> str:
        known = self._statements.get((function, count))
        if known is None:
            marks = ", ".join(f"${n}" for n in range(1, count + 1))
            known = f"SELECT {'* FROM ' if rows else ''}{self._schema}.{function}({marks})"  # noqa: S608 - names of our own
            self._statements[function, count] = known
        return known

    async def rows(self, statement: str, values: Sequence[Any], *, repeatable: bool = True) -> list[Any]:
        self._clock.work_began()
        try:
            return await self._rows(statement, values, repeatable)
        finally:
            self._clock.work_ended()

    async def _rows(self, statement: str, values: Sequence[Any], repeatable: bool) -> list[Any]:
        """Ask, and ask again: after a deadlock, which undid all; and after a connection broke, if that does no harm."""
        contended = broken = 0
        lost: ConnectionLost | None = None
        while True:
            try:
                wire = await self._pool.take()
                try:
                    return await wire.ask(statement, values)
                finally:
                    await self._pool.give_back(wire)
            except Contended:
                contended += 1
                if contended == ATTEMPTS:
                    raise
            except ConnectionLost as error:
                lost = error
                broken += 1
                if broken == RECONNECTIONS or not repeatable:
                    raise
            except EngineUnavailable as error:
                # It cannot be reached any more; what was sent before may have been done.
                if lost is not None:
                    raise lost from error
                raise
            await asyncio.sleep(random.uniform(0, 0.02) * 2 ** (contended + broken))
