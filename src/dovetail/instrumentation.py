"""The instruments: everything that Dovetail counts and measures, for OpenTelemetry.

Those that docket has keep its names, units and attributes, so that `docket.instrumentation` can be replaced by this
module and dashboards go on. What docket does not have is called `dovetail_...`. Without an SDK nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram, UpDownCounter
from opentelemetry.propagators.textmap import Getter, Setter

if TYPE_CHECKING:
    from dovetail.observe.health import healthcheck_server
    from dovetail.observe.prometheus import metrics_server

__all__ = [
    "CACHE_SIZE", "CANCELLATIONS_UNHEEDED", "CLAIM_BATCH_SIZE", "CRASHES", "EVENT_LOOP_LAG", "FINISH_BATCH_SIZE",
    "LEASES_LOST", "OLDEST_QUEUED_AGE", "OUTCOMES_FENCED", "QUEUE_DEPTH", "REDIS_DISRUPTIONS", "SCHEDULE_DEPTH",
    "STORE_DURATION", "STRIKES_IN_EFFECT", "TASKS_ADDED", "TASKS_CANCELLED", "TASKS_COMPLETED", "TASKS_ENLISTED",
    "TASKS_FAILED", "TASKS_PERPETUATED", "TASKS_POISONED", "TASKS_REDELIVERED", "TASKS_REPLACED", "TASKS_RETRIED",
    "TASKS_RUNNING", "TASKS_SCHEDULED", "TASKS_STARTED", "TASKS_STRICKEN", "TASKS_SUCCEEDED", "TASKS_SUPERSEDED",
    "TASK_DURATION", "TASK_PUNCTUALITY", "Message", "MessageGetter", "MessageSetter", "TaskLabels",
    "healthcheck_server", "is_metering", "is_overheard", "message_getter", "message_setter", "meter", "metrics_server",
]  # fmt: skip

Labels = Mapping[str, str]

FROM_MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Where the buckets of durations end, in seconds: from a run in memory to one of an hour."""
UP_TO_A_BATCH = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)

meter = metrics.get_meter("dovetail")
_state: Any = getattr(metrics, "_internal", metrics)
"""Where OpenTelemetry keeps the provider. Its public function looks into the environment each time; where this is
missing, measurements are made in vain, which costs time and nothing else."""

_KINDS = (Counter, Histogram, UpDownCounter)
_METHODS = {"add", "record"}


def _seconds(name: str, description: str) -> Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=FROM_MILLISECONDS)


def _batch_size(name: str, description: str) -> Histogram:
    return meter.create_histogram(name, "1", description, explicit_bucket_boundaries_advisory=UP_TO_A_BATCH)


# Scheduling

TASKS_ADDED = meter.create_counter("docket_tasks_added", "1", "Calls of add, also those whose key was taken")
TASKS_REPLACED = meter.create_counter("docket_tasks_replaced", "1", "Calls of replace")
TASKS_SCHEDULED = meter.create_counter("docket_tasks_scheduled", "1", "Runs that were put down")
TASKS_ENLISTED = meter.create_counter(
    "dovetail_tasks_enlisted", "1", "Runs put down in a transaction of the caller's, which may be rolled back"
)
TASKS_CANCELLED = meter.create_counter("docket_tasks_cancelled", "1", "Requests to cancel; each replace is one")
TASKS_STRICKEN = meter.create_counter("docket_tasks_stricken", "1", "Calls and runs that a strike kept from starting")

# Attempts

TASKS_STARTED = meter.create_counter("docket_tasks_started", "1", "Attempts that began")
TASKS_REDELIVERED = meter.create_counter("docket_tasks_redelivered", "1", "Attempts at runs that had crashed before")
TASKS_COMPLETED = meter.create_counter("docket_tasks_completed", "1", "Attempts that ended, in whichever way")
TASKS_SUCCEEDED = meter.create_counter("docket_tasks_succeeded", "1", "Attempts that returned")
TASKS_FAILED = meter.create_counter("docket_tasks_failed", "1", "Attempts that raised, and runs that could not start")
TASKS_POISONED = meter.create_counter("dovetail_tasks_poisoned", "1", "Runs that failed as they crashed too often")
TASKS_RETRIED = meter.create_counter("docket_tasks_retried", "1", "Failed attempts after which another follows")
TASKS_PERPETUATED = meter.create_counter(
    "docket_tasks_perpetuated", "1", "Runs that were followed by the next of theirs"
)
TASKS_SUPERSEDED = meter.create_counter(
    "docket_tasks_superseded", "1", "Runs that gave way to a newer one of their key"
)
TASKS_RUNNING = meter.create_up_down_counter("docket_tasks_running", "1", "Attempts that are under way")
TASK_DURATION = _seconds("docket_task_duration", "How long attempts took")
TASK_PUNCTUALITY = _seconds("docket_task_punctuality", "How long after their due time attempts began")

