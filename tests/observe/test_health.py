"""Health: a worker is well when its claim loop moves, and the answer comes even when its event loop does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from dovetail import Docket, Worker
from dovetail.errors import EngineUnavailable, InvalidArgument, InvalidType, UsageError
from dovetail.instrumentation import healthcheck_server
from dovetail.observe import health
from dovetail.observe.health import Examiner, Vitals, page_of
from tests.by_hand import at_work
from tests.conftest import MakeWorker
from tests.observe.fetching import Fetched, fetch, get
from tests.waiting import eventually, soon

PATIENCE = timedelta(seconds=30)
WELL = Vitals(timedelta(seconds=1), has_room=True, running=0, is_stopping=False)


@dataclass
class Patient:
    condition: Vitals | None
    name: str = "worker"

    def vitals(self) -> Vitals | None:
        return self.condition


# Over HTTP, with a real worker


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop that is not blocked may be slow to turn."""
    monkeypatch.setattr(health, "TURN", 60.0)


def test_without_a_worker_it_is_what_docket_has():
    with healthcheck_server(host="127.0.0.1", port=0) as port:
        for path in ("/", "/health", "/health/", "/?probe=1"):
            assert get(port, path) == Fetched(200, "text/plain", "OK")
        assert get(port, "/nowhere").status == 404


def test_without_a_port_nothing_is_served():
    before = threading.active_count()
    with healthcheck_server() as port:
        assert port is None
        assert threading.active_count() == before


async def test_a_worker_that_claims_is_ready(docket: Docket, worker: Worker):
    async with at_work(worker):
        await eventually(lambda: worker.vitals() is not None)
        with healthcheck_server("127.0.0.1", 0, worker=worker) as port:
            ready, live, plain = await fetch(port, "/ready"), await fetch(port, "/live"), await fetch(port)
    assert (ready.status, ready.kind) == (200, "application/json")
    assert ready.json["ok"] is ready.json["ready"] is ready.json["live"] is True
    assert ready.json["worker"] == "worker"
    assert ready.json["running"] == 0
    assert 0 <= ready.json["since_claim"] < 60
    assert live.status == 200
    assert plain == Fetched(200, "text/plain", "OK")


async def test_one_that_does_not_run_is_alive_and_not_ready(docket: Docket, worker: Worker):
    with healthcheck_server("127.0.0.1", 0, worker=worker) as port:
        ready, live, plain = await fetch(port, "/ready"), await fetch(port, "/live"), await fetch(port, "/health")
    assert (ready.status, ready.json["reason"]) == (503, "the worker is not running")
    assert live.status == 200
    assert (plain.status, plain.body) == (503, "the worker is not running")


async def test_a_store_that_does_not_answer_makes_it_unready_and_a_restart_would_not_help(
    docket: Docket, worker: Worker
):
    async with at_work(worker):
        await eventually(lambda: worker.vitals() is not None)

        async def gone(*args: Any, **kwargs: Any) -> Any:
            raise EngineUnavailable("gone")

        docket.engine.claim, real = gone, docket.engine.claim  # type: ignore[method-assign]
        with healthcheck_server("127.0.0.1", 0, worker=worker, patience=timedelta(milliseconds=100)) as port:
            await eventually(lambda: (vitals := worker.vitals()) and vitals.since_claim > timedelta(seconds=0.2))
            ready, live = await fetch(port, "/ready"), await fetch(port, "/live")
            assert ready.status == 503
            assert "claim loop stands still" in ready.json["reason"]
            assert live.status == 200
            docket.engine.claim = real  # type: ignore[method-assign]
            await docket.add(asyncio.sleep)(0)  # wakes it


