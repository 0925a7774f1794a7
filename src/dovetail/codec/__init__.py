"""Arguments, results and exceptions to bytes and back.

A payload is a short header (see `envelope`) and a body: JSON (see `bodies` and `tags`) or pickle.

    1j:{"a":["ann@example.com"],"k":{"when":{"$datetime":"2026-01-05T09:00:00+00:00"}}}
"""

from __future__ import annotations

from dovetail.codec.interface import Codec
from dovetail.codec.limits import Limits
from dovetail.codec.pickled import PickleCodec
from dovetail.codec.signature import CallTypes
from dovetail.codec.signing import Keyring, SigningKey
from dovetail.codec.typed_json import JsonCodec
from dovetail.errors import InvalidArgument

__all__ = ["CallTypes", "Codec", "JsonCodec", "Keyring", "Limits", "PickleCodec", "SigningKey", "codec_named"]

_DEFAULT_LIMITS = Limits()


def codec_named(name: str, *, limits: Limits = _DEFAULT_LIMITS, signing: Keyring | None = None) -> Codec:
    """The codec a docket asks for: "json", or "pickle" if it says so."""
    if name == "json":
        return JsonCodec(limits, signing)
    if name == "pickle":
        return PickleCodec(limits, signing)
    raise InvalidArgument(f'codec={name!r}: choose "json" or "pickle"')
