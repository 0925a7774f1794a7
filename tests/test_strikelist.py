"""Strike lists: what is stricken, known soon to all who follow, and kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Docket, Execution, Operator, Strike, StrikeList, strikelist
from dovetail.clock import VirtualClock
from dovetail.codec import Keyring, SigningKey
from dovetail.errors import AlreadyOpen, EngineUnavailable, InvalidArgument, InvalidType, InvalidURL, NotOpen
from dovetail.model import Hold, HoldKind
from dovetail.strikelist import Restore
from tests.faults import Faulty
from tests.waiting import eventually, soon

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
MINUTE = timedelta(minutes=1)
ANN = {"to": "ann"}


@pytest.fixture
async def strikes(url: str, clock: VirtualClock) -> AsyncIterator[StrikeList]:
    """An open list of the still docket's."""
    async with StrikeList(url, "tests", clock=clock) as strikes:
        yield strikes


@pytest.fixture
def alone() -> StrikeList:
    """A list without a store."""
    return StrikeList()


def a_call(docket: Docket, **arguments: Any) -> Execution[Any]:
    async def send(to: Any = None) -> None: ...

    return Execution(docket, send, (), arguments, "key", datetime.now(UTC))


# By itself


async def test_a_list_without_a_store_knows_what_it_is_told(alone: StrikeList):
    async with alone:
        await alone.wait_for_strikes_loaded()
        alone.update(Strike(None, "to", Operator.EQUAL, "ann"))
        assert alone.is_stricken(ANN)
        assert not alone.is_stricken({"to": "bob"})
        alone.update(Restore(None, "to", Operator.EQUAL, "ann"))
        assert not alone.is_stricken(ANN)


def test_telling_twice_is_the_same_as_once(alone: StrikeList):
    for _ in range(2):
        alone.update(Strike("send", "to", Operator.EQUAL, "ann"))
    assert alone.task_strikes == {"send": {"to": {("==", "ann")}}}
    for _ in range(2):
        alone.update(Restore("send", "to", Operator.EQUAL, "ann"))
    assert alone.task_strikes == alone.parameter_strikes == {}


def test_restoring_a_parameter_leaves_the_whole_task_stricken(alone: StrikeList):
    alone.update(Strike("send", None))
    alone.update(Strike("send", "to", Operator.EQUAL, "ann"))
    alone.update(Restore("send", "to", Operator.EQUAL, "ann"))
    assert alone.task_strikes == {"send": {}}


def test_a_condition_strikes_while_it_is_there(docket: Docket, alone: StrikeList):
    def condition(execution: Execution[Any]) -> bool:
        return execution.kwargs["to"] == "ann"

    alone.add_condition(condition)
    assert alone.is_stricken(a_call(docket, to="ann"))
    assert not alone.is_stricken(a_call(docket, to="bob"))
    alone.remove_condition(condition)
    assert not alone.is_stricken(a_call(docket, to="ann"))


def test_a_condition_that_fails_lets_the_call_through(
    docket: Docket, alone: StrikeList, caplog: pytest.LogCaptureFixture
):
    alone.add_condition(lambda execution: bool(1 / 0))
    assert not alone.is_stricken(a_call(docket))
    assert "could not judge send(){key}" in caplog.text


def test_what_does_not_compare_is_told_once_without_its_value(alone: StrikeList, caplog: pytest.LogCaptureFixture):
    alone.update(Strike(None, "amount", Operator.GREATER_THAN, 100))
    for _ in range(3):
        assert not alone.is_stricken({"amount": "secret"})
    (line,) = caplog.messages
    assert line.startswith("Incompatible type for strike condition *(amount > ...)")
    assert "secret" not in line


async def test_without_a_store_nothing_can_be_sent(alone: StrikeList, url: str):
    for each in (alone, StrikeList(url)):
        with pytest.raises(NotOpen, match="not open, so that it is not connected to Redis"):
            await each.strike("send")
    with pytest.raises(RuntimeError):
        await alone.restore("send")


def test_a_wrong_url_is_refused_at_once():
    with pytest.raises(InvalidURL):
        StrikeList("nowhere://")


# Following


async def test_what_is_stricken_here_is_known_here_at_once(strikes: StrikeList):
    await strikes.strike(parameter="to", value="ann")
    assert strikes.is_stricken(ANN)
    await strikes.restore(parameter="to", value="ann")
    assert not strikes.is_stricken(ANN)
    assert not strikes.is_stricken({})


