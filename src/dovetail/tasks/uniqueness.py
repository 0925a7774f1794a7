"""Keys made of some of a call's arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from inspect import Parameter
from typing import Any

import msgspec

from dovetail import checks
from dovetail.codec import JsonCodec, Limits
from dovetail.errors import InvalidArgument
from dovetail.tasks.task import Task

_codec = JsonCodec(Limits())
_encode = msgspec.json.Encoder(order="deterministic").encode
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class ChosenArguments:
    """Calls of one task with equal values of these arguments have one key."""

    def __init__(self, task: Task, name: str, chosen: Iterable[str]) -> None:
        self._task = task
        self._name = name
        self._chosen = sorted(set(checks.texts(chosen, "unique_by")))
        if not self._chosen:
            raise InvalidArgument(f"unique_by names no parameter of {name!r}; leave it out, or name one")
        parameters = task.signature.parameters
        takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
        for each in self._chosen:
            known = each in parameters and parameters[each].kind not in _VARIADIC
            if not known and not takes_any:
                told = ", ".join(parameters) or "none"
                raise InvalidArgument(f"unique_by names {each!r}, and {name!r} has no such parameter; it has {told}")

    def key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The key of a call. It shows none of the values: keys are logged, and arguments are not."""
        arguments = self._task.bind(args, kwargs)
        missing = [each for each in self._chosen if each not in arguments]
        if missing:
            raise InvalidArgument(f"unique_by names {missing[0]!r}, which this call of {self._name!r} does not give")
        body = _codec.dump_call(self._task.types, (), {each: arguments[each] for each in self._chosen})
        # Equal dicts may have been filled in another order.
        tree = msgspec.json.decode(body.partition(b":")[2])
        return f"{self._name}:{hashlib.sha256(_encode(tree)).hexdigest()[:32]}"
