"""The first bytes of a payload: version, codec, and the signature if there is one.

    1j:{...}                      version 1, JSON
    1p:...                        version 1, pickle
    1js:key:signature:{...}       signed: the id of the key, 43 letters of base64url, the body

The signature covers version, codec, purpose (call, result or exception), key id, body and, of a call, the name of the
task, so that nothing can be changed, no result be passed off as a call, and no call as one of another task.
"""

from __future__ import annotations

import re
from typing import Literal

from dovetail.codec.limits import Limits
from dovetail.codec.refusal import Refused, TooLarge
from dovetail.codec.signing import Keyring

Letter = Literal["j", "p"]
Purpose = Literal["call", "result", "exception"]

_HEADER = re.compile(rb"(\d{1,3})([a-z])(?:s:([A-Za-z0-9_.-]{1,32}):([A-Za-z0-9_-]{43}))?:")


class Envelope:
    """Seals bodies and opens what others have sealed."""

    __slots__ = ("_keyring", "_limits")

    def __init__(self, limits: Limits, keyring: Keyring | None) -> None:
        self._limits = limits
        self._keyring = keyring

    def seal(self, letter: Letter, purpose: Purpose, body: bytes, task: str = "") -> bytes:
        if len(body) > self._limits.size:
            raise TooLarge(f"it takes {len(body)} bytes of the {self._limits.size} allowed")
        if self._keyring is None:
            return b"1j:" + body if letter == "j" else b"1p:" + body
        key = self._keyring.signing
        signature = key.sign(_signed(letter, purpose, task, key.id, body))
        return b"".join((b"1", letter.encode(), b"s:", key.id.encode(), b":", signature, b":", body))

    def open(self, purpose: Purpose, data: bytes, task: str = "") -> tuple[Letter, bytes]:
        """The codec's letter and the body, which is as its writer signed it if this side has keys."""
        if self._keyring is None and data.startswith(b"1j:"):
            return "j", self._sized(data[3:])  # by far the most common, and the dearest to match
        header = _HEADER.match(data)
        if header is None:
            raise Refused("it is not a Dovetail payload")
        letter = _letter(header)
        body = self._sized(data[header.end() :])
        self._check_signature(letter, purpose, task, header, body)
        return letter, body

    def _sized(self, body: bytes) -> bytes:
        if len(body) > self._limits.size:
            raise Refused(f"it takes {len(body)} bytes of the {self._limits.size} allowed")
        return body

    def _check_signature(
        self, letter: Letter, purpose: Purpose, task: str, header: re.Match[bytes], body: bytes
    ) -> None:
        if header[3] is None:
            if self._keyring is not None and self._keyring.require_signature:
                raise Refused("it is not signed, and this docket requires signatures")
            return
        if self._keyring is None:
            raise Refused("it is signed, and this docket has no keys to check it with")
        key_id = header[3].decode()
        self._keyring.verify(key_id, _signed(letter, purpose, task, key_id, body), header[4])


def _letter(header: re.Match[bytes]) -> Letter:
    if header[1] != b"1":
        raise Refused("it was written by a newer version of Dovetail")
    if header[2] == b"j":
        return "j"
    if header[2] == b"p":
        return "p"
    raise Refused("it was written with a codec that is not known here")


def _signed(letter: Letter, purpose: Purpose, task: str, key_id: str, body: bytes) -> bytes:
    about = f"{len(task)}:{task}" if task else ""
    return f"1{letter}s:{purpose}:{key_id}:{about}".encode() + body
