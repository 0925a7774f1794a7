"""Keys that sign payloads, and the ring they hang on."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import NoReturn

from dovetail.codec.refusal import Refused
from dovetail.errors import InvalidArgument

_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}\Z")
_SHORTEST_SECRET = 16


class SigningKey:
    """A secret and the id by which payloads name it. The secret is never shown and never pickled."""

    __slots__ = ("_secret", "id")

    def __init__(self, id: str, secret: bytes | str) -> None:
        if not _KEY_ID.match(id):
            raise InvalidArgument("signing key id: give 1 to 32 letters, digits, '_', '.' or '-'")
        self.id = id
        self._secret = secret.encode() if isinstance(secret, str) else bytes(secret)
        if len(self._secret) < _SHORTEST_SECRET:
            raise InvalidArgument(f"signing key {id!r}: the secret needs {_SHORTEST_SECRET} bytes or more")

    def sign(self, message: bytes) -> bytes:
        """The HMAC-SHA-256 of the message, as 43 letters of base64url."""
        return urlsafe_b64encode(hmac.digest(self._secret, message, "sha256")).rstrip(b"=")

    def __repr__(self) -> str:
        return f"SigningKey({self.id!r}, secret=***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key is not pickled: it would take the secret along")


class Keyring:
    """The key that signs, the keys that are still believed, and whether an unsigned payload is.

    To change keys: hang the new one on every ring as a verifying key, then sign with it, then drop the old.
    """

    __slots__ = ("_keys", "require_signature", "signing")

    def __init__(
        self, signing: SigningKey, verifying: Iterable[SigningKey] = (), *, require_signature: bool = True
    ) -> None:
        self.signing = signing
        self.require_signature = require_signature
        self._keys = {key.id: key for key in (*verifying, signing)}

    def verify(self, key_id: str, message: bytes, signature: bytes) -> None:
        key = self._keys.get(key_id)
        if key is None:
            raise Refused("it is signed with a key that is not on this keyring")
        if not hmac.compare_digest(key.sign(message), signature):
            raise Refused("its signature is wrong: it was changed, or signed with another secret")

    def __repr__(self) -> str:
        return f"Keyring({sorted(self._keys)}, signing={self.signing.id!r})"
