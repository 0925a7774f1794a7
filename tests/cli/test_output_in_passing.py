"""Long work shows on a terminal how far it is, and leaves nothing behind; elsewhere it says nothing."""

from __future__ import annotations

import io

import pytest

from dovetail.cli.output import busy, counting, totalling


class Screen(io.StringIO):
    """Standard error, on a terminal or in a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(newline="")
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    @property
    def lines(self) -> list[str]:
        """What was shown, one line in the place of the other, and what is left of it."""
        return [line.removesuffix("\x1b[K") for line in self.getvalue().split("\r")[1:]]


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def screen(request: pytest.FixtureRequest) -> Screen:
    return Screen(is_terminal=request.param)


def test_totals_are_shown_as_they_are_told(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen)
    with totalling("cancelled") as tell:
        tell(1000)
        tell(12000)
    assert screen.lines == (["1,000 cancelled …", "12,000 cancelled …", ""] if screen.is_terminal else [])


def test_counts_are_added_up(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen)
    with counting("runs read") as more:
        more(500)
        more(700)
    assert screen.lines == (["500 runs read …", "1,200 runs read …", ""] if screen.is_terminal else [])


def test_what_goes_on_is_shown_until_it_is_done(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(ZeroDivisionError), busy("looking"):
        raise ZeroDivisionError
    assert screen.lines == (["looking …", ""] if screen.is_terminal else [])