async def test_a_full_worker_need_not_claim(docket: Docket, make_worker: MakeWorker):
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await go_on.wait()

    worker = make_worker(concurrency=1)
    async with at_work(worker):
        await docket.add(wait)()
        await soon(started.wait())
        with healthcheck_server("127.0.0.1", 0, worker=worker, patience=timedelta(milliseconds=1)) as port:
            await eventually(lambda: (vitals := worker.vitals()) and vitals.since_claim > timedelta(milliseconds=5))
            ready = await fetch(port, "/ready")
        go_on.set()
    assert (ready.status, ready.json["running"]) == (200, 1)


async def test_a_blocked_event_loop_still_answers_and_says_so(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health, "TURN", 0.05)
    answers: list[Fetched] = []
    async with at_work(worker):
        await eventually(lambda: worker.vitals() is not None)
        with healthcheck_server("127.0.0.1", 0, worker=worker) as port:

            async def block() -> None:
                asking = threading.Thread(target=lambda: answers.extend([get(port, "/ready"), get(port, "/live")]))
                asking.start()
                asking.join()  # on the event loop, which stands still meanwhile

            await (await docket.add(block)()).get_result(timeout=timedelta(minutes=1))
    ready, live = answers
    assert (ready.status, ready.json["reason"]) == (503, "the event loop is blocked")
    assert live.status == 200, "it has not been blocked for as long as one may be patient"


@pytest.mark.parametrize("told", [Worker.stop, Worker.retire])
async def test_a_worker_that_stops_is_not_ready(docket: Docket, worker: Worker, told: Callable[[Worker], None]):
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await go_on.wait()

    async with at_work(worker):
        await docket.add(wait)()
        await soon(started.wait())
        with healthcheck_server("127.0.0.1", 0, worker=worker) as port:
            told(worker)
            ready = await fetch(port, "/ready")
        go_on.set()
    assert (ready.status, ready.json["reason"]) == (503, "the worker is stopping")


def test_a_head_request_has_no_body():
    import http.client

    with healthcheck_server("127.0.0.1", 0) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("HEAD", "/")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        connection.close()


# What is found


@pytest.mark.parametrize(
    ("vitals", "ready"),
    [
        (None, False),
        (WELL, True),
        (Vitals(timedelta(minutes=5), has_room=True, running=1, is_stopping=False), False),
        (Vitals(timedelta(minutes=5), has_room=False, running=9, is_stopping=False), True),
        (Vitals(timedelta(seconds=1), has_room=True, running=1, is_stopping=True), False),
    ],
)
def test_who_is_ready(vitals: Vitals | None, ready: bool):
    finding = Examiner(Patient(vitals), PATIENCE).examine()
    assert finding.ready is ready
    assert finding.live is True
    assert (finding.reason == "ok") is ready


async def test_a_loop_that_is_blocked_for_too_long_is_dead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "TURN", 0.001)
    examiner = Examiner(Patient(WELL), timedelta(microseconds=1))
    assert page_of("/live", examiner).status == 503  # asked on the loop itself, which cannot turn meanwhile


async def test_a_loop_that_is_closed_does_not_turn():
    loop = asyncio.new_event_loop()

    async def make() -> Examiner:
        return Examiner(Patient(None), PATIENCE)

    examiner = await asyncio.to_thread(loop.run_until_complete, make())
    loop.close()
    assert examiner.examine().reason == "the event loop is blocked"


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"port": 70000}, InvalidArgument),
        ({"port": -1}, InvalidArgument),
        ({"port": "8080"}, InvalidType),
        ({"port": 0, "host": ""}, UsageError),
        ({"port": 0, "patience": 5}, InvalidType),
        ({"port": 0, "patience": timedelta()}, InvalidArgument),
    ],
)
def test_wrong_input_is_refused(arguments: dict[str, Any], error: type[Exception]):
    with pytest.raises(error), healthcheck_server(**arguments):
        pass


def test_a_port_that_is_taken_is_said_to_be():
    refused = pytest.raises(UsageError, match="in use; choose another port")
    with healthcheck_server("127.0.0.1", 0) as port, refused, healthcheck_server("127.0.0.1", port):
        pass
