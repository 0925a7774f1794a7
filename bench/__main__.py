"""The command: `python -m bench` for the whole, `python -m bench micro` for the steps of one run."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.bench import Bench
from bench.cases import CASES, Case, Load
from bench.machine import describe
from bench.report import Report
from bench.systems import ENGINES

WIDE = 200  # columns, where there is no terminal to ask
SYSTEMS = list(dict.fromkeys(name for names in ENGINES.values() for name in names))
QUICK = 0.1  # the scale of --quick
LASTING = Path("/var/tmp")  # /tmp is often memory, where syncing costs nothing and figures say nothing


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.what == "micro":
        from bench import micro  # only now: it takes Dovetail apart, and the other systems must not need it

        micro.show(Console())
        return
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-", dir=arguments.directory) as directory:
        report = asyncio.run(_report(arguments, Path(directory)))
    report.show(Console(width=None if sys.stdout.isatty() else WIDE))
    if arguments.json:
        arguments.json.write_text(report.json())
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown())
    sys.exit(1 if report.failures else 0)


async def _report(arguments: argparse.Namespace, directory: Path) -> Report:
    bench = Bench(
        cases=list(_chosen(arguments.only)),
        systems=arguments.system or SYSTEMS,
        rounds=1 if arguments.quick else arguments.rounds,
        load=_load(arguments),
        directory=directory,
        console=Console(stderr=True),
    )
    machine = describe(directory)
    results = [await bench.run(engine) for engine in arguments.engine or ENGINES]
    return Report(machine, bench.load, bench.rounds, list(bench.systems), results, bench.failures)


def _load(arguments: argparse.Namespace) -> Load:
    if arguments.quick:
        return replace(Load().scaled(QUICK), calm=0.5, idle=2.0)
    return Load().scaled(arguments.scale)


def _chosen(names: list[str] | None) -> Iterator[Case]:
    for case in CASES:
        if not names or any(case.name.startswith(name) for name in names):
            yield case


def _case_name(text: str) -> str:
    if not any(case.name.startswith(text) for case in CASES):
        raise argparse.ArgumentTypeError(f"no case begins with {text!r}; there are {_names()}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["all", "micro"], default="all")
    parser.add_argument(
        "--only",
        action="append",
        type=_case_name,
        metavar="CASE",
        help=f"the beginning of one of: {_names()}",
    )
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="leave the other systems out")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="leave the other engines out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of tasks; 0.5 is half of them")
    parser.add_argument("--quick", action="store_true", help="one small round: does everything still work?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables for docs/benchmarks.md")
    lasting = LASTING if LASTING.is_dir() else None
    parser.add_argument("--directory", type=Path, default=lasting, help="for the stores: on a real disk")
    return parser


def _names() -> str:
    return ", ".join(case.name for case in CASES)


if __name__ == "__main__":
    main()