async def test_a_list_follows_what_others_strike_and_restore(still: Docket, strikes: StrikeList):
    await still.strike(None, "to", "==", "ann")
    await eventually(lambda: strikes.is_stricken(ANN))
    await still.restore(None, "to", "==", "ann")
    await eventually(lambda: not strikes.is_stricken(ANN))


async def test_what_was_stricken_before_is_known_after_loading(still: Docket, url: str):
    await still.strike(None, "to", "==", "ann")
    async with StrikeList(url, "tests") as late:
        await soon(late.wait_for_strikes_loaded())
        assert late.is_stricken(ANN)


async def test_dockets_of_another_name_are_not_concerned(still: Docket, url: str):
    await still.strike(None, "to", "==", "ann")
    async with StrikeList(url, "others") as others:
        await others.refresh()
        assert not others.is_stricken(ANN)


async def test_a_list_can_be_left_and_entered_again(still: Docket, url: str):
    strikes = StrikeList(url, "tests")
    async with strikes:
        await strikes.strike("send")
        with pytest.raises(AlreadyOpen, match="not reentrant"):
            await strikes.__aenter__()
    assert "send" in strikes.task_strikes  # what was known stays known
    await still.restore("send")
    async with strikes:
        await soon(strikes.wait_for_strikes_loaded())
        assert strikes.task_strikes == {}


async def test_a_hint_that_is_lost_costs_a_poll(still: Docket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strikelist, "POLL", timedelta(milliseconds=5))
    deaf = Faulty(still.engine)
    deaf.faults.fail("watch", 10_000)
    strikes = StrikeList(name="tests")
    async with strikes.following(deaf):  # type: ignore[arg-type]
        await soon(strikes.wait_for_strikes_loaded())
        await still.strike("send")
        await eventually(lambda: "send" in strikes.task_strikes)


async def test_a_store_that_was_away_is_read_again(
    still: Docket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(strikelist, "RECONNECT", 0.001)
    await still.strike("send")
    door = Faulty(still.engine)
    door.faults.fail("holds", 2)
    strikes = StrikeList(name="tests")
    async with strikes.following(door):  # type: ignore[arg-type]
        await soon(strikes.wait_for_strikes_loaded())
        assert "send" in strikes.task_strikes
    assert "cannot be followed, trying again: the door is shut" in caplog.text


async def test_a_heartbeat_tells_that_the_holds_have_changed(still: Docket):
    deaf = Faulty(still.engine)
    deaf.faults.fail("watch", 1)
    strikes = StrikeList(name="tests")
    async with strikes.following(deaf):  # type: ignore[arg-type]
        await soon(strikes.wait_for_strikes_loaded())
        strikes.notice(1)
        await soon(deaf.faults.reached("holds", 2))
        strikes.notice(1)
        await still.strike("send")
        strikes.notice(2)
        await eventually(lambda: "send" in strikes.task_strikes)


async def test_an_old_answer_never_comes_in_after_a_newer_one(still: Docket):
    slow = Faulty(still.engine)
    slow.faults.fail("watch", 1)  # no hint that would have it read once more
    answered, go_on = asyncio.Event(), asyncio.Event()

    async def hold_the_first_back() -> None:
        if not answered.is_set():
            answered.set()
            await go_on.wait()

    slow.faults.after["holds"] = hold_the_first_back
    strikes = StrikeList(name="tests")
    async with strikes.following(slow):  # type: ignore[arg-type]
        await soon(answered.wait())  # an answer without the strike is on its way
        striking = asyncio.create_task(strikes.strike("send"))
        await eventually(lambda: striking.done() or strikes._reading.locked())  # pyright: ignore[reportPrivateUsage]
        go_on.set()
        await soon(striking)
        await soon(slow.faults.reached("holds", 3))
        assert "send" in strikes.task_strikes


async def test_a_docket_that_was_not_entered_says_so(url: str):
    docket = Docket("tests", url)
    with pytest.raises(EngineUnavailable, match="not open"):
        await docket.strike("send")
    with pytest.raises(EngineUnavailable, match="not open"):
        await docket.add("trace")("hello")


# Keeping


async def test_a_strike_says_why_by_whom_and_since_when(strikes: StrikeList, clock: VirtualClock):
    await strikes.strike("send", "to", "==", "ann", reason="bounces", owner="bob", until=clock.now() + MINUTE)
    (strike,) = await strikes.strikes()
    assert strike == Strike("send", "to", Operator.EQUAL, "ann")
    assert (strike.reason, strike.owner) == ("bounces", "bob")
    assert (strike.since, strike.until) == (clock.now(), clock.now() + MINUTE)


async def test_a_strike_ends_with_its_time(strikes: StrikeList, clock: VirtualClock):
    await strikes.strike(None, "to", "==", "ann", until=clock.now() + MINUTE)
    clock.jump(MINUTE)
    assert not strikes.is_stricken(ANN)
    assert await strikes.strikes() == []
    assert strikes.parameter_strikes == {}


async def test_striking_again_changes_the_reason_and_the_time(strikes: StrikeList, clock: VirtualClock):
    await strikes.strike("send", reason="first", until=clock.now() + MINUTE)
    await strikes.strike("send", reason="second")
    (strike,) = await strikes.strikes()
    assert (strike.reason, strike.until) == ("second", None)


async def test_restoring_what_is_not_stricken_is_nothing(strikes: StrikeList):
    await strikes.strike("send", "to", "==", "ann")
    others: list[Any] = [("send",), ("send", "to"), ("send", "to", "==", "bob"), ("other",), (None, "to", "==", "ann")]
    for words in others:
        await strikes.restore(*words)
    assert strikes.task_strikes == {"send": {"to": {("==", "ann")}}}


async def test_a_strike_is_restored_by_its_value_whatever_its_bytes(strikes: StrikeList, still: Docket):
    """Another codec, or another process, may have written the same value otherwise."""
    await still.engine.hold([Hold(HoldKind.STRIKE, parameter="to", value=b'1j:{ "v": "ann" }')])
    await strikes.strike(None, "to", "==", "ann", reason="again")
    assert [strike.reason for strike in await strikes.strikes()] == ["again"]
    await strikes.restore(None, "to", "==", "ann")
    assert await strikes.strikes() == []


async def test_a_strike_that_cannot_be_read_is_told_of_once(still: Docket, url: str, caplog: pytest.LogCaptureFixture):
    await still.strike("send", "to", "==", "ann")
    keys = Keyring(SigningKey("k", b"x" * 32))
    async with StrikeList(url, "tests", signing=keys) as strikes:
        for _ in range(3):
            await strikes.refresh()
        assert strikes.task_strikes == {}
    told = [each for each in caplog.messages if "task 'send', parameter 'to' cannot be read here" in each]
    assert len(told) == 1


async def test_changes_are_logged_without_their_values(strikes: StrikeList, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "dovetail.strikelist")
    await strikes.strike(None, "to", "==", "ann", reason="bounces")
    await strikes.restore(None, "to", "==", "ann")
    assert caplog.messages == ["stricken: *(to == ...): bounces", "restored: *(to == ...)"]


# Bad input


async def ping(host: str) -> None: ...


@pytest.mark.parametrize(
    ("words", "more", "error", "message"),
    [
        ((), {}, InvalidArgument, "a function, a parameter, or both"),
        ((ping, "host", "~="), {}, InvalidArgument, "task 'ping', parameter 'host': operator must be one of"),
        ((ping, "port", "==", 1), {}, InvalidArgument, "task 'ping', parameter 'port': the task has no such parameter"),
        ((ping, "host", ">", None), {}, InvalidArgument, "task 'ping', parameter 'host': > needs a value that has"),
        ((None, "host", "<", {}), {}, InvalidArgument, "any task, parameter 'host': < needs a value that has an order"),
        ((ping, "host", "between", 5), {}, InvalidArgument, "parameter 'host': between needs a low and a high end"),
        ((ping, None, "==", 5), {}, InvalidArgument, "task 'ping': an operator or a value needs the parameter"),
        ((ping,), {"until": NAIVE}, InvalidType, "until must know its time zone"),
        ((ping,), {"until": datetime(2029, 1, 1, tzinfo=UTC)}, InvalidArgument, "task 'ping': until is over already"),
        ((ping,), {"reason": ""}, InvalidArgument, "reason must not be empty"),
        ((ping,), {"owner": 5}, InvalidType, "owner must be text"),
        ((5,), {}, InvalidType, "function must be a function"),
        ((ping, 5), {}, InvalidType, "parameter must be text"),
    ],
)
async def test_a_strike_that_makes_no_sense_is_refused(
    still: Docket, words: tuple[Any, ...], more: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        await still.strike(*words, **more)
    assert await still.strikes() == []


async def test_the_parameters_of_a_registered_task_are_known_by_its_name(still: Docket):
    still.register(ping)
    with pytest.raises(InvalidArgument, match="it has host"):
        await still.strike("ping", "port", "==", 1)
    await still.strike("not known here", "port", "==", 1)


async def test_pickled_arguments_may_compare_with_anything(pickling: Docket):
    await pickling.strike(ping, "host", ">", None)
    with pytest.raises(InvalidArgument, match="between"):
        await pickling.strike(ping, "host", "between", None)
