"""A budget: a worker runs some keys only so many times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail import Docket, Perpetual, Retry, Worker
from dovetail.model import Claim, Failure, NewRun, Requeue, Settle, State, Verdict
from dovetail.worker.budget import Budget
from dovetail.worker.roster import Reason, Tenure
from tests.by_hand import finish, run_of, runs_of

CLAIM = Claim("id", 1, "k", "t", b"", 1, datetime(2030, 1, 1, tzinfo=UTC))


def attending(verdict: Verdict | None) -> tuple[Callable[..., Any], list[str]]:
    attended: list[str] = []

    async def attend(tenure: Tenure) -> Verdict | None:
        attended.append(tenure.claim.key)
        return verdict.but(claim=tenure.claim) if verdict else None

    return attend, attended


async def spend(budget: Budget, verdict: Verdict | None, key: str = "k", reason: Reason | None = None) -> Any:
    attend, attended = attending(verdict)
    answer = await budget.around(attend)(Tenure(CLAIM.but(key=key), 0.0, reason))
    return answer, bool(attended)


COMPLETED = Settle(CLAIM, State.COMPLETED, then=(NewRun("next", "k", "t"),))
RETRIED = Requeue(CLAIM, 2, failure=Failure("ValueError", "no"))


async def test_a_key_with_runs_left_runs():
    assert await spend(Budget({"k": 2}), COMPLETED) == (COMPLETED, True)


async def test_a_key_without_a_budget_runs_freely():
    answer, attended = await spend(Budget({"k": 0}), COMPLETED, key="other")
    assert attended
    assert answer.then


async def test_a_key_with_none_left_is_cancelled_unattended():
    answer, attended = await spend(Budget({"k": 0}), COMPLETED)
    assert not attended
    assert answer.state is State.CANCELLED


async def test_the_last_run_is_not_followed():
    answer, _ = await spend(Budget({"k": 1}), COMPLETED)
    assert (answer.state, answer.then) == (State.COMPLETED, ())


async def test_followers_of_other_keys_stay():
    other = NewRun("next", "other", "t")
    answer, _ = await spend(Budget({"k": 1}), COMPLETED.but(then=(*COMPLETED.then, other)))
    assert answer.then == (other,)


async def test_the_last_run_is_not_tried_again():
    answer, _ = await spend(Budget({"k": 1}), RETRIED)
    assert isinstance(answer, Settle)
    assert (answer.state, answer.failure) == (State.CANCELLED, RETRIED.failure)


async def test_a_run_that_is_not_ours_to_judge_stays_so():
    assert await spend(Budget({"k": 1}), None) == (None, True)


async def test_a_run_that_is_handed_back_was_not_run_and_is_not_failed():
    handed_back = Requeue(CLAIM, 1)
    answer, _ = await spend(Budget({"k": 1}), handed_back, reason=Reason.SHUTDOWN)
    assert isinstance(answer, Requeue)


# With a worker


async def test_a_key_runs_at_most_so_many_times(docket: Docket, worker: Worker):
    calls: list[str] = []

    async def tick(name: str, perpetual: Perpetual = Perpetual()) -> None:
        calls.append(name)

    await docket.add(tick, key="a")("a")
    await docket.add(tick, key="b")("b")
    await finish(worker, a=3, b=1)
    assert sorted(calls) == ["a", "a", "a", "b"]


async def test_keys_that_are_not_named_run_to_their_end(docket: Docket, worker: Worker):
    calls: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        calls.append("tick")

    async def free() -> None:
        calls.append("free")

    await docket.add(tick, key="a")()
    for _ in range(5):
        await docket.add(free)()
    await finish(worker, a=2)
    assert calls.count("free") == 5
    assert calls.count("tick") == 2


async def test_a_perpetual_with_a_long_horizon_does_not_hold_the_worker_up(docket: Docket, worker: Worker):
    calls: list[str] = []

    async def yearly(perpetual: Perpetual = Perpetual(every=timedelta(days=365))) -> None:
        calls.append("yearly")

    await docket.add(yearly, key="a")()
    await finish(worker, a=1)
    assert calls == ["yearly"]
    assert [run.state for run in await runs_of(docket, "a")] == [State.COMPLETED]


async def test_an_attempt_is_a_run(docket: Docket, worker: Worker):
    attempts: list[int] = []

    async def fail(retry: Retry = Retry(attempts=10)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("no")

    await docket.add(fail, key="a")()
    await finish(worker, a=2)
    assert attempts == [1, 2]
    run = await run_of(docket, key="a")
    assert (run.state, run.error) == (State.CANCELLED, "ValueError: no")


async def test_an_unknown_task_is_not_failed_for_want_of_a_budget(docket: Docket):
    answer, _ = await spend(Budget({"k": 1}), Requeue(CLAIM, 1, timedelta(seconds=5)))
    assert isinstance(answer, Requeue)
