"""The seam between the core and the stores."""

from dovetail.engine.interface import (
    Archives,
    Countable,
    Engine,
    Enlists,
    Examines,
    Lends,
    Mends,
    Plans,
    SignsIn,
    Transaction,
    Transacts,
)

__all__ = [
    "Archives",
    "Countable",
    "Engine",
    "Enlists",
    "Examines",
    "Lends",
    "Mends",
    "Plans",
    "SignsIn",
    "Transaction",
    "Transacts",
]
