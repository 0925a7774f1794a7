"""The seam between the core and the stores."""

from dovetail.engine.interface import Countable, Engine, Enlists, Examines, Mends, Plans, Transaction, Transacts

__all__ = ["Countable", "Engine", "Enlists", "Examines", "Mends", "Plans", "Transaction", "Transacts"]
