"""Runs that no store takes, in the same words in all of them."""

from __future__ import annotations

from dovetail.errors import InvalidArgument, UnknownParent


def unknown_parent(run: str, reference: str) -> UnknownParent:
    return UnknownParent(f"run {run!r} is to wait for {reference!r}, but there is no such run")


def circle(run: str) -> InvalidArgument:
    return InvalidArgument(
        f"run {run!r} is to wait for runs that hang on the one it replaces: they would wait for each other for ever"
    )
