"""Graphs: what hangs on what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Mapping
from dataclasses import dataclass

from dovetail.engine import Engine
from dovetail.engine.paging import pages
from dovetail.model import Run, RunQuery, State

PAGE = 500
TOGETHER = 20
"""Runs whose children are asked for at once."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A run, the runs that it waits for or waited for, and those that hang on it; by their ids."""

    id: str
    key: str
    task: str
    state: State
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    doomed_by: str | None = None  # the id of the parent whose end cancelled it


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything that hangs together with a run. A parent whose record is gone is named by its id, and has no node."""

    nodes: Mapping[str, GraphNode]
    is_whole: bool = True  # False: there was more than was asked for

    @property
    def roots(self) -> list[GraphNode]:
        """Those that wait for nobody here."""
        return [node for node in self.nodes.values() if not any(each in self.nodes for each in node.parents)]

    @property
    def edges(self) -> list[tuple[str, str]]:
        """The id of a parent and that of a run that hangs on it, for each such pair."""
        return [(parent, node.id) for node in self.nodes.values() for parent in node.parents]

    def node(self, key: str) -> GraphNode:
        """The newest run of a key; a KeyError if none is here."""
        found = [node for node in self.nodes.values() if node.key == key]
        if not found:
            raise KeyError(key)
        return max(found, key=lambda node: node.id)


async def graph(engine: Engine, first: Run, at_most: int) -> Graph:
    """What hangs together with a run, reached from it over parents and children, up to so many runs."""
    found: dict[str, Run] = {first.id: first}
    fresh: list[Run] = [first]
    while fresh:
        room = at_most - len(found)
        news: dict[str, Run] = {run.id: run for run in await _parents(engine, fresh, found)}
        async for run in _children(engine, fresh):
            if run.id not in found:
                news[run.id] = run
            if len(news) > room:
                break
        fresh = list(news.values())[:room]
        found |= {run.id: run for run in fresh}
        if len(fresh) < len(news):
            return Graph(_nodes(found), is_whole=False)
    return Graph(_nodes({run.id: _without_the_gone(run, found) for run in found.values()}))


def _without_the_gone(run: Run, kept: Container[str]) -> Run:
    """The run without the parents whose records are no longer kept: not every store forgets them by itself."""
    return run.but(parents=tuple(parent for parent in run.parents if parent in kept))


async def _parents(engine: Engine, runs: list[Run], known: Mapping[str, Run]) -> list[Run]:
    ids = list(dict.fromkeys(parent for run in runs for parent in run.parents if parent not in known))
    parts = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
    return [run for part in parts for run in await engine.find(RunQuery(ids=tuple(part), limit=PAGE))]


async def _children(engine: Engine, runs: list[Run]) -> AsyncIterator[Run]:
    for start in range(0, len(runs), TOGETHER):
        queries = [RunQuery(parent=run.id, limit=PAGE) for run in runs[start : start + TOGETHER]]
        first_pages = await asyncio.gather(*map(engine.find, queries))
        for query, page in zip(queries, first_pages, strict=True):
            for run in page:
                yield run
            if page.cursor is not None:
                async for rest in pages(engine.find, query.but(cursor=page.cursor)):
                    for run in rest:
                        yield run


def _nodes(runs: Mapping[str, Run]) -> dict[str, GraphNode]:
    children: dict[str, list[str]] = {}
    ordered = sorted(runs.values(), key=lambda run: (run.created, run.id))
    for run in ordered:
        for parent in run.parents:
            children.setdefault(parent, []).append(run.id)
    return {
        run.id: GraphNode(
            run.id, run.key, run.task, run.state, tuple(run.parents), tuple(children.get(run.id, ())), run.doomed_by
        )
        for run in ordered
    }
