"""Run by a test in a process of its own: a docket that is open before a fork, used on both sides of it."""

import os
import sys
import threading
from datetime import UTC, datetime, timedelta

from dovetail.sync import Docket, Execution

EACH = 10


async def noop(side: str, number: int) -> None: ...


def add(docket: Docket, side: str) -> list[Execution[None]]:
    later = datetime.now(UTC) + timedelta(hours=1)
    return [docket.add(noop, when=later, key=f"{side}:{number}")(side, number) for number in range(EACH)]


def main(url: str) -> None:
    docket = Docket("tests", url)
    (before, *_) = add(docket, "before")
    adding = threading.Thread(target=add, args=(docket, "meanwhile"))
    adding.start()
    children: list[int] = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            add(docket, f"child{child}")
            before.sync()
            if child == 0:
                docket.close()
                add(docket, "again")
            sys.exit(0 if before.state == "scheduled" else 1)
        children.append(pid)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    adding.join()
    # The parent's connections are as good as before, though every child has gone.
    add(docket, "after")
    before.sync()
    print(ended, before.state, docket.snapshot().total_tasks)


if __name__ == "__main__":
    main(sys.argv[1])
