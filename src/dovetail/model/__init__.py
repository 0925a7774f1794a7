"""The nouns that cross the seam between the core and an engine. Data only."""

from dovetail.model.claim import (
    BROUGHT,
    AttemptError,
    Claim,
    Claimed,
    Failure,
    Finished,
    Requeue,
    Result,
    Settle,
    Verdict,
)
from dovetail.model.event import Event, EventKind, Topic
from dovetail.model.finding import Finding, Repair, Severity
from dovetail.model.glance import Glance, QueueGlance, RunGlance
from dovetail.model.hold import Hold, HoldKind
from dovetail.model.identifier import new_id
from dovetail.model.noun import Noun
from dovetail.model.query import Cleared, Page, QueueCount, RunQuery, Survey, Swept
from dovetail.model.run import (
    FOREVER,
    PENDING,
    TERMINAL,
    Cancelled,
    Conflict,
    Due,
    Limit,
    NewRun,
    Placement,
    Placing,
    Progress,
    ProgressReport,
    Retention,
    Revival,
    Run,
    State,
)
from dovetail.model.standing import LimitUse, Standing
from dovetail.model.tags import TAGS, marks_of, tag_headers, tags_of
from dovetail.model.worker import Blockage, Pulse, WorkerInfo

__all__ = [
    "BROUGHT",
    "FOREVER",
    "PENDING",
    "TAGS",
    "TERMINAL",
    "AttemptError",
    "Blockage",
    "Cancelled",
    "Claim",
    "Claimed",
    "Cleared",
    "Conflict",
    "Due",
    "Event",
    "EventKind",
    "Failure",
    "Finding",
    "Finished",
    "Glance",
    "Hold",
    "HoldKind",
    "Limit",
    "LimitUse",
    "NewRun",
    "Noun",
    "Page",
    "Placement",
    "Placing",
    "Progress",
    "ProgressReport",
    "Pulse",
    "QueueCount",
    "QueueGlance",
    "Repair",
    "Requeue",
    "Result",
    "Retention",
    "Revival",
    "Run",
    "RunGlance",
    "RunQuery",
    "Settle",
    "Severity",
    "Standing",
    "State",
    "Survey",
    "Swept",
    "Topic",
    "Verdict",
    "WorkerInfo",
    "marks_of",
    "new_id",
    "tag_headers",
    "tags_of",
]
