"""A worker process of the bench: says it is there, waits for the word, works until it is killed."""

from __future__ import annotations

import sys

from bench.starts import Starts
from bench.systems import load

READY = b"ready\n"


def main(engine: str, system: str, url: str, concurrency: str, descriptor: str, tasks: str) -> None:
    starts = Starts(int(descriptor), int(tasks))
    worker = load(engine, system)(url)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline():
        worker.work(int(concurrency), starts.note)


if __name__ == "__main__":
    main(*sys.argv[1:])
