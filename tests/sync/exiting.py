"""Run by a test in a process of its own: a program that ends without closing its docket, in one way or another."""

import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

from dovetail.sync import Docket


async def noop() -> None: ...


def main(url: str, how: str) -> None:
    docket = Docket("tests", url)
    execution = docket.add(noop, when=datetime.now(UTC) + timedelta(hours=1))()
    print(execution.state, flush=True)
    if how == "waiting":
        threading.Thread(target=execution.get_result, daemon=True).start()
        time.sleep(0.1)
    elif how == "interrupted":
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            execution.get_result()
        except KeyboardInterrupt:
            execution.sync()
            print(execution.state)
    elif how == "raising":
        raise ZeroDivisionError
    elif how == "iterating":
        global events
        events = execution.subscribe()
        next(events)


main(*sys.argv[1:])
