"""Holds: which calls the present strikes forbid. Decides only; knows no store."""

from __future__ import annotations

import operator as compare
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Literal, cast

from dovetail import checks
from dovetail.codec import CallTypes, Codec
from dovetail.errors import InvalidArgument, PayloadError
from dovetail.model import Hold, HoldKind
from dovetail.tasks import Task, TaskFunction
from dovetail.tasks.declaring import name_of


class Operator(StrEnum):
    """How an argument is compared with the value of a strike."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER_THAN = ">"
    GREATER_THAN_OR_EQUAL = ">="
    LESS_THAN = "<"
    LESS_THAN_OR_EQUAL = "<="
    BETWEEN = "between"  # the value is a low and a high end, both included

    @classmethod
    def of(cls, given: Any) -> Operator:
        """The operator of that name; an error that lists them all if there is none."""
        try:
            return cls(given)
        except ValueError:
            known = " ".join(cls)
            raise InvalidArgument(f"operator must be one of {known}, not {given!r}") from None


LiteralOperator = Literal["==", "!=", ">", ">=", "<", "<=", "between"]


def _lies_between(argument: Any, ends: Any) -> Any:
    low, high = ends
    return low <= argument <= high


COMPARISONS: Mapping[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: compare.eq,
    Operator.NOT_EQUAL: compare.ne,
    Operator.GREATER_THAN: compare.gt,
    Operator.GREATER_THAN_OR_EQUAL: compare.ge,
    Operator.LESS_THAN: compare.lt,
    Operator.LESS_THAN_OR_EQUAL: compare.le,
    Operator.BETWEEN: _lies_between,
}
UNORDERED = (Operator.EQUAL, Operator.NOT_EQUAL)


@dataclass(frozen=True, slots=True)
class StrikeInstruction:
    """Names calls: those of a task, those with an argument that compares so, or both. None stands for any."""

    direction: ClassVar[Literal["strike", "restore"]] = "strike"

    function: str | None
    parameter: str | None
    operator: Operator = Operator.EQUAL
    value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", Operator.of(self.operator))

    def labels(self) -> dict[str, str]:
        """What it names, as labels of telemetry."""
        labels: dict[str, str] = {}
        if self.function:
            labels["docket.task"] = self.function
        if self.parameter:
            labels["docket.parameter"] = self.parameter
            labels["docket.operator"] = self.operator.value
            labels["docket.value"] = repr(self.value)
        return labels

    def call_repr(self) -> str:
        """The calls it names, value included: for whoever laid it."""
        return self._named(repr(self.value))

    def outline(self) -> str:
        """The calls it names, as they may be logged: the value does not show."""
        return self._named("...")

    def title(self) -> str:
        """How an error about it begins."""
        task = "any task" if self.function is None else f"task {self.function!r}"
        about = "" if self.parameter is None else f", parameter {self.parameter!r}"
        return f"{self.direction} of {task}{about}"

    def is_same_as(self, other: StrikeInstruction) -> bool:
        """Whether both name the same calls."""
        words = (self.function, self.parameter, self.operator)
        if words != (other.function, other.parameter, other.operator):
            return False
        try:
            return type(self.value) is type(other.value) and bool(self.value == other.value)
        except Exception:  # values of the caller's own types may not even compare with themselves
            return False

    def _named(self, value: str) -> str:
        return f"{self.function or '*'}({self.parameter or '*'} {self.operator} {value if self.parameter else '*'})"


@dataclass(frozen=True, slots=True)
class Strike(StrikeInstruction):
    """Forbids calls, until it is restored or its time is over."""

    reason: str | None = field(default=None, compare=False)
    owner: str | None = field(default=None, compare=False)
    since: datetime | None = field(default=None, compare=False)
    until: datetime | None = field(default=None, compare=False)  # None: until it is restored

    def matches(self, argument: Any) -> bool:
        """Whether an argument compares so. Raises whatever the comparison raises."""
        return bool(COMPARISONS[self.operator](argument, self.value))


@dataclass(frozen=True, slots=True)
class Restore(StrikeInstruction):
    """Allows again what a strike of the same words forbade."""

    direction: ClassVar[Literal["strike", "restore"]] = "restore"


Words = tuple[str | None, str | None, Operator, Any]


def words_of(function: TaskFunction | str | None, parameter: str | None, operator: Any, value: Any) -> Words:
    """What a strike is said with: task, parameter, operator and value; an error if they name nothing."""
    if function is not None and not isinstance(function, str):
        function = name_of(checks.callable_task(function, "function"))
    if function is not None:
        checks.text(function, "function")
    if parameter is not None:
        checks.text(parameter, "parameter")
    if function is None and parameter is None:
        raise InvalidArgument("a strike needs a function, a parameter, or both")
    title = StrikeInstruction(function, parameter).title()
    try:
        chosen = Operator.of(operator)
    except InvalidArgument as error:
        raise InvalidArgument(f"{title}: {error}") from None
    if parameter is None and (value is not None or chosen is not Operator.EQUAL):
        raise InvalidArgument(f"{title}: an operator or a value needs the parameter that it is about")
    return function, parameter, chosen, value


def has_parameter(function: TaskFunction, parameter: str) -> bool:
    """Whether a call of the function may have such an argument."""
    parameters = Task.of(function).signature.parameters
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def misfit(operator: Operator, value: Any) -> str | None:
    """Why an operator cannot be used with a value, or None if it can."""
    if operator in UNORDERED:
        return None
    if operator is not Operator.BETWEEN:
        return None if _is_ordered(value, value) else f"{operator} needs a value that has an order, not {value!r}"
    ends = list(cast("list[Any]", value)) if isinstance(value, tuple | list) else []
    if len(ends) != 2:
        return f"between needs a low and a high end, such as (10, 20), not {value!r}"
    low, high = ends
    if not _is_ordered(low, high):
        return f"between needs two ends that compare with each other, not {value!r}"
    return None if low <= high else f"between needs its low end first, not {value!r}"


def _is_ordered(one: Any, other: Any) -> bool:
    try:
        bool(one <= other)
    except Exception:  # a type of the caller's own may raise anything
        return False
    return True


def arguments_of(function: TaskFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, defaults and surplus ones included; none of a call that cannot be made."""
    task = Task.of(function)
    try:
        task.signature.bind(*args, **kwargs)
    except TypeError:
        return {}
    return {**kwargs, **task.bind(args, kwargs)}


