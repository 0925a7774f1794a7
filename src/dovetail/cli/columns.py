"""How wide the columns of a table are where there is not room for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

NARROWEST = 8
"""What is left of text that has to give way."""
HEADING = 5
"""What is left of a heading above numbers."""
COMFORTABLE = 24
"""What is left of long text before headings have to give way."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's widths as it is, and of what stands below its heading; whether these are numbers."""

    width: int
    contents: int
    is_number: bool = False

    @property
    def least(self) -> int:
        """Of a number that is cut off, another one would be read; of a heading, the beginning will do."""
        return min(self.width, max(self.contents, HEADING) if self.is_number else NARROWEST)


def fitting(columns: Sequence[Column], room: int) -> list[int] | None:
    """The widths of columns that fit; None if they cannot. The first one, which names a row, gives way last of all."""
    widths = [column.width for column in columns]
    places = range(1, len(columns))
    texts = [place for place in places if not columns[place].is_number]
    numbers = [place for place in places if columns[place].is_number]
    _give_way(widths, room, texts, lambda place: COMFORTABLE)
    _give_way(widths, room, numbers, lambda place: columns[place].least)
    _give_way(widths, room, texts, lambda place: columns[place].least)
    _give_way(widths, room, [0], lambda place: NARROWEST)
    return widths if sum(widths) <= room else None


def _give_way(widths: list[int], room: int, places: Iterable[int], least: Callable[[int], int]) -> None:
    """Make columns narrower, the widest first, until all have room or none may give more."""
    while sum(widths) > room:
        able = [place for place in places if widths[place] > least(place)]
        if not able:
            return
        widths[max(able, key=widths.__getitem__)] -= 1