# The docket

QUEUE_DEPTH = meter.create_gauge("docket_queue_depth", "1", "Runs that are due")
SCHEDULE_DEPTH = meter.create_gauge("docket_schedule_depth", "1", "Runs that are due later")
OLDEST_QUEUED_AGE = meter.create_gauge("dovetail_oldest_queued_age", "s", "For how long the oldest run has been due")
STRIKES_IN_EFFECT = meter.create_up_down_counter("docket_strikes_in_effect", "1", "Strikes known to this process")

# The worker and its store

CLAIM_BATCH_SIZE = _batch_size("dovetail_claim_batch_size", "Runs that one claim brought")
FINISH_BATCH_SIZE = _batch_size("dovetail_finish_batch_size", "Outcomes that were written at once")
STORE_DURATION = _seconds("dovetail_store_duration", "How long the store took to answer, by operation")
REDIS_DISRUPTIONS = meter.create_counter(
    "docket_redis_disruptions", "1", "Claims, outcomes and heartbeats that the store, whichever it is, did not answer"
)
STORE_EMPTIED = meter.create_counter(
    "dovetail_store_emptied", "1", "Times that a worker noticed that the store had lost all that it held"
)
LEASES_LOST = meter.create_counter("dovetail_leases_lost", "1", "Runs that were stopped because their lease was lost")
CANCELLATIONS_UNHEEDED = meter.create_counter(
    "dovetail_cancellations_unheeded", "1", "Attempts that were cancelled, and went on for long"
)
OUTCOMES_FENCED = meter.create_counter("dovetail_outcomes_fenced", "1", "Outcomes that came too late to count")
CRASHES = meter.create_counter("dovetail_crashes", "1", "Runs that were cut short as their worker or process vanished")
EVENT_LOOP_LAG = _seconds("dovetail_event_loop_lag", "How long the worker's event loop took to turn, once a second")
CACHE_SIZE = meter.create_gauge("docket_cache_size", "1", "Entries in caches of this process")


def is_metering() -> bool:
    """Whether a meter provider has been set: if not, nothing need be put together, nor the store be asked."""
    return getattr(_state, "_METER_PROVIDER", metrics) is not None


def is_overheard() -> bool:
    """Whether anybody learns of what is measured: through a provider, or as tests do, which replace a method of an
    instrument. This takes a while."""
    return is_metering() or any(_METHODS & vars(each).keys() for each in globals().values() if isinstance(each, _KINDS))


class TaskLabels(dict[str, Labels]):
    """The attributes of each task's measurements, put together once. A task's name is all they add: keys and times have
    no end of values, and would have no end of time series."""

    MOST = 10_000

    def __init__(self, labels: Labels) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, task: str) -> Labels:
        labels = {**self._labels, "docket.task": task}
        if len(self) < self.MOST:
            self[task] = labels
        return labels


# Trace context in messages of bytes, as docket has it

Message = dict[bytes, bytes]


class MessageGetter(Getter[Message]):
    """Reads trace context from a message."""

    def get(self, carrier: Message, key: str) -> list[str] | None:
        value = carrier.get(key.encode())
        return None if value is None else [value.decode()]

    def keys(self, carrier: Message) -> list[str]:
        return [key.decode() for key in carrier]


class MessageSetter(Setter[Message]):
    """Writes trace context into a message."""

    def set(self, carrier: Message, key: str, value: str) -> None:
        carrier[key.encode()] = value.encode()


message_getter = MessageGetter()
message_setter = MessageSetter()


def __getattr__(name: str) -> Any:
    # The servers are for processes that serve: nobody else should have to load what they need.
    if name == "healthcheck_server":
        from dovetail.observe.health import healthcheck_server

        return healthcheck_server
    if name == "metrics_server":
        from dovetail.observe.prometheus import metrics_server

        return metrics_server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
