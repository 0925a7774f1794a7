"""Collections that tests register by name."""

from dovetail import Perpetual


async def first() -> str:
    return "first"


async def second(number: int) -> int:
    return number


async def ticking(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
    perpetual.cancel()


async def catch_all(*args: object, **kwargs: object) -> str:
    return "caught"


tasks = [first, second]
automatic = (ticking,)
empty: list[object] = []
not_functions = [first, 5]
not_iterable = 5
