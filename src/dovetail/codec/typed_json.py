"""JSON, typed by the task's signature: the codec that is used unless another is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail.codec.bodies import Call, Result, decode, encode
from dovetail.codec.envelope import Envelope, Purpose
from dovetail.codec.limits import Limits
from dovetail.codec.refusal import Refused, TooLarge
from dovetail.codec.signature import CallTypes
from dovetail.codec.signing import Keyring
from dovetail.codec.tags import write_text
from dovetail.codec.trees import check_bounds, is_plain
from dovetail.codec.values import Values, too_large
from dovetail.errors import PayloadError, UndecodablePayload

_PICKLED = (
    'it was written with codec="pickle", which this side has not chosen: reading it can run any code. '
    'Choose codec="pickle" on docket and worker if you trust all who write to the store'
)


class JsonCodec:
    """Values as JSON: common types by tags, classes of the caller's by the annotation of their parameter."""

    name: str = "json"

    def __init__(self, limits: Limits, signing: Keyring | None = None) -> None:
        self._limits = limits
        self._envelope = Envelope(limits, signing)
        self._values = Values(limits)

    # Calls

    def dump_call(
        self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: str = ""
    ) -> bytes:
        body = self._plain_call(args, kwargs) or self._typed_call(signature, args, kwargs)
        try:
            return self._envelope.seal("j", "call", body, task)
        except TooLarge as refused:
            raise too_large(f"the arguments of {signature.name!r}", refused) from None

    def load_call(self, signature: CallTypes, data: bytes, task: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            return self.read_call(signature, self._open("call", data, task))
        except (Refused, RecursionError) as refused:
            raise unreadable(f"a call of {signature.name!r}", refused) from refused.__cause__

    def _plain_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """The body of a call that JSON keeps as it is: the common case, which has to be fast."""
        if not is_plain(args, self._limits) or (kwargs and not is_plain(kwargs.values(), self._limits)):
            return None
        try:
            body = encode(Call(args, dict(kwargs)))
        except UnicodeEncodeError:  # lone surrogates
            return None
        # In a body this short no name can be too long.
        return body if len(body) <= self._limits.key_length or self._names_fit(kwargs) else None

    def _names_fit(self, names: Mapping[str, Any]) -> bool:
        return all(len(name) <= self._limits.key_length for name in names)

    def _typed_call(self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        longest = self._limits.key_length
        if not self._names_fit(kwargs):
            raise PayloadError(f"an argument of {signature.name!r} has a name of more than {longest} characters")
        if any(write_text(name) is not name for name in kwargs):
            raise PayloadError(f"an argument of {signature.name!r} has a name that is not valid text")
        return _encoded(lambda careful: self._written_call(signature, args, kwargs, careful))

    def _written_call(
        self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any], careful: bool
    ) -> Call:
        marked: list[int | str] = []
        trees: dict[int | str, Any] = {}
        for place, value in (*enumerate(args), *kwargs.items()):
            trees[place], by_annotation = self._values.write(signature, place, value, careful=careful)
            if by_annotation:
                marked.append(place)
        positional = tuple(trees[place] for place in range(len(args)))
        return Call(positional, {name: trees[name] for name in kwargs}, tuple(marked))

    def read_call(self, signature: CallTypes, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in an opened envelope."""
        call, is_canonical = decode(Call, body)
        if not is_canonical or b"$" in body:
            self._revive(call)
        elif self._may_be_out_of_bounds(body):
            check_bounds(call.a, self._limits.depth, self._limits.key_length)
            check_bounds((call.k,), self._limits.depth + 1, self._limits.key_length)
        if call.t:
            self._lift(signature, call)
        return call.a, call.k

    def _may_be_out_of_bounds(self, body: bytes) -> bool:
        """Whether there could be long keys or deep nesting in it. If not, it need not be walked."""
        return len(body) > self._limits.key_length or body.count(b"[") + body.count(b"{") > self._limits.depth

    def _revive(self, call: Call) -> None:
        if not self._names_fit(call.k):
            raise Refused("it holds a key that is too long")
        call.a = tuple(map(self._values.read, call.a))
        call.k = {name: self._values.read(tree) for name, tree in call.k.items()}

    def _lift(self, signature: CallTypes, call: Call) -> None:
        positional = dict(enumerate(call.a))
        for place in dict.fromkeys(call.t):
            values: dict[Any, Any] = call.k if isinstance(place, str) else positional
            if place not in values:
                raise Refused("it marks an argument that it does not hold")
            values[place] = self._values.lift(signature, place, values[place])
        call.a = tuple(positional.values())

    # Results

    def dump_result(self, signature: CallTypes, value: Any) -> bytes:
        body = _encoded(lambda careful: self._written_result(signature, value, careful))
        try:
            return self._envelope.seal("j", "result", body)
        except TooLarge as refused:
            raise too_large(signature.describe(None), refused) from None

    def _written_result(self, signature: CallTypes, value: Any, careful: bool) -> Result:
        return Result(*self._values.write(signature, None, value, careful=careful))

    def load_result(self, signature: CallTypes, data: bytes) -> Any:
        try:
            return self.read_result(signature, self._open("result", data))
        except (Refused, RecursionError) as refused:
            raise unreadable(signature.describe(None), refused) from refused.__cause__

    def read_result(self, signature: CallTypes, body: bytes) -> Any:
        """The value in an opened envelope."""
        result, is_canonical = decode(Result, body)
        value = result.v
        if not is_canonical or b"$" in body:
            value = self._values.read(value)
        elif self._may_be_out_of_bounds(body):
            check_bounds((value,), self._limits.depth, self._limits.key_length)
        return self._values.lift(signature, None, value) if result.t else value

    # Exceptions

    def dump_exception(self, error: BaseException) -> bytes | None:
        return None  # nothing is revived from JSON: the exception's text is in the run's record

    def load_exception(self, data: bytes) -> BaseException:
        raise UndecodablePayload(f"an exception cannot be read: {_PICKLED}")

    def _open(self, purpose: Purpose, data: bytes, task: str = "") -> bytes:
        letter, body = self._envelope.open(purpose, data, task)
        if letter != "j":
            raise Refused(_PICKLED)
        return body


def _encoded(written: Callable[[bool], Call | Result]) -> bytes:
    """The body; written again, with care, if it turns out to hold lone surrogates."""
    try:
        return encode(written(False))
    except UnicodeEncodeError:
        return encode(written(True))


def unreadable(what: str, refused: Refused | RecursionError) -> UndecodablePayload:
    return UndecodablePayload(f"{what} cannot be read: {refused}")