def hold_of(instruction: StrikeInstruction, codec: Codec) -> Hold:
    """What a store keeps of a strike, or lifts for a restore."""
    hold = Hold(
        HoldKind.STRIKE, task=instruction.function, parameter=instruction.parameter,
        operator=instruction.operator.value, value=_value_of(instruction, codec),
    )  # fmt: skip
    if not isinstance(instruction, Strike):
        return hold
    return hold.but(
        reason=instruction.reason, owner=instruction.owner, since=instruction.since, until=instruction.until
    )


def _value_of(instruction: StrikeInstruction, codec: Codec) -> bytes | None:
    if instruction.parameter is None:
        return None
    try:
        return codec.dump_result(CallTypes.unknown(), instruction.value)
    except PayloadError as error:
        raise PayloadError(
            f"{instruction.title()}: a value of type {type(instruction.value).__name__} cannot be stored; pass plain"
            ' data, or use codec="pickle"'
        ) from error


def strike_of(hold: Hold, codec: Codec) -> Strike:
    """The strike that a store keeps; an error if it was written in a way that cannot be read here."""
    value = None if hold.value is None else codec.load_result(CallTypes.unknown(), hold.value)
    return Strike(
        hold.task, hold.parameter, Operator.of(hold.operator), value, hold.reason, hold.owner, hold.since, hold.until
    )


Table = dict[str, set[tuple[Operator, Any]]]
"""Operators and values by parameter, as docket shows them."""
Misfitting = Callable[[Strike, Any, Exception], None]


class Rules:
    """The strikes of one moment, laid out for looking up. A comparison that raises does not match; it is told of."""

    def __init__(self, strikes: Iterable[Strike], told: Misfitting) -> None:
        self.whole: dict[str, list[Strike]] = {}
        self.of_task: dict[str, dict[str, list[Strike]]] = {}
        self.of_any: dict[str, list[Strike]] = {}
        self._told = told
        for strike in strikes:
            self._lay(strike)

    def _lay(self, strike: Strike) -> None:
        # A strike of a whole task is kept apart from those of its parameters: neither undoes the other.
        if strike.function and strike.parameter:
            self.of_task.setdefault(strike.function, {}).setdefault(strike.parameter, []).append(strike)
        elif strike.function:
            self.whole.setdefault(strike.function, []).append(strike)
        elif strike.parameter:
            self.of_any.setdefault(strike.parameter, []).append(strike)

    def forbid(self, task: str, arguments: Callable[[], Mapping[str, Any]], now: datetime) -> bool:
        """Whether a call must not be made. The arguments are only asked for where they matter."""
        if any(_is_in_force(strike, now) for strike in self.whole.get(task, ())):
            return True
        of_task = self.of_task.get(task)
        if not of_task and not self.of_any:
            return False
        given = arguments()
        return bool(of_task and self._match(of_task, given, now)) or self._match(self.of_any, given, now)

    def forbid_arguments(self, arguments: Mapping[str, Any], now: datetime) -> bool:
        """Whether arguments are forbidden to every task."""
        return self._match(self.of_any, arguments, now)

    def _match(self, strikes: Mapping[str, list[Strike]], arguments: Mapping[str, Any], now: datetime) -> bool:
        return any(
            _is_in_force(strike, now) and self._matches(strike, argument)
            for parameter, argument in arguments.items()
            for strike in strikes.get(parameter, ())
        )

    def _matches(self, strike: Strike, argument: Any) -> bool:
        try:
            return strike.matches(argument)
        except Exception as error:  # whatever the argument's own comparison raises
            self._told(strike, argument, error)
            return False

    def tables(self) -> tuple[dict[str, Table], Table]:
        """The strikes of tasks, and those of parameters of any task. A task that is stricken as a whole may have an
        empty table; a value that cannot be hashed is in force, but in no table."""
        tasks = {task: _table(self.of_task.get(task, {})) for task in (*self.whole, *self.of_task)}
        return tasks, _table(self.of_any)


def those_that_forbid(strikes: Iterable[Strike], task: str, arguments: Mapping[str, Any]) -> list[Strike]:
    """Which of the strikes forbid a call. One that cannot be compared with its argument does not."""
    return [strike for strike in strikes if concerns(strike, task) and _forbids(strike, arguments)]


def concerns(strike: Strike, task: str) -> bool:
    """Whether a strike is about calls of a task at all."""
    return strike.function is None or strike.function == task


def _forbids(strike: Strike, arguments: Mapping[str, Any]) -> bool:
    if strike.parameter is None:
        return True
    try:
        return strike.parameter in arguments and strike.matches(arguments[strike.parameter])
    except Exception:  # whatever the argument's own comparison raises
        return False


def _table(strikes: Mapping[str, list[Strike]]) -> Table:
    return {
        parameter: {(strike.operator, strike.value) for strike in each if _can_be_hashed(strike.value)}
        for parameter, each in strikes.items()
    }


def _can_be_hashed(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_in_force(strike: Strike, now: datetime) -> bool:
    return strike.until is None or now < strike.until
