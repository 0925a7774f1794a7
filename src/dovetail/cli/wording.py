"""Stored text as a terminal may show it."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Text in which nothing moves the cursor or changes colors: control characters are shown by their number."""
    if text.isprintable():
        return text
    return "".join(_shown(each) for each in text)


def _shown(character: str) -> str:
    if character == "\n":
        return " "
    # Cc: control characters; Cf: those that turn the direction of writing, among others; Cs: halves of a pair.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character
