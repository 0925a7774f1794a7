"""Schedules: calls that come again at set times, kept in the store and altered while workers run.

A schedule is a run. It waits under a key of its own until its next time, and whichever worker claims it settles it
with two successors in one unit: the run of that time, and itself, waiting for the next. So nobody leads, and a worker
that dies loses nothing and doubles nothing.
"""

from dovetail.schedules.definition import QUEUE, Definition, Misfire, Overlap, is_tick
from dovetail.schedules.keeping import Schedules
from dovetail.schedules.schedule import Schedule

__all__ = ["QUEUE", "Definition", "Misfire", "Overlap", "Schedule", "Schedules", "is_tick"]
