"""From facts to causes: tables, no store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.holds import Operator, Strike
from dovetail.model import (
    AttemptError,
    Blockage,
    Failure,
    Hold,
    HoldKind,
    Limit,
    LimitUse,
    Run,
    Standing,
    State,
    WorkerInfo,
)
from dovetail.schedules.definition import QUEUE, TASK
from dovetail.why import CauseCode, Why
from dovetail.why.facts import Facts
from dovetail.why.judging import judge
from dovetail.worker.setting import SharedUnavailable

NOW = datetime(2026, 1, 5, 14, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ANN = WorkerInfo("ann", NOW, frozenset({"sync"}), "1", concurrency=2, running=1)
BUSY = ANN.but(running=2)
SLOTS = Limit("concurrency:task:sync:customer_id=7", 2)
RATE = Limit("rate:task:sync", 10, MINUTE)


def a_run(key: str = "k", state: State = State.QUEUED, **fields: Any) -> Run:
    shape: dict[str, Any] = {
        "id": f"id of {key}", "key": key, "task": "sync", "state": state, "queue": "default", "priority": 0,
        "due": NOW - SECOND, "created": NOW - MINUTE, "attempt": 1, "epoch": 0, "payload": b"",
    }  # fmt: skip
    return Run(**{**shape, **fields})


def why(run: Run | None, *workers: WorkerInfo, ahead: int = 0, limits: tuple[LimitUse, ...] = (), **more: Any) -> Why:
    standing = None
    if run is not None and not run.state.is_terminal:
        standing = Standing(NOW, run.state, run.epoch, run.parked_on, ahead, limits, workers)
    return judge(Facts("k", NOW, run, standing, **more))


def test_a_run_with_nothing_in_its_way_is_ready() -> None:
    assert why(a_run(), ANN).codes == (CauseCode.READY,)
    assert str(why(a_run(), ANN, ahead=1)).endswith("About 1 run of its queue is before it.")


def test_what_is_due_but_not_ready_yet_counts_as_ready() -> None:
    assert why(a_run(state=State.SCHEDULED), ANN).codes == (CauseCode.READY,)


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (0, "It is the next of its queue."),
        (1, "About 1 run of its queue is before it."),
        (2_500, "About 2,500 runs of its queue are before it."),
        (10_000, "10,000 runs or more of its queue are before it."),
    ],
)
def test_the_position_in_words(ahead: int, said: str) -> None:
    answer = why(a_run(), BUSY, ahead=ahead)
    assert answer.codes == (CauseCode.WORKERS_BUSY,)
    assert answer.cause.text == f"Every worker that could take it is busy: 1 worker with 2 slots. {said}"


def test_a_worker_that_takes_other_queues_does_not_count_as_free() -> None:
    assert why(a_run(), BUSY, ANN.but(id="2", queues=("mail",))).codes == (CauseCode.WORKERS_BUSY,)


def test_a_schedule_is_everybodys() -> None:
    tick = a_run(task="dovetail.schedule", queue="dovetail.schedules")
    assert why(tick, ANN.but(queues=("mail",))).codes == (CauseCode.READY,)


def test_a_worker_whose_loop_is_blocked_is_busy() -> None:
    blocked = ANN.but(blocked=Blockage("jobs.py:7 in crunch", NOW - MINUTE, "other"))
    answer = why(a_run(), blocked)
    assert answer.codes == (CauseCode.WORKERS_BUSY,)
    assert "blocked by the run 'other' for 1 min, at jobs.py:7 in crunch" in str(answer)


def test_a_worker_that_was_not_heard_of_is_not_alive() -> None:
    silent = ANN.but(last_seen=NOW - MINUTE)
    answer = why(a_run(), silent, silence=10 * SECOND)
    assert answer.codes == (CauseCode.NO_WORKER,)
    assert answer.cause.facts["last_seen"] == NOW - MINUTE


def test_a_worker_that_speaks_seldom_is_given_time() -> None:
    seldom = ANN.but(last_seen=NOW - MINUTE, interval=MINUTE)
    assert why(a_run(), seldom, silence=10 * SECOND).codes == (CauseCode.READY,)


def test_a_run_whose_surroundings_could_not_be_seen_is_not_said_to_lack_a_worker() -> None:
    assert judge(Facts("k", NOW, a_run())).codes == (CauseCode.READY,)


def test_the_limit_that_it_is_parked_on_comes_first() -> None:
    run = a_run(state=State.SCHEDULED, parked_on=RATE.key, limits=(SLOTS, RATE))
    uses = (LimitUse(SLOTS, 2), LimitUse(RATE, 10, opens=NOW + MINUTE))
    assert why(run, ANN, limits=uses).codes == (CauseCode.WINDOW_CLOSED, CauseCode.LIMIT_FULL)


def test_more_holders_than_are_named_are_counted() -> None:
    holder = a_run("holder", State.RUNNING, worker="bob", started=NOW - SECOND)
    wide = SLOTS.but(capacity=12)
    answer = why(a_run(limits=(wide,)), ANN, limits=(LimitUse(wide, 12, (holder.id,)),), relatives={holder.id: holder})
    assert "held by 'holder' on 'bob' since 13:59:59 UTC and 11 more." in str(answer)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("concurrency:task:sync", "ConcurrencyLimit of 'sync'"),
        ("concurrency:task:sync:customer_id=7", "customer_id=7 (ConcurrencyLimit of 'sync')"),
        ("concurrency:scope:crm:customer_id=7", "crm:customer_id=7 (ConcurrencyLimit)"),
        ("concurrency:0123abcd", "'concurrency:0123abcd'"),
        ("mine", "'mine'"),
    ],
)
def test_the_name_of_a_limit(key: str, name: str) -> None:
    limit = Limit(key, 1)
    assert f"The limit {name} is full: 1 at once." in str(why(a_run(), ANN, limits=(LimitUse(limit, 1),)))


def test_a_retry_that_waits_says_what_failed() -> None:
    failed = AttemptError(1, NOW - SECOND, "ann", Failure("ValueError", "broken"))
    run = a_run(state=State.SCHEDULED, attempt=2, due=NOW + 42 * SECOND, errors=(failed,))
    assert str(why(run, ANN)) == (
        "Attempt 1 failed 1 s ago with ValueError: broken. Attempt 2 is due in 42 s, at 14:00:42 UTC."
    )


def test_a_run_that_was_put_off_after_an_error_is_just_scheduled() -> None:
    failed = AttemptError(1, NOW - SECOND, "ann", Failure("ValueError", "broken"))
    run = a_run(state=State.SCHEDULED, attempt=1, due=NOW + SECOND, errors=(failed,))
    assert str(why(run, ANN)) == "It is due in 1 s, at 14:00:01 UTC."


def test_a_run_that_was_put_back_at_no_cost_says_so_before_it_is_due_and_after() -> None:
    error = AttemptError(1, NOW - SECOND, "ann", Failure(SharedUnavailable.__name__, "no connection"))
    put_back = "It was put back 1 s ago, at no cost: SharedUnavailable: no connection."
    run = a_run(state=State.SCHEDULED, due=NOW + SECOND, errors=(error,))
    assert str(why(run, ANN)) == f"{put_back} It is due in 1 s, at 14:00:01 UTC."
    assert str(why(run.but(due=NOW), ANN)).endswith(f"when it next looks. {put_back}")


def test_strikes_pauses_and_workers_come_before_limits() -> None:
    full = (LimitUse(SLOTS, 2),)
    strike = Strike("sync", "customer_id", Operator.EQUAL, 7)
    pause = Hold(HoldKind.PAUSE, queue="default")
    assert why(a_run(), limits=full, strikes=(strike,), pause=pause).codes == (
        CauseCode.STRUCK,
        CauseCode.PAUSED,
        CauseCode.NO_WORKER,
        CauseCode.LIMIT_FULL,
    )


@pytest.mark.parametrize(
    ("strike", "said"),
    [
        (Strike("sync", None), "The strike of 'sync' forbids it."),
        (Strike("sync", "id", Operator.EQUAL, "x"), "The strike of 'sync' with id == 'x' forbids it."),
        (Strike(None, "id", Operator.LESS_THAN, 3), "The strike of every task with id < 3 forbids it."),
    ],
)
def test_a_strike_is_named_by_what_it_forbids(strike: Strike, said: str) -> None:
    assert str(why(a_run(), ANN, strikes=(strike,))).startswith(said)


def test_a_worker_that_has_just_died_does_not_take_its_own_run_over() -> None:
    lapsed = a_run(state=State.RUNNING, worker="ann", started=NOW - MINUTE, lease_until=NOW - SECOND)
    died = ANN.but(last_seen=NOW - 5 * SECOND)
    answer = why(lapsed, died)
    assert answer.codes == (CauseCode.LEASE_LAPSED, CauseCode.RUNNING)
    assert "once there is a live worker for its queue" in answer.causes[0].text
    assert answer.causes[1].text.startswith("It started 1 min ago, at 13:59:00 UTC, on worker 'ann'")
    for successor in (ANN, died.but(name="bob")):
        assert "takes it over when it next looks" in why(lapsed, died, successor).causes[0].text


def test_a_schedule_whose_worker_has_died_is_taken_over_by_any_other() -> None:
    lapsed = a_run(
        state=State.RUNNING, task=TASK, queue=QUEUE, worker="ann", started=NOW - MINUTE, lease_until=NOW - SECOND
    )
    of_mail = ANN.but(name="bob", queues=("mail",))
    assert "takes it over when it next looks" in why(lapsed, of_mail).causes[0].text


def test_a_run_that_waits_for_what_left_no_record_waits_for_ever() -> None:
    answer = why(a_run(state=State.WAITING, parents=("gone",)), ANN)
    assert str(answer) == "It waits for 1 run that left no record, and so for ever: cancel it."


def test_a_parent_whose_record_is_gone_is_named_by_its_id() -> None:
    run = a_run(state=State.CANCELLED, finished=NOW - SECOND, doomed_by="gone")
    answer = why(run)
    assert answer.codes == (CauseCode.CANCELLED_BY_PARENT,)
    assert "the run gone, which it waited for" in str(answer)


def test_a_parent_that_was_run_again_is_told_as_it_is_now() -> None:
    parent = a_run("parent", State.RUNNING)
    run = a_run(state=State.CANCELLED, finished=NOW, doomed_by=parent.id)
    assert "by now that is running" in str(why(run, relatives={parent.id: parent}))


def test_a_worker_known_to_two_processes_is_as_fresh_as_the_fresher() -> None:
    run = a_run(state=State.RUNNING, worker="ann", started=NOW - MINUTE, lease_until=NOW + SECOND)
    answer = why(run, ANN, ANN.but(id="2", last_seen=NOW - 5 * SECOND))
    assert answer.codes == (CauseCode.RUNNING,)
    assert answer.cause.facts["worker_seen"] == NOW
