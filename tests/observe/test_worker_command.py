"""`dovetail worker`, watched from outside: its ports and its log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail import tasks
from dovetail.cli.main import app
from dovetail.errors import UsageError
from dovetail.sync import Docket
from tests.observe.fetching import Fetched, get
from tests.servers.ports import free_port

LONGEST = 120.0


@contextmanager
def worker(folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process, told everything by its environment."""
    settings = {"DOVETAIL_URL": f"sqlite:///{folder / 'store.db'}", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "worker"], env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def get_eventually(port: int, path: str) -> Fetched:
    """The answer, as soon as there is one that says all is well."""
    give_up = time.monotonic() + LONGEST
    while True:
        try:
            answer = get(port, path)
        except OSError:
            answer = None
        if answer is not None and answer.status == 200:
            return answer
        assert time.monotonic() < give_up, answer
        time.sleep(0.05)


def test_a_worker_answers_on_its_ports_and_logs_for_machines(tmp_path: Path):
    health = free_port(1)
    metrics = health + 1
    with worker(
        tmp_path,
        DOVETAIL_WORKER_NAME="w1",
        DOVETAIL_WORKER_HEALTHCHECK_PORT=str(health),
        DOVETAIL_WORKER_HEALTHCHECK_PATIENCE="60",
        DOVETAIL_WORKER_METRICS_PORT=str(metrics),
        DOVETAIL_LOGGING_FORMAT="json",
        DOVETAIL_LOGGING_LEVEL="info",
    ) as process:
        assert get_eventually(health, "/ready").json["worker"] == "w1"
        assert get_eventually(health, "/live").json["live"] is True
        assert "dovetail_crashes_total" in get_eventually(metrics, "/metrics").body
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, log
    records = [json.loads(line) for line in log.splitlines()]
    assert any("w1" in record["message"] for record in records)
    # A busy machine may give it reason to warn.
    assert {"INFO"} <= {record["level"] for record in records} <= {"INFO", "WARNING"}


def test_each_place_of_a_supervisor_has_ports_of_its_own_also_for_successors(tmp_path: Path):
    health = free_port(1, 2, 3)
    metrics = health + 2

    def names() -> list[str]:
        return [get_eventually(health + place, "/ready").json["worker"] for place in range(2)]

    with worker(
        tmp_path,
        DOVETAIL_WORKER_NAME="w",
        DOVETAIL_WORKER_PROCESSES="2",
        DOVETAIL_WORKER_MAX_AGE="3s",
        DOVETAIL_WORKER_HEALTHCHECK_PORT=str(health),
        DOVETAIL_WORKER_METRICS_PORT=str(metrics),
    ) as process:
        first = names()
        assert len(set(first)) == 2
        for place in range(2):
            assert "dovetail_crashes_total" in get_eventually(metrics + place, "/metrics").body
        give_up = time.monotonic() + LONGEST
        while set(names()) & set(first):
            assert time.monotonic() < give_up, "they were not replaced"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, log
    assert "cannot be served" not in log


def test_a_successor_has_its_port_to_itself_while_its_predecessor_drains(tmp_path: Path):
    health = free_port(1)
    with Docket(url=f"sqlite:///{tmp_path / 'store.db'}") as docket:
        docket.add(tasks.sleep)(600)
    with worker(
        tmp_path,
        DOVETAIL_WORKER_NAME="w",
        DOVETAIL_WORKER_PROCESSES="2",
        DOVETAIL_WORKER_MAX_AGE="3s",
        DOVETAIL_WORKER_HEALTHCHECK_PORT=str(health),
    ) as process:
        first = {get_eventually(health + place, "/ready").json["worker"] for place in range(2)}
        for place in range(2):
            while get_eventually(health + place, "/ready").json["worker"] in first:
                time.sleep(0.05)
            # Another successor may be under way, but nobody answers who is leaving.
            assert not {get_eventually(health + place, "/live").json["worker"] for _ in range(20)} & first
        assert get_eventually(health, "/ready").json["reason"] == "ok"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONGEST)


@pytest.mark.parametrize(
    "ports",
    [
        ["--healthcheck-port", "8080", "--metrics-port", "8081"],
        ["--healthcheck-port", "9102", "--metrics-port", "9100"],
        ["--metrics-port", "65534"],
    ],
)
def test_ports_that_would_be_had_twice_or_are_none_are_refused(ports: list[str]):
    result = CliRunner().invoke(app, ["worker", "--url", "sqlite:///nowhere/store.db", "--processes", "3", *ports])
    assert result.exit_code == 2
    assert "--metrics-port" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--logging-level", "loud"], "'loud' is not one of"),
        (["--logging-format", "xml"], "'xml' is not one of"),
        (["--metrics-port", "70000"], "--metrics-port"),
        (["--healthcheck-port", "-1"], "--healthcheck-port"),
        (["--healthcheck-patience", "0"], "--healthcheck-patience"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str):
    result = CliRunner().invoke(app, ["worker", *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_a_port_that_is_taken_stops_it_at_once(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ["worker", "--url", f"sqlite:///{tmp_path / 'store.db'}", "--healthcheck-port", port]
        result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UsageError)
    assert f"0.0.0.0:{port} cannot be served" in str(result.exception)


def test_a_port_that_is_taken_is_refused_before_any_process_is_started(tmp_path: Path):
    """Also one that others would share: only the places of one supervisor do that."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["worker", "--url", f"sqlite:///{tmp_path / 'store.db'}", "--metrics-port", str(port)]
        result = CliRunner().invoke(app, [*arguments, "--processes", "2"])
    assert isinstance(result.exception, UsageError)
    assert f"0.0.0.0:{port} cannot be served" in str(result.exception)
