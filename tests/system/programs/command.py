"""The `dovetail` command itself, with the tasks of the system tests."""

from __future__ import annotations

import sys

from dovetail.cli import main

if __name__ == "__main__":
    tasks = (
        [] if any(each.startswith("--tasks") for each in sys.argv) else ["--tasks=tests.system.programs.tasks:tasks"]
    )
    sys.argv = ["dovetail", "worker", *tasks, *sys.argv[1:]]
    main()
