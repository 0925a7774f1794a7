"""What a codec is to the rest of Dovetail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dovetail.codec.signature import CallTypes


class Codec(Protocol):
    """Arguments, results and exceptions to bytes and back.

    What is loaded equals what was dumped and is of the same type, or the dump raises `PayloadError` and names
    the parameter. A load raises `UndecodablePayload` and nothing else, whatever the bytes.
    """

    name: str

    def dump_call(
        self, signature: CallTypes, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: str = ""
    ) -> bytes:
        """The call of a task; a signature holds for calls of that name alone."""
        ...

    def load_call(
        self, signature: CallTypes, data: bytes, task: str = ""
    ) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

    def dump_result(self, signature: CallTypes, value: Any) -> bytes: ...

    def load_result(self, signature: CallTypes, data: bytes) -> Any: ...

    def dump_exception(self, error: BaseException) -> bytes | None:
        """The exception itself, or None if this codec does not keep it: its text is kept elsewhere."""
        ...

    def load_exception(self, data: bytes) -> BaseException: ...
