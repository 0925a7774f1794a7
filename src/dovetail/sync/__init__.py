"""The same calls without await, for Flask, Django, scripts and threads.

from dovetail.sync import Docket

docket = Docket(name="emails", url="sqlite:///emails.db")
print(docket.add(greet)("ann@example.com").get_result())
"""

from dovetail.sync.docket import Docket, DocketSnapshot, StrikePreview
from dovetail.sync.execution import Execution, ExecutionProgress, RunningExecution
from dovetail.sync.schedules import Schedules

__all__ = [
    "Docket",
    "DocketSnapshot",
    "Execution",
    "ExecutionProgress",
    "RunningExecution",
    "Schedules",
    "StrikePreview",
]
