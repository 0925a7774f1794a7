"""Pickle, for dockets that choose it: any object travels, and whoever can write to the store can run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from dovetail.codec.envelope import Envelope, Purpose
from dovetail.codec.kinds import name_of
from dovetail.codec.limits import Limits
from dovetail.codec.references import MARK, references_in
from dovetail.codec.refusal import Refused, TooLarge
from dovetail.codec.signature import CallTypes
from dovetail.codec.signing import Keyring
from dovetail.codec.typed_json import JsonCodec, unreadable
from dovetail.codec.values import too_large
from dovetail.errors import PayloadError, UsageError

_PROTOCOL = 5  # the same in every Python we support


class PickleCodec:
    """Values by cloudpickle. It reads JSON payloads too, so that a docket can change over."""

    name: str = "pickle"

    def __init__(self, limits: Limits, signing: Keyring | None = None) -> None:
        try:
            import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
        except ImportError as error:
            raise UsageError('codec="pickle" needs cloudpickle: pip install "dovetail-tasks[pickle]"') from error
        self._pickle: Any = cloudpickle
        self._envelope = Envelope(limits, signing)
        self._json = JsonCodec(limits, signing)

    def dump_call(
        self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: str = ""
    ) -> bytes:
        try:
            return self._sealed("call", (args, dict(kwargs)), task)
        except TooLarge as refused:
            raise too_large(f"the arguments of {signature.name!r}", refused) from None
        except Exception as error:
            raise PayloadError(self._culprit(signature, args, kwargs)) from error

    def load_call(self, signature: CallTypes, data: bytes, task: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            letter, body = self._envelope.open("call", data, task)
            if letter == "j":
                return self._json.read_call(signature, body)
            return _as_call(self._unpickled(body))
        except (Refused, RecursionError) as refused:
            raise unreadable(f"a call of {signature.name!r}", refused) from refused.__cause__

    def dump_result(self, signature: CallTypes, value: Any) -> bytes:
        what = signature.describe(None)
        try:
            data = self._sealed("result", value)
            if MARK in data and any(references_in(value)):
                raise PayloadError(f"{what} holds an execution; return its result, or its key")
            return data
        except PayloadError:
            raise
        except TooLarge as refused:
            raise too_large(what, refused) from None
        except Exception as error:
            raise PayloadError(_unpicklable(what, value)) from error

    def load_result(self, signature: CallTypes, data: bytes) -> Any:
        try:
            letter, body = self._envelope.open("result", data)
            return self._json.read_result(signature, body) if letter == "j" else self._unpickled(body)
        except (Refused, RecursionError) as refused:
            raise unreadable(signature.describe(None), refused) from refused.__cause__

    def dump_exception(self, error: BaseException) -> bytes | None:
        """The exception, if it comes back as what it was: many classes pickle and do not unpickle."""
        try:
            data = self._sealed("exception", error)
            return data if type(self.load_exception(data)) is type(error) else None
        except KeyboardInterrupt:
            raise
        except BaseException:  # user code again, and the run's outcome must be recorded all the same
            return None

    def load_exception(self, data: bytes) -> BaseException:
        try:
            letter, body = self._envelope.open("exception", data)
            found = self._unpickled(body) if letter == "p" else None
            if not isinstance(found, BaseException):
                raise Refused("it is not an exception")
        except Refused as refused:
            raise unreadable("an exception", refused) from refused.__cause__
        return found

    def _sealed(self, purpose: Purpose, value: Any, task: str = "") -> bytes:
        return self._envelope.seal("p", purpose, self._pickle.dumps(value, protocol=_PROTOCOL), task)

    def _unpickled(self, body: bytes) -> Any:
        try:
            return self._pickle.loads(body)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # unpickling runs whatever the bytes say
            raise Refused(f"it does not unpickle here ({name_of(type(error))})") from error

    def _culprit(self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        for place, value in _places(args, kwargs):
            try:
                self._pickle.dumps(value, protocol=_PROTOCOL)
            except Exception:
                return _unpicklable(signature.describe(place), value)
        return f"the arguments of {signature.name!r} cannot be pickled together"


def _places(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[int | str, Any]]:
    yield from enumerate(args)
    yield from kwargs.items()


def _unpicklable(what: str, value: object) -> str:
    return f"{what}: a value of type {name_of(type(value))} cannot be pickled; pass plain data"


def _as_call(found: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if type(found) is tuple and [type(part) for part in cast("tuple[Any, ...]", found)] == [tuple, dict]:
        return cast("tuple[tuple[Any, ...], dict[str, Any]]", found)
    raise Refused("it has not the form of a call")
