"""The worker: claims runs and runs them. Each part is a file of its own, handed what it needs."""

from dovetail.worker.worker import Worker

__all__ = ["Worker"]
