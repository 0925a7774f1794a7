"""Tasks that the tests of commands name."""

from datetime import datetime, timedelta
from decimal import Decimal

from dovetail import Progress, Retry, Timeout, task


@task(queue="mail", tags=["outgoing"])
async def send(to: str, when: datetime | None = None, amount: Decimal = Decimal(1)) -> str:
    """Send a mail."""
    if to == "nobody":
        raise LookupError("no such address")
    return f"{amount} to {to} at {when}"


async def count(up_to: int, progress: Progress = Progress()) -> int:
    await progress.set_total(up_to)
    for _ in range(up_to):
        await progress.increment()
    return up_to


async def fetch(retry: Retry = Retry(), timeout: Timeout = Timeout(timedelta(minutes=1))) -> None: ...


tasks = [send, count, fetch]
PATH = "tests.cli.tasks_for_commands:tasks"
