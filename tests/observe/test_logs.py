"""Log formats: one record stays one record, whatever it says."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest
from opentelemetry import trace

from dovetail import Docket
from dovetail.observe.formats import LogFormat, LogLevel
from dovetail.observe.logs import handler_for, set_up_logging
from dovetail.observe.text import escaped
from tests.by_hand import ByHand
from tests.observe.conftest import Spans

FORGED = "evil\n2026-01-01 00:00:00,000 INFO    dovetail.worker: forged\x1b[31m"


def written(format: LogFormat, message: str, *args: Any, level: int = logging.INFO, **how: Any) -> str:
    """What a handler of that format makes of a record."""
    stream = io.StringIO()
    # Nobody's child: a lone surrogate in what pytest captured could not be sent on.
    logger = logging.Logger("app.mail")  # noqa: LOG001
    logger.addHandler(handler_for(format, stream))
    logger.log(level, message, *args, **how)
    return stream.getvalue()


def told(message: str, *args: Any, **how: Any) -> dict[str, Any]:
    (line,) = written(LogFormat.JSON, message, *args, **how).splitlines()
    return json.loads(line)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Sullen(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_a_plain_line():
    line = written(LogFormat.PLAIN, "sent to %s", "ann")
    assert line.endswith(" INFO    app.mail: sent to ann\n")


@pytest.mark.parametrize("format", [LogFormat.PLAIN, LogFormat.RICH])
def test_what_a_record_says_cannot_forge_another(format: LogFormat):
    first, *further = written(format, "%s", FORGED).splitlines()
    assert "evil" in first
    assert further
    assert all(line.startswith("    ") for line in further)
    assert "\x1b[31m" not in "".join(further)


def test_nor_can_what_an_exception_says():
    first, *further = written(LogFormat.PLAIN, "no", exc_info=raised(ValueError(FORGED))).splitlines()
    assert first.endswith("app.mail: no")
    assert all(line.startswith("    ") for line in further)
    assert further[-1] == "    2026-01-01 00:00:00,000 INFO    dovetail.worker: forged\\x1b[31m"


def test_markup_of_a_terminal_is_not_obeyed():
    assert "[bold]x[/bold] :smile:" in written(LogFormat.RICH, "[bold]x[/bold] :smile:")


@pytest.mark.parametrize("format", list(LogFormat))
def test_an_exception_without_a_text_is_told_all_the_same(format: LogFormat):
    assert "Sullen" in written(format, "no", exc_info=raised(Sullen()))


def test_json_is_one_object_a_line():
    fields = told("sent to %s", "ann", extra={"docket.key": "k", "duration": 0.5})
    assert fields.pop("time").endswith("+00:00")
    assert fields == {
        "level": "INFO", "logger": "app.mail", "message": "sent to ann", "docket.key": "k", "duration": 0.5,
    }  # fmt: skip


def test_json_keeps_what_was_said_and_stays_one_line():
    assert told("%s", FORGED + "\u2028\ud800")["message"] == FORGED + "\u2028\ud800"


def test_json_has_the_exception():
    exception = told("no", exc_info=raised(ValueError("why")))["exception"]
    assert (exception["type"], exception["message"]) == ("ValueError", "why")
    assert exception["traceback"].startswith("Traceback")


class Unseen:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ({"a": {1}}, {"a": "{1}"}),
        (Unseen(), "<Unseen: no repr, RuntimeError>"),
    ],
)
def test_json_shows_extras_of_every_kind(value: Any, shown: Any):
    fields = told("x", extra={"thing": value})
    assert fields["thing"] == shown
    assert fields["message"] == "x"


def test_json_survives_a_circle():
    circle: list[Any] = []
    circle.append(circle)
    assert told("x", extra={"thing": circle})["thing"] == "[[...]]"


def test_extras_do_not_overrule_the_record():
    assert told("x", extra={"level": "made up", "time": 0})["level"] == "INFO"


def test_a_record_within_a_span_says_which(spans: Spans):
    with trace.get_tracer(__name__).start_as_current_span("request") as span:
        fields = told("x")
    assert int(fields["trace_id"], 16) == span.get_span_context().trace_id
    assert int(fields["span_id"], 16) == span.get_span_context().span_id


async def test_a_worker_s_lines_carry_what_machines_ask_for(
    still: Docket, by_hand: ByHand, caplog: pytest.LogCaptureFixture
):
    async def work(secret: str) -> None: ...

    caplog.set_level(logging.INFO, "dovetail.worker")
    await still.add(work, key=FORGED, queue="mail")("hush")
    await by_hand.step()
    stream = io.StringIO()
    handler = handler_for(LogFormat.JSON, stream)
    for record in caplog.records:
        handler.handle(record)
    started, ended = map(json.loads, stream.getvalue().splitlines())
    for fields in (started, ended):
        assert fields["docket.task"] == "work"
        assert fields["docket.key"] == FORGED
        assert fields["docket.queue"] == "mail"
        assert fields["docket.attempt"] == 1
    assert started["punctuality"] >= 0
    assert ended["duration"] >= 0
    assert started["message"].startswith("↪ [     0ms] work(...){evil\\n2026")
    assert "hush" not in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ↪ ünïcode 🙂", "plain ↪ ünïcode 🙂"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[31m\x7f\x9b", "\\x1b[31m\\x7f\\x9b"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("\u2028\ud800", "\\u2028\\ud800"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str):
    assert escaped(text) == shown


def fresh_root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """A root logger that nobody has set up: pytest's own handlers are not among its handlers."""
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    return root


@pytest.mark.parametrize(
    ("at_terminal", "format", "kind"),
    [
        (True, None, "RichHandler"),
        (False, None, "StreamHandler"),
        (True, LogFormat.PLAIN, "StreamHandler"),
        (False, LogFormat.RICH, "RichHandler"),
    ],
)
def test_the_format_suits_where_it_is_read(
    monkeypatch: pytest.MonkeyPatch, at_terminal: bool, format: LogFormat | None, kind: str
):
    root = fresh_root(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
    set_up_logging(LogLevel.DEBUG, format)
    assert [type(handler).__name__ for handler in root.handlers] == [kind]
    assert root.level == logging.DEBUG


def test_what_a_program_has_set_up_stays(monkeypatch: pytest.MonkeyPatch):
    root = fresh_root(monkeypatch)
    mine = logging.NullHandler()
    root.addHandler(mine)
    set_up_logging()
    assert root.handlers == [mine]
