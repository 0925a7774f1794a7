"""The pure parts of `dovetail top`: the model, the selection, the screen and the keys."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from dovetail.cli.top.keyboard import keys_of
from dovetail.cli.top.model import Look, QueueRow, View, view_of
from dovetail.cli.top.screen import HELP, Surroundings, allotted, screen, snapshot
from dovetail.cli.top.selection import Pane, Selection
from dovetail.model import Glance, Hold, HoldKind, QueueGlance, RunGlance, State, WorkerInfo

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
AROUND = Surroundings("emails", "redis://host/0")


def a_glance(after: float = 0, **fields: object) -> Glance:
    given = {"queues": [], "waiting": 0, "parked": 0, "kept": 0, "workers": [], "running": [], "failures": []}
    return Glance(at=NOW + SECOND * after, **{**given, **fields})  # type: ignore[arg-type]


def a_view(now: Glance, before: Glance | None = None, *holds: Hold) -> View:
    return view_of(Look.of(now, list(holds)), None if before is None else Look.of(before, []), 10 * SECOND)


def a_failure(key: str, error: str = "ValueError: boom") -> RunGlance:
    return RunGlance(f"id-{key}", key, "greet", "default", State.FAILED, finished=NOW - 90 * SECOND, error=error)


# The model


def test_one_look_knows_no_rates() -> None:
    view = a_view(a_glance(queues=[QueueGlance("mail", 3, oldest_due=NOW - 5 * SECOND)]))
    assert view.queues == [QueueRow("mail", 3, oldest=5 * SECOND)]
    assert (view.ended_per_second, view.failed_per_second) == (None, None)


def test_what_workers_ended_went_and_what_is_there_beside_it_came() -> None:
    before = a_glance(queues=[QueueGlance("mail", 10)], workers=[WorkerInfo("ann", id="1", ended={"mail": 100})])
    now = a_glance(
        2, queues=[QueueGlance("mail", 4, 1, 1)], workers=[WorkerInfo("ann", id="1", ended={"mail": 110}, failed=4)]
    )
    (row,) = a_view(now, before).queues
    assert (row.outgoing, row.incoming) == (5.0, 3.0)
    assert (a_view(now, before).ended_per_second, a_view(now, before).failed_per_second) == (5.0, 2.0)


def test_a_worker_that_came_since_then_counts_from_nought_and_one_that_left_not_at_all() -> None:
    before = a_glance(workers=[WorkerInfo("ann", id="1", ended={"mail": 100})])
    now = a_glance(1, workers=[WorkerInfo("bob", id="2", ended={"mail": 7})])
    assert a_view(now, before).ended_per_second == 7.0


def test_a_queue_that_ran_empty_is_still_shown() -> None:
    before = a_glance(queues=[QueueGlance("mail", 2)], workers=[WorkerInfo("ann", id="1")])
    now = a_glance(1, workers=[WorkerInfo("ann", id="1", ended={"mail": 2})])
    assert a_view(now, before).queues == [QueueRow("mail", incoming=0.0, outgoing=2.0)]


def test_a_paused_queue_says_why_even_if_it_is_empty() -> None:
    view = a_view(a_glance(), None, Hold(HoldKind.PAUSE, queue="mail", reason="down", owner="ann"))
    assert view.queues == [QueueRow("mail", is_paused=True, why="down, by ann")]


def test_the_queue_of_schedules_is_shown_only_if_it_is_paused() -> None:
    glance = a_glance(queues=[QueueGlance("dovetail.schedules", scheduled=2), QueueGlance("mail", scheduled=1)])
    assert ([row.name for row in a_view(glance).queues], a_view(glance).scheduled) == (["mail"], 1)
    paused = a_view(glance, None, Hold(HoldKind.PAUSE, queue="dovetail.schedules"))
    assert [row.name for row in paused.queues] == ["dovetail.schedules", "mail"]


def test_a_silent_worker_is_shown_as_dead() -> None:
    workers = [WorkerInfo("ann", NOW - SECOND, id="1"), WorkerInfo("bob", NOW - 30 * SECOND, id="2")]
    assert [row.is_alive for row in a_view(a_glance(workers=workers)).workers] == [True, False]


# The selection


def test_a_row_stays_selected_when_others_come_before_it() -> None:
    selection = Selection()
    selection.move(a_view(a_glance(queues=[QueueGlance("b"), QueueGlance("c")])), 1)
    grown = a_view(a_glance(queues=[QueueGlance("a"), QueueGlance("b"), QueueGlance("c")]))
    assert selection.place(grown, Pane.QUEUES) == 2
    row = selection.row(grown, Pane.QUEUES)
    assert row is not None
    assert row.identity == "c"


def test_the_selection_stops_at_both_ends_and_survives_an_empty_pane() -> None:
    selection, view = Selection(), a_view(a_glance(queues=[QueueGlance("a"), QueueGlance("b")]))
    selection.move(view, 10**6)
    assert selection.place(view, Pane.QUEUES) == 1
    selection.move(view, -(10**6))
    assert selection.place(view, Pane.QUEUES) == 0
    selection.switch()
    selection.move(view, 1)
    assert (selection.pane, selection.row(view, Pane.WORKERS)) == (Pane.WORKERS, None)
    selection.switch(-1)
    assert selection.pane is Pane.QUEUES


# The screen


def drawn(view: View | None, width: int = 80, height: int = 24, around: Surroundings = AROUND) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(screen(view, Selection(), around, height))
        return console.export_text().splitlines()


def a_busy_view() -> View:
    return a_view(
        a_glance(
            queues=[QueueGlance(f"queue-{n}", n) for n in range(40)],
            workers=[WorkerInfo(f"worker-{n}", NOW, id=f"{n}") for n in range(20)],
            running=[RunGlance(f"{n}", f"run-{n}", "t", "q", State.RUNNING) for n in range(30)],
            failures=[a_failure(f"{n}") for n in range(30)],
        )
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (20, 5), (80, 3)])
def test_the_screen_fits_whatever_its_size(width: int, height: int) -> None:
    lines = drawn(a_busy_view(), width, height)
    assert len(lines) <= max(height, 4)
    assert max(map(len, lines)) <= width


def test_names_stay_in_a_narrow_terminal() -> None:
    assert any(line.startswith("queue-0 ") for line in drawn(a_busy_view(), 40, 24))


def test_the_help_is_not_wrapped_in_80_columns() -> None:
    lines = drawn(a_view(a_glance()), around=replace(AROUND, shows_help=True))
    assert lines[3 : 3 + len(HELP.splitlines())] == HELP.splitlines()


def test_every_pane_has_rows_in_a_small_terminal() -> None:
    text = "\n".join(drawn(a_busy_view()))
    assert all(word in text for word in ("queue-0", "worker-0", "run-0", "boom"))


def test_nothing_in_stored_text_reaches_the_terminal_as_it_is() -> None:
    view = a_view(a_glance(failures=[a_failure("a\x1b[2Jb", "Err: \x07[bold]\u202ex")]))
    text = "\n".join(drawn(view, 120))
    assert "a\\x1b[2Jb" in text
    assert "Err: \\x07[bold]\\u202ex" in text


def test_before_the_first_look_there_is_a_word() -> None:
    assert drawn(None)[1].strip() == "looking …"


@pytest.mark.parametrize(
    ("around", "said"),
    [
        (Surroundings("d", "s", trouble="not reached"), "not reached"),
        (Surroundings("d", "s", message="'mail' is paused"), "'mail' is paused"),
        (Surroundings("d", "s", question="cancel?", trouble="not reached"), "cancel?"),
        (Surroundings("d", "s", has_keys=False), "Ctrl-C quits"),
    ],
)
def test_the_last_line_says_what_matters_most(around: Surroundings, said: str) -> None:
    assert drawn(a_view(a_glance()), around=around)[-1].strip() == said


def test_the_selected_pane_has_what_it_needs_and_the_others_what_is_left() -> None:
    assert allotted([40, 20, 30, 30], 0, 21) == [4, 3, 3, 3]
    assert allotted([40, 1, 30, 0], 2, 40) == [3, 1, 29, 0]
    assert allotted([2, 1, 0, 0], 0, 21) == [2, 1, 0, 0]
    assert allotted([2, 1, 1, 1], 1, 2) == [-1, 0, -1, -1]


def test_a_snapshot_shows_only_what_there_is() -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(snapshot(a_view(a_glance(queues=[QueueGlance("mail", 1)])), AROUND))
    assert "queues (1)" in captured.get()
    assert "workers" not in captured.get()


# Keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\t\x1b[Z\r", ["tab", "back tab", "enter"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[15~q", ["q"]),
        (b"\x1b[1;5Cq", ["q"]),
        (b"\xff\x00q", ["q"]),
        (b"", []),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys
