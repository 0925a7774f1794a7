"""Which calls strikes forbid: by task, by argument, by both; and what is no strike at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import Depends, Perpetual
from dovetail.codec import codec_named
from dovetail.errors import InvalidArgument, InvalidType, PayloadError
from dovetail.holds import (
    Operator,
    Restore,
    Rules,
    Strike,
    arguments_of,
    has_parameter,
    hold_of,
    misfit,
    strike_of,
    words_of,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Told:
    """Remembers what could not be compared."""

    def __init__(self) -> None:
        self.strikes: list[Strike] = []

    def __call__(self, strike: Strike, argument: Any, error: Exception) -> None:
        self.strikes.append(strike)


@pytest.fixture
def told() -> Told:
    return Told()


def forbid(rules: Rules, task: str, now: datetime = NOW, **arguments: Any) -> bool:
    return rules.forbid(task, lambda: arguments, now)


class Awkward:
    """Compares with nothing, and hides that it does not."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


# Comparing


@pytest.mark.parametrize(
    ("operator", "value", "yes", "no"),
    [
        ("==", 42, [42, 42.0], [43, "42", None]),
        ("!=", 42, [43, "42", None], [42]),
        (">", 42, [43], [42, 41]),
        (">=", 42, [43, 42], [41]),
        ("<", 42, [41], [42, 43]),
        ("<=", 42, [41, 42], [43]),
        ("between", (10, 20), [10, 15, 20], [9, 21]),
        ("between", [10, 20], [10, 15, 20], [9, 21]),
        ("==", ["a"], [["a"]], [["b"], "a"]),
        ("==", None, [None], [0, ""]),
    ],
)
def test_an_argument_is_compared_with_the_value(operator: str, value: Any, yes: list[Any], no: list[Any], told: Told):
    rules = Rules([Strike(None, "it", Operator(operator), value)], told)
    assert [each for each in yes if not forbid(rules, "task", it=each)] == []
    assert [each for each in no if forbid(rules, "task", it=each)] == []
    assert told.strikes == []


@pytest.mark.parametrize(
    ("operator", "value", "argument"),
    [
        (">", 42, "text"),
        ("<", "text", 42),
        (">=", None, 42),
        ("<=", 42, None),
        ("between", "no pair", 42),
        ("between", (1, 2, 3), 2),
        ("between", (1, 5), "3"),
        ("==", 42, Awkward()),
    ],
)
def test_what_does_not_compare_does_not_match_and_is_told_of(operator: str, value: Any, argument: Any, told: Told):
    strike = Strike(None, "it", Operator(operator), value)
    assert not forbid(Rules([strike], told), "task", it=argument)
    assert told.strikes == [strike]


# Which calls


def test_a_strike_of_a_task_forbids_its_calls_and_no_others(told: Told):
    rules = Rules([Strike("send", None)], told)
    assert forbid(rules, "send", to="ann")
    assert not forbid(rules, "receive", to="ann")


def test_a_strike_of_a_parameter_forbids_calls_of_every_task(told: Told):
    rules = Rules([Strike(None, "to", Operator.EQUAL, "ann")], told)
    assert forbid(rules, "send", to="ann")
    assert forbid(rules, "receive", to="ann")
    assert not forbid(rules, "send", to="bob")
    assert not forbid(rules, "send", sender="ann")


def test_a_strike_of_both_forbids_those_calls_of_that_task(told: Told):
    rules = Rules([Strike("send", "to", Operator.EQUAL, "ann")], told)
    assert forbid(rules, "send", to="ann")
    assert not forbid(rules, "send", to="bob")
    assert not forbid(rules, "receive", to="ann")


def test_the_strike_of_a_whole_task_and_one_of_its_parameter_stand_beside_each_other(told: Told):
    whole, part = Strike("send", None), Strike("send", "to", Operator.EQUAL, "ann")
    for both in ([whole, part], [part, whole]):
        assert forbid(Rules(both, told), "send", to="bob")


def test_a_strike_past_its_time_forbids_nothing(told: Told):
    rules = Rules([Strike("send", None, until=NOW), Strike(None, "to", until=NOW)], told)
    assert forbid(rules, "send", NOW - SECOND)
    assert forbid(rules, "receive", NOW - SECOND, to=None)
    assert not forbid(rules, "send", NOW, to=None)


def test_arguments_without_a_task_are_judged_by_what_is_forbidden_to_all(told: Told):
    rules = Rules([Strike("send", "to"), Strike("send", None), Strike(None, "cc", Operator.EQUAL, "ann")], told)
    assert rules.forbid_arguments({"to": 1, "cc": "ann"}, NOW)
    assert not rules.forbid_arguments({"to": None}, NOW)
    assert not rules.forbid_arguments({}, NOW)


def test_arguments_are_not_asked_for_where_no_strike_needs_them(told: Told):
    def unneeded() -> Mapping[str, Any]:
        raise AssertionError("asked")

    rules = Rules([Strike("send", None), Strike("receive", "to")], told)
    assert rules.forbid("send", unneeded, NOW)
    assert not rules.forbid("other", unneeded, NOW)


def test_the_tables_show_operators_and_values_by_parameter(told: Told):
    strikes = [
        Strike("send", None),
        Strike("receive", "to", Operator.EQUAL, 1),
        Strike("receive", "to", Operator.LESS_THAN, 9),
        Strike(None, "cc", Operator.EQUAL, "ann"),
        Strike(None, "bcc", Operator.EQUAL, ["cannot be hashed"]),
    ]
    tasks, parameters = Rules(strikes, told).tables()
    assert tasks == {"send": {}, "receive": {"to": {("==", 1), ("<", 9)}}}
    assert parameters == {"cc": {("==", "ann")}, "bcc": set()}


# Arguments


def here() -> str:
    return "here"


async def send(
    to: str,
    cc: str = "nobody",
    *more: int,
    place: str = Depends(here),
    perpetual: Perpetual = Perpetual(),
    **others: Any,
) -> None: ...


async def ping(host: str) -> None: ...


def test_arguments_go_by_name_with_defaults_and_surplus_ones():
    assert arguments_of(send, ("ann",), {"x": 1}) == {
        "to": "ann",
        "cc": "nobody",
        "more": (),
        "x": 1,
        "others": {"x": 1},
    }


def test_what_the_worker_injects_is_no_argument():
    assert "place" not in arguments_of(send, ("ann",), {})
    assert arguments_of(send, ("ann",), {"place": "there"})["place"] == "there"


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), (("a", "b"), {}), (("a",), {"host": "b"}), ((), {"x": 1})])
def test_a_call_that_cannot_be_made_has_no_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]):
    assert arguments_of(ping, args, kwargs) == {}


def test_a_task_with_surplus_arguments_may_have_any_parameter():
    assert has_parameter(send, "anything")
    assert has_parameter(ping, "host")
    assert not has_parameter(ping, "port")


# What makes no sense


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (">", None),
        (">=", {}),
        ("<", 1j),
        ("<=", object()),
        ("between", 5),
        ("between", "ab"),
        ("between", (1,)),
        ("between", (1, 2, 3)),
        ("between", (1, "b")),
        ("between", (None, None)),
        ("between", (2, 1)),
    ],
)
def test_an_operator_that_does_not_fit_its_value_is_told(operator: str, value: Any):
    assert operator in (misfit(Operator(operator), value) or "")


@pytest.mark.parametrize(
    ("operator", "value"),
    [("==", None), ("!=", {}), (">", 1), ("<", "a"), (">=", []), ("between", (1, 1)), ("between", [NOW, NOW + SECOND])],
)
def test_an_operator_that_fits_is_not(operator: str, value: Any):
    assert misfit(Operator(operator), value) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((None, None, "==", None), "a function, a parameter, or both"),
        (("send", "to", "=~", 1), r"task 'send', parameter 'to': operator must be one of == != > >= < <= between"),
        (("send", None, "==", 1), "task 'send': an operator or a value needs the parameter"),
        (("send", None, ">", None), "task 'send': an operator or a value needs the parameter"),
        (("", "to", "==", 1), "function must not be empty"),
        (("send", "", "==", 1), "parameter must not be empty"),
    ],
)
def test_words_that_name_nothing_are_refused(words: tuple[Any, Any, Any, Any], message: str):
    with pytest.raises(InvalidArgument, match=message):
        words_of(*words)


def test_a_task_is_a_function_or_a_name():
    assert words_of(send, None, "==", None) == words_of("send", None, Operator.EQUAL, None)
    with pytest.raises(InvalidType):
        words_of(5, None, "==", None)  # type: ignore[arg-type]


# Instructions


def test_an_instruction_says_what_it_names():
    strike = Strike("send", "to", Operator.EQUAL, "ann")
    assert strike.call_repr() == "send(to == 'ann')"
    assert strike.outline() == "send(to == ...)"
    assert strike.labels() == {
        "docket.task": "send",
        "docket.parameter": "to",
        "docket.operator": "==",
        "docket.value": "'ann'",
    }
    assert Restore("send", None).call_repr() == "send(* == *)"
    assert Restore(None, "to", Operator.LESS_THAN, 3).call_repr() == "*(to < 3)"
    assert Restore("send", None).labels() == {"docket.task": "send"}


def test_an_instruction_knows_its_direction():
    assert (Strike("send", None).direction, Restore("send", None).direction) == ("strike", "restore")


def test_an_instruction_takes_the_operators_sign():
    assert Strike(None, "to", "<=", 3).operator is Operator.LESS_THAN_OR_EQUAL  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="operator"):
        Strike(None, "to", "like", 3)  # type: ignore[arg-type]


def test_a_strike_and_a_restore_of_the_same_words_name_the_same_calls():
    strike = Strike("send", "to", Operator.EQUAL, 1, reason="they asked")
    assert strike.is_same_as(Restore("send", "to", Operator.EQUAL, 1))
    assert not strike.is_same_as(Restore("send", "to", Operator.EQUAL, True))
    assert not strike.is_same_as(Restore("send", "to", Operator.NOT_EQUAL, 1))
    assert not strike.is_same_as(Restore("send", None))
    awkward = Awkward()
    assert not Strike(None, "to", Operator.EQUAL, awkward).is_same_as(Restore(None, "to", Operator.EQUAL, awkward))


# Keeping


@pytest.mark.parametrize("codec", ["json", "pickle"])
def test_a_strike_comes_back_from_the_store_as_it_was(codec: str):
    strike = Strike("send", "to", Operator.BETWEEN, (1, 2), "why", "ann", NOW, NOW + SECOND)
    back = strike_of(hold_of(strike, codec_named(codec)), codec_named(codec))
    assert back == strike
    assert (back.reason, back.owner, back.since, back.until) == ("why", "ann", NOW, NOW + SECOND)


def test_a_whole_task_has_no_value():
    assert hold_of(Strike("send", None), codec_named("json")).value is None
    assert hold_of(Strike("send", "to"), codec_named("json")).value is not None


def test_a_value_that_cannot_be_stored_is_refused_by_name():
    with pytest.raises(PayloadError, match="strike of task 'send', parameter 'to': a value of type object"):
        hold_of(Strike("send", "to", Operator.EQUAL, object()), codec_named("json"))
