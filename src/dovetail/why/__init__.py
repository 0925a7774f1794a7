"""Why a run is not running: the facts are gathered from the store, and the causes follow from the facts."""

from dovetail.why.answers import Cause, CauseCode, Why

__all__ = ["Cause", "CauseCode", "Why"]
