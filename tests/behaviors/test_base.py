"""Behaviors of one's own: the hooks, in the order of a run's life."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

import pytest

from dovetail import Behavior, Docket, Retry, Worker
from dovetail.behaviors import Arguments, Attempt, Outcome, Proceed
from dovetail.model import NewRun, Requeue, Settle, State, Verdict
from tests.by_hand import ByHand, finish, run_of, runs_of

MakeWorker = Callable[..., Worker]
events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


class Noted(Behavior):
    """Notes every hook that is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
        events.append(f"{self.name} plans {dict(arguments)}")
        return draft

    def bind(self, attempt: Attempt) -> Self:
        events.append(f"{self.name} binds attempt {attempt.number}")
        return self

    async def around(self, proceed: Proceed) -> Any:
        events.append(f"{self.name} begins")
        try:
            return await proceed()
        finally:
            events.append(f"{self.name} ends")

    def recover(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        events.append(f"{self.name} recovers from {type(outcome.error).__name__}")
        return None

    def follow_up(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        events.append(f"{self.name} follows up on {outcome.result}")
        return None


async def test_the_hooks_are_called_in_the_order_of_a_runs_life(still: Docket, by_hand: ByHand):
    async def task(a: int, noted: Noted = Noted("it")) -> str:
        events.append("body")
        return "result"

    await still.add(task)(5)
    await by_hand.step()
    assert events == [
        "it plans {'a': 5}",
        "it binds attempt 1",
        "it begins",
        "body",
        "it ends",
        "it follows up on result",
    ]


async def test_after_an_error_a_behavior_may_recover_and_then_follow_up(still: Docket, by_hand: ByHand):
    async def task(noted: Noted = Noted("it")) -> str:
        raise ValueError

    await still.add(task)()
    assert (await by_hand.step()).state is State.FAILED
    assert events[-2:] == ["it recovers from ValueError", "it follows up on None"]


async def test_a_behavior_in_metadata_wraps_the_call_and_the_parameter_keeps_its_value(still: Docket, by_hand: ByHand):
    received: list[Any] = []

    async def task(a: Any) -> None:
        received.append(a)

    task.__annotations__["a"] = Annotated[int, Noted("it")]
    await still.add(task)(5)
    await by_hand.step()
    assert received == [5]
    assert "it begins" in events


async def test_the_parameter_receives_what_bind_returns(still: Docket, by_hand: ByHand):
    received: list[Any] = []

    class Given(Behavior):
        value = ""

        def bind(self, attempt: Attempt) -> Self:
            bound = type(self)()
            bound.value = attempt.claim.key
            return bound

    async def task(given: Given = Given()) -> None:
        received.append(given.value)

    await still.add(task, key="k")()
    await by_hand.step()
    assert received == ["k"]


class Deciding(Behavior):
    """Says what is to become of a run."""

    def __init__(self, recovers: bool = False, follows: bool = False) -> None:
        self.recovers = recovers
        self.follows = follows

    def recover(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        return Requeue(attempt.claim, attempt.number + 1, timedelta(hours=1)) if self.recovers else None

    def follow_up(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        if not self.follows:
            return None
        return Settle(attempt.claim, State.COMPLETED, then=(attempt.successor(timedelta(hours=1)),))


async def test_a_run_that_succeeded_is_not_recovered(still: Docket, by_hand: ByHand):
    async def task(deciding: Deciding = Deciding(recovers=True)) -> None: ...

    await still.add(task)()
    assert (await by_hand.step()).state is State.COMPLETED


async def test_whoever_recovers_spares_the_follow_up(still: Docket, by_hand: ByHand):
    async def task(follows: Deciding = Deciding(follows=True), recovers: Deciding = Deciding(recovers=True)) -> None:
        raise ValueError

    await still.add(task, key="k")()
    assert (await by_hand.step()).state is State.SCHEDULED
    assert len(await runs_of(still, "k")) == 1


async def test_a_successor_has_the_arguments_of_the_run_unless_others_are_given(still: Docket, by_hand: ByHand):
    async def task(a: int, *, b: str, follows: Deciding = Deciding(follows=True)) -> None: ...

    await still.add(task, key="k")(1, b="two")
    await by_hand.step()
    successor = await still.get_execution("k")
    assert successor is not None
    assert (successor.args, successor.kwargs, successor.attempt) == ((1,), {"b": "two"}, 1)


# Behaviors that go wrong


class Broken(Behavior):
    """Raises in one of its hooks."""

    def __init__(self, hook: str, error: type[BaseException]) -> None:
        self.hook = hook
        self.error = error

    def _at(self, hook: str) -> None:
        if hook == self.hook:
            raise self.error(f"in {hook}")

    def bind(self, attempt: Attempt) -> Self:
        self._at("bind")
        return self

    async def around(self, proceed: Proceed) -> Any:
        self._at("around")
        return await proceed()

    def recover(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        self._at("recover")
        return None

    def follow_up(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        self._at("follow_up")
        return None


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("hook", ["bind", "around", "recover", "follow_up"])
async def test_a_behavior_that_goes_wrong_does_not_cost_the_outcome_nor_the_worker(
    docket: Docket, worker: Worker, hook: str, error: type[BaseException]
):
    calls: list[int] = []

    async def task(broken: Broken = Broken(hook, error)) -> None:
        calls.append(1)
        if hook == "recover":
            raise KeyError("the body's")

    async def healthy() -> str:
        return "healthy"

    execution = await docket.add(task)()
    good = await docket.add(healthy)()
    await finish(worker)
    run = await run_of(docket, key=execution.key)
    assert run.state is (State.COMPLETED if hook == "follow_up" else State.FAILED)
    assert run.crashes == 0
    assert len(calls) == (1 if hook in ("recover", "follow_up") else 0)
    assert await good.get_result() == "healthy"


async def test_a_behavior_that_cannot_be_bound_does_not_switch_the_others_off(still: Docket, by_hand: ByHand):
    async def task(broken: Broken = Broken("bind", ValueError), retry: Retry = Retry(attempts=2)) -> None: ...

    await still.add(task)()
    run = await by_hand.step()
    assert (run.error, run.state, run.attempt) == ("ValueError: in bind", State.QUEUED, 2)


async def test_a_behavior_that_goes_wrong_in_planning_is_told_to_the_caller(docket: Docket):
    class Refusing(Behavior):
        def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
            raise ValueError(f"not with {arguments['a']}")

    async def task(a: int, refusing: Refusing = Refusing()) -> None: ...

    with pytest.raises(ValueError, match="not with 5"):
        await docket.add(task)(5)


def test_by_itself_a_behavior_does_nothing():
    behavior = Behavior()
    draft = NewRun("id", "k", "t")
    attempt: Any = None
    outcome: Any = None
    assert behavior.seed(datetime.now(UTC)) is None
    assert behavior.plan(draft, {}) is draft
    assert behavior.bind(attempt) is behavior
    assert behavior.recover(attempt, outcome) is None
    assert behavior.follow_up(attempt, outcome) is None


async def test_by_itself_a_behavior_lets_the_call_proceed():
    async def proceed() -> str:
        return "result"

    assert await Behavior().around(proceed) == "result"


class Judging(Behavior):
    """Says what it was told to say."""

    def __init__(self, say: Callable[[Attempt], Any]) -> None:
        self.say = say

    def recover(self, attempt: Attempt, outcome: Outcome) -> Any:
        return self.say(attempt)


@pytest.mark.parametrize(
    "say",
    [
        lambda attempt: "verdict",
        lambda attempt: 0,
        lambda attempt: Requeue(attempt.claim, 2, 5),  # type: ignore[arg-type]
        lambda attempt: Requeue(attempt.claim, "2"),  # type: ignore[arg-type]
        lambda attempt: Requeue(attempt.claim.but(id="another"), 2),
        lambda attempt: Settle(attempt.claim, "completed", object()),  # type: ignore[arg-type]
        lambda attempt: Settle(attempt.claim, State.RUNNING),
        lambda attempt: Settle(attempt.claim, State.COMPLETED, "text"),  # type: ignore[arg-type]
    ],
)
async def test_a_verdict_that_is_none_counts_as_none(
    still: Docket, by_hand: ByHand, say: Callable[[Attempt], Any], caplog: pytest.LogCaptureFixture
):
    async def task(judging: Judging = Judging(say)) -> None:
        raise ValueError("the body's own")

    execution = await still.add(task)()
    run = await by_hand.step()
    assert (run.key, run.state, run.error) == (execution.key, State.FAILED, "ValueError: the body's own")
    assert "could not decide; the run settles" in caplog.text


@pytest.mark.filterwarnings("ignore:coroutine")
async def test_a_hook_that_is_a_coroutine_function_gives_no_verdict(still: Docket, by_hand: ByHand):
    class Asynchronous(Behavior):
        async def recover(self, attempt: Attempt, outcome: Outcome) -> Any: ...  # type: ignore[override]

    async def task(behavior: Asynchronous = Asynchronous()) -> None:
        raise ValueError

    await still.add(task)()
    assert (await by_hand.step()).state is State.FAILED
