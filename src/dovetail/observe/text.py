"""Text of unknown origin, made fit to be shown."""

from __future__ import annotations

import re

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, and what turns the direction of text around: a key that holds them could forge
a line of a log or repaint a terminal. Lone surrogates could not even be written."""


def escaped(text: str) -> str:
    """The text with everything in it that could not be seen written out, newlines too."""
    return UNSEEN.sub(_written_out, text) if UNSEEN.search(text) else text


def _written_out(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")
