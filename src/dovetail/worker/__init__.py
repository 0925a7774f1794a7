"""The worker: claims runs and runs them. Each part is a file of its own, handed what it needs."""

from dovetail.worker.fallback import default_fallback_task
from dovetail.worker.worker import MESSAGE_BATCH, Worker

__all__ = ["MESSAGE_BATCH", "Worker", "default_fallback_task"]
