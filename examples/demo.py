"""Dovetail at work: this process schedules, others do the work, and one SQLite file is all they share.

Run it with `make demo`. It ends by itself, with exit code 0 only if everything it promises was seen to happen.
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta

from dovetail import Disposition, Docket, Execution, ExecutionState, Perpetual, Retry
from examples.stage import Stage

# The tasks. A task is a function, and its signature says how it behaves.


async def greet(name: str) -> tuple[str, int]:
    return f"Hello, {name}!", os.getpid()


async def bill(customer: str, amount: int) -> int:
    await asyncio.sleep(0.4)
    return amount


async def fetch(page: str, retry: Retry = Retry(attempts=3, delay=timedelta(seconds=0.7))) -> int:
    if retry.attempt < 3:
        raise ConnectionError(f"{page} is down")
    return retry.attempt


async def water(turn: int = 1, perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.8))) -> int:
    perpetual.perpetuate(turn + 1)
    if turn == 4:
        perpetual.cancel()
    return turn


def render(film: str) -> tuple[str, int]:  # a plain function: it runs in a thread
    time.sleep(3)
    return film, os.getpid()


tasks = [greet, bill, fetch, water, render]

# What is to be seen. Each is ticked off by what the store and the tasks say, and by nothing else.

AT_ONCE = "A task starts at once, in another process"
RESULT = "Its result comes back"
KEY = "A key that is taken keeps a second call out"
RETRY = "What fails is tried again"
PERPETUAL = "A perpetual task goes on by itself"
LATER = "Work for later starts when it is due"
CRASH = "A killed worker's run starts again elsewhere"
STOP = "A worker told to stop finishes first"
PROMISES = (AT_ONCE, RESULT, KEY, RETRY, PERPETUAL, LATER, CRASH, STOP)

SOON = 3000
"""Milliseconds. A few are usual; on a busy machine there may be more, but no worker waits for its next look."""
PATIENCE = timedelta(seconds=30)


async def story(docket: Docket, stage: Stage) -> None:
    stage.act("A worker, in a process of its own")
    first = await stage.worker("worker-1")

    stage.act("Work for now")
    await stage.says("greet", 'add greet("Ann")')
    asked = datetime.now(UTC)
    greeting = await docket.add(greet, key="greet")("Ann")
    text, process = await greeting.get_result(timeout=PATIENCE)
    await stage.hears("greet", text)
    delay = since(asked, greeting)
    stage.check(AT_ONCE, process == first.pid and 0 <= delay < SOON, f"{delay:.0f} ms after it was added")
    stage.check(RESULT, text == "Hello, Ann!", text)

    stage.act("Work under a key, for later, that fails, that goes on and on")
    await stage.says("bill", 'add bill("Ann", 30) under the key "bill"')
    billed = await docket.add(bill, key="bill")("Ann", 30)
    again = await docket.add(bill, key="bill")("Ann", 99)
    stage.notes("bill", f'add bill("Ann", 99): {again.disposition}', arrow="⊘")

    await stage.says("later", 'add greet("Bob"), to start in 2.8 s')
    due = datetime.now(UTC) + timedelta(seconds=2.8)
    later = await docket.add(greet, when=due, key="later")("Bob")

    await stage.says("fetch", 'add fetch("example.org"), which will fail twice')
    fetched = await docket.add(fetch, key="fetch")("example.org")

    await stage.says("water", "add water(), once; it goes again every 0.8 s")
    await docket.add(water, key="water")()

    amount = await billed.get_result(timeout=PATIENCE)
    newest = await docket.get_execution("bill")
    is_alone = again.disposition is Disposition.ALREADY_SCHEDULED and newest is not None and newest.id == billed.id
    stage.check(KEY, is_alone and amount == 30, f"one run, which billed {amount}")

    attempt = await fetched.get_result(timeout=PATIENCE)
    failures = fetched.run.errors if fetched.run else ()
    stage.check(RETRY, attempt == 3 and len(failures) == 2, f"{len(failures)} failures, then success")

    turns = await last_turn(docket, "water")
    stage.check(PERPETUAL, turns == 4, f"added once, {turns} turns")

    await later.get_result(timeout=PATIENCE)
    lateness = since(due, later)
    stage.check(LATER, 0 <= lateness < SOON, f"{lateness:.0f} ms after its time")

    stage.act("A worker is killed in the middle of a run")
    await stage.says("render", 'add render("Metropolis"), which takes 3 s')
    rendering = await docket.add(render, key="render")("Metropolis")
    await in_hand(rendering, "worker-1")
    stage.notes("render", "kill -9 worker-1", arrow="☠")
    first.kill()
    second = await stage.worker("worker-2")
    await in_hand(rendering, "worker-2")
    crashes = rendering.run.crashes if rendering.run else 0
    stage.check(CRASH, crashes == 1, f"{rendering.worker} took it over")

    stage.act("A worker is told to stop in the middle of a run")
    stage.notes("render", "kill -TERM worker-2", arrow="■")
    second.terminate()
    code = await second.wait()
    film, process = await rendering.get_result(timeout=PATIENCE)
    await stage.hears("render", film)
    stage.check(STOP, code == 0 and process == second.pid, f"run completed, exit code {code}")


def since(moment: datetime, execution: Execution[tuple[str, int]]) -> float:
    """Milliseconds from a moment to the start of a run."""
    assert execution.started_at is not None
    return (execution.started_at - moment) / timedelta(milliseconds=1)


async def in_hand(execution: Execution[tuple[str, int]], worker: str) -> None:
    """Wait until this worker runs it."""
    while execution.state is not ExecutionState.RUNNING or execution.worker != worker:
        await asyncio.sleep(0.02)
        await execution.sync()


async def last_turn(docket: Docket, key: str) -> int:
    """What the last run of a perpetual task returned. The others have successors, and keep no result."""
    turn: int | None = None
    while turn is None:
        execution = await docket.get_execution(key)
        assert execution is not None
        turn = await execution.get_result(timeout=PATIENCE)
    return turn


if __name__ == "__main__":
    sys.exit(asyncio.run(Stage(PROMISES, "examples.demo:tasks").play(story)))
