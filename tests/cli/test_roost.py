"""roost's names of commands and options, as far as they are others."""

import asyncio
import os
from pathlib import Path

import pytest

from dovetail import Docket, Worker
from tests.cli.commands import Commands, run, run_apart
from tests.cli.tasks_for_commands import PATH, send


async def test_queues_are_paused_listed_and_resumed(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("queue", "pause", "mail")).out == "mail is paused\n"
    assert "mail (paused)" in (await dovetail("queue", "list")).out
    assert (await dovetail("queue", "resume", "mail")).out == "mail goes on\n"


async def test_what_failed_goes_again_and_nobody_is_asked(docket: Docket, dovetail: Commands, worker: Worker) -> None:
    docket.register(send)
    await docket.add(send, key="lost")("nobody")
    await worker.run_until_finished()
    await dovetail("requeue", code=2)
    assert (await dovetail("requeue", "--discarded", "--queue", "other")).out == "0 runs go again\n"
    assert (await dovetail("requeue", "--discarded")).out == "1 run goes again\n"


def test_the_schema_is_printed_and_made(folder: Path) -> None:
    place = f"sqlite:///{folder / 'store.db'}"
    assert "CREATE TABLE" in run(("init", "--dsn", place)).out
    assert run(("migrate", "status", "--dsn", place)).out == "001_runs\n"
    assert os.listdir(folder) == []
    assert run(("init", "--apply", "--dsn", place)).out == f"{place} has version 1\n"
    assert run(("migrate", "up", "--dsn", place)).code == 0
    assert run(("migrate", "status", "--dsn", place)).out == "nothing to do\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("down", "0"), 1, "a schema only goes forward"),
        (("sideways",), 2, "'sideways' means nothing here"),
        (("up", "3"), 2, "'3' means nothing here"),
    ],
)
def test_a_schema_has_no_way_back(words: tuple[str, ...], code: int, told: str) -> None:
    said = run(("migrate", *words))
    assert (said.code, told in said.err) == (code, True)


async def test_workers_alone_are_listed(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("workers")).out == (await dovetail("workers", "ls")).out
    assert (await dovetail("workers", "--json")).json == []


async def test_a_worker_takes_the_options(docket: Docket, url: str, dovetail: Commands) -> None:
    options = ("--queues", "mail", "--prefetch", "4", "--poll-interval", "1.0", "--no-cron", "-m", PATH)
    await docket.add(send, key="mail")("ann")
    said = await asyncio.to_thread(
        run_apart, "run", "--once", *options, "--workers", "1", "--dsn", url, "--docket", dovetail.docket
    )
    assert said.code == 0, said.err
    await dovetail("watch", "mail")
