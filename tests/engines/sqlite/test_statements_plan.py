"""Statements that must use an index use it, whatever the size of the store and whatever SQLite knows about it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from dovetail.engines.sqlite import connection, sight
from dovetail.engines.sqlite.location import Location
from dovetail.engines.sqlite.session import SQL, Session
from dovetail.model import RunQuery, State
from tests.engines.sqlite.words import fill

ROWS = (0, 1_000, 100_000)
NOW = 1_000_000

BY_KEY = ("dovetail_run_key (docket=? AND key=?)", "dovetail_run_id (id=? AND docket=?)")
ARCHIVED_BY_KEY = ("dovetail_archive_key (docket=? AND key=?)", "dovetail_archive_id (id=? AND docket=?)")
BY_ROW = "INTEGER PRIMARY KEY (rowid=?)"
OF_COUNTED = "dovetail_run_counted (docket=? AND task=? AND state=? AND finished>?)"

USES = {
    # claiming
    "lapsed": ("dovetail_run_lease (docket=? AND queue=? AND lease<?)",),
    "became_due": ("dovetail_run_due (docket=? AND due<?)",),
    "first_ready_queue": ("dovetail_run_ready (docket=? AND queue>?)",),
    "ready": ("dovetail_run_ready (docket=? AND queue=?)",),
    "level_after": ("dovetail_run_ready (docket=? AND queue=? AND priority>?)",),
    "level": ("dovetail_run_ready (docket=? AND queue=? AND priority=?)",),
    "next_due": ("dovetail_run_due (docket=?)",),
    "next_lapse": ("dovetail_run_lease (docket=? AND queue=? AND lease>?)",),
    "next_opening": ("dovetail_opening_at (docket=?)",),
    "take_over": (BY_ROW,),
    "make_ready": (BY_ROW,),
    "start": (BY_ROW,),
    "results_of_parents": ("dovetail_edge_child (child=?)", BY_ROW),
    # limits
    "first_parked": ("dovetail_run_parked (docket=? AND parked_on=?)",),
    "limits_with_parked": ("dovetail_run_parked (docket=? AND parked_on>?)",),
    "openings_due": ("dovetail_opening_at (docket=? AND at<?)",),
    "slots_held": ("PRIMARY KEY (docket=? AND limit_key=?)",),
    "recent_starts": ("dovetail_start_recent (docket=? AND limit_key=?)",),
    # scheduling
    "any_key_held": (BY_KEY[0], ARCHIVED_BY_KEY[1]),
    "known": (BY_KEY[1], ARCHIVED_BY_KEY[1]),
    "live_of_key": (BY_ROW, *BY_KEY),
    "parent_of": (*reversed(BY_KEY), *reversed(ARCHIVED_BY_KEY)),
    "linger": ("dovetail_run_key (docket=? AND key=?)",),
    # finishing
    "settle": ("dovetail_run_id (id=? AND docket=?)",),
    "requeue": ("dovetail_run_id (id=? AND docket=?)",),
    "standing": ("dovetail_run_id (id=? AND docket=?)",),
    "settle_many": (BY_ROW, "dovetail_run_id (id=? AND docket=?)"),
    "other_pending": (BY_ROW, *BY_KEY),
    "end_by_store": (BY_ROW,),
    "waiting_children": ("PRIMARY KEY (parent=?)", BY_ROW),
    # control
    "renew": ("dovetail_run_id (id=? AND docket=?)",),
    "over_of_key": (BY_KEY[0], BY_ROW, BY_KEY[1], BY_ROW, *ARCHIVED_BY_KEY),
    "terminal": ("dovetail_run_id (id=? AND docket=?)",),
    "report": (BY_ROW, BY_ROW, *BY_KEY),
    # looking
    "live_place": ("dovetail_run_id (id=? AND docket=?)",),
    "ready_before": ("dovetail_run_ready (docket=? AND queue=? AND (priority,place,due,id)<(?,?,?,?))",),
    "parked_before": ("dovetail_run_parked (docket=? AND parked_on=? AND (priority,place,due,id)<(?,?,?,?))",),
    "due_before": (
        "dovetail_run_ready (docket=? AND queue=? AND priority<?)",
        "dovetail_run_due (docket=? AND due<?)",
    ),
    "slot_holders": ("PRIMARY KEY (docket=? AND limit_key=?)", BY_ROW),
    # sweeping
    "expired": ("dovetail_run_expires (docket=? AND expires<?)", "PRIMARY KEY (parent=?)", BY_ROW),
    "expired_in_archive": ("dovetail_archive_expires (docket=? AND expires<?)", "PRIMARY KEY (parent=?)", BY_ROW),
    "ripe": ("dovetail_run_moves (docket=? AND <expr><?)",),
    "next_counted": ("dovetail_run_counted (docket=? AND (task,state)>(?,?))",),
    "most_kept": (OF_COUNTED,),
    "surplus": (OF_COUNTED, "PRIMARY KEY (parent=?)", BY_ROW),
    # the archive
    "archive": (BY_ROW,),
    "archived": (ARCHIVED_BY_KEY[1],),
    "archived_children": ("PRIMARY KEY (parent=?)", "dovetail_archive_seq (seq=?)"),
    "bring_back": ("dovetail_archive_seq (seq=?)",),
    "standing_in_archive": (ARCHIVED_BY_KEY[1],),
}

GLANCES = {
    "glance_queued": "INDEX dovetail_run_ready",
    "glance_scheduled": "INDEX dovetail_run_due",
    "glance_running": "INDEX dovetail_run_lease",
    "glance_parked": "COVERING INDEX dovetail_run_parked",
    "glance_kept": "COVERING INDEX dovetail_run_expires",
    "glance_leases": "INDEX dovetail_run_lease",
    "glance_failures": "INDEX dovetail_run_expires",
    "glance_waiting": "INTEGER PRIMARY KEY",
}
"""Statements for those who look from outside: they read one index, and of what is over a bounded part."""

READS_ALL = {"counts", "candidates", "orphans", "turns_given", *GLANCES}
"""Statements that look at every run, since that is what they are for, or at one index of theirs."""

ONE_STEP = {"next_due", "next_opening"}
"""Statements that look at all of a docket, but only at its first row."""

SORTS_FEW = {"parent_of", "parents_of", "all_holds", "workers", "counts", "candidates", *GLANCES}
"""Statements that sort what they found: the runs of one key, the parents of one run, or a handful of others."""


Databases = list[tuple[str, sqlite3.Connection]]
"""Stores, each with a word on its size."""


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    """A store of each size, without and with what ANALYZE learns."""
    made: Databases = []
    for rows in ROWS:
        plain = _database(rows)
        analyzed = connection.connect(Location(None, "analyzed"), "process")
        plain.backup(analyzed)
        analyzed.execute("ANALYZE")
        made += [(f"{rows} rows", plain), (f"{rows} rows, analyzed", analyzed)]
    yield made
    for _, db in made:
        db.close()


def _database(rows: int) -> sqlite3.Connection:
    location = Location(None, "plans")
    db = connection.connect(location, "process")
    connection.migrate(db, location)
    if rows:
        share = rows // 5
        fill(db, share, "queued", NOW)
        fill(db, share, "scheduled", NOW + 1)
        fill(db, share, "waiting", NOW, waits_for=1)
        fill(db, share, "running", NOW, lease=NOW, worker="worker")
        fill(db, share // 2, "completed", NOW, expires=NOW)
        fill(db, share // 2, "failed", NOW, expires=NOW)
        fill(db, share // 2, "parked", NOW, parked_on="limit")
        db.execute("UPDATE dovetail_run SET finished = 1, keep_most = 10, keep_archived = 10 WHERE state = 'failed'")
        db.execute("UPDATE dovetail_run SET state = 'scheduled' WHERE state = 'parked'")
        _fill_the_rest(db)
    return db


def _fill_the_rest(db: sqlite3.Connection) -> None:
    db.execute(
        "INSERT INTO dovetail_edge (parent, child, met) SELECT seq, seq + 1, 0 FROM dovetail_run WHERE seq % 10 = 0"
    )
    db.execute(
        "INSERT INTO dovetail_start SELECT 1, 'limit-' || seq % 10, seq, seq + 10, seq FROM dovetail_run"
        " WHERE seq % 5 = 0"
    )
    db.execute("INSERT INTO dovetail_slot SELECT 1, 'limit-' || seq % 10, seq FROM dovetail_run WHERE seq % 5 = 0")
    db.execute("INSERT INTO dovetail_opening SELECT 1, 'limit-' || seq, seq FROM dovetail_run WHERE seq % 100 = 0")
    db.execute("INSERT INTO dovetail_share SELECT 1, 'queue', ':' || seq, seq FROM dovetail_run WHERE seq % 100 = 0")
    db.execute("INSERT INTO dovetail_error SELECT seq, 1, 1, 1, 'w', 'T', 'm', '' FROM dovetail_run WHERE seq % 5 = 0")


def plan_of(db: sqlite3.Connection, statement: str) -> list[str]:
    statement = statement.replace("{rows}", f"({', '.join('?' * 17)})")
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = [1] * (max(numbered) if numbered else statement.count("?"))
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def used(plan: list[str]) -> tuple[str, ...]:
    """The indexes that a plan searches, in the order of the plan."""
    searches = (
        re.match(r"SEARCH (?:TABLE )?\w+ (?:AS \w+ )?USING (?:COVERING )?(?:INDEX )?(.*)", step) for step in plan
    )
    return tuple(search[1] for search in searches if search)


def scanned(plan: list[str]) -> list[str]:
    """The tables that a plan reads from end to end. JSON that came with the question is no table, nor is what another
    part of the plan has found."""
    found = {f"SCAN {step.removeprefix('CO-ROUTINE ')}" for step in plan if step.startswith("CO-ROUTINE ")}
    scans = (step for step in plan if step.startswith("SCAN ") and not step.startswith("SCAN (subquery"))
    return [step for step in scans if step not in {"SCAN CONSTANT ROW", *found} and "VIRTUAL TABLE" not in step]


@pytest.mark.parametrize("name", USES)
def test_the_statement_uses_its_index(name: str, databases: Databases) -> None:
    for size, db in databases:
        plan = plan_of(db, SQL[name])
        assert used(plan) == USES[name], f"{name} with {size}: {plan}"


@pytest.mark.parametrize("name", sorted(SQL.keys() - READS_ALL))
def test_the_statement_reads_no_table_from_end_to_end(name: str, databases: Databases) -> None:
    for size, db in databases:
        assert not scanned(plan_of(db, SQL[name])), f"{name} with {size}"


@pytest.mark.parametrize("name", sorted(SQL.keys() - READS_ALL - ONE_STEP))
@pytest.mark.parametrize("table", ["run", "start"])
def test_the_statement_walks_through_no_docket(name: str, table: str, databases: Databases) -> None:
    for size, db in databases:
        walks = re.compile(rf"SEARCH (dovetail_{table}|{table}) USING .*\(docket=\?\)")
        assert not [step for step in plan_of(db, SQL[name]) if walks.match(step)], f"{name} with {size}"


@pytest.mark.parametrize("name", sorted(SQL.keys() - SORTS_FEW))
def test_the_statement_needs_no_sorting(name: str, databases: Databases) -> None:
    for size, db in databases:
        sorts = [step for step in plan_of(db, SQL[name]) if step.startswith("USE TEMP B-TREE")]
        assert not sorts, f"{name} with {size}"


@pytest.mark.parametrize(("name", "index"), GLANCES.items())
def test_a_glance_reads_its_index(name: str, index: str, databases: Databases) -> None:
    for size, db in databases:
        assert any(index in step for step in plan_of(db, SQL[name])), f"{name} with {size}"


# Finding

FINDS = {
    "by id": (RunQuery(ids=("a", "b")), ("dovetail_run_id (id=? AND docket=?)",)),
    "by key": (RunQuery(keys=("a", "b")), (BY_ROW, *BY_KEY)),
    "by key and state": (RunQuery(keys=("a",), states=(State.FAILED,)), (BY_ROW, *BY_KEY)),
    "the newest of a key": (RunQuery(keys=("a",), newest_first=True, limit=1), (BY_ROW, *BY_KEY)),
    "the latest of a key": (
        RunQuery(keys=("a",), latest=True),
        (BY_ROW, *BY_KEY, "dovetail_run_key (docket=? AND key=? AND rowid>?)", ARCHIVED_BY_KEY[0]),
    ),
    "what hangs on a run": (
        RunQuery(parent="a"),
        (BY_ROW, "PRIMARY KEY (parent=?)", BY_KEY[1], ARCHIVED_BY_KEY[1]),
    ),
    "the next page": (RunQuery(cursor="7"), ("INTEGER PRIMARY KEY (rowid>?)",)),
    "the page before": (RunQuery(cursor="7", newest_first=True), ("INTEGER PRIMARY KEY (rowid<?)",)),
}


@pytest.mark.parametrize("what", FINDS)
def test_finding_uses_an_index(what: str, databases: Databases) -> None:
    query, expected = FINDS[what]
    for size, db in databases:
        plan = plan_of(db, statement_of(db, query))
        assert used(plan) == expected, f"finding {what} with {size}: {plan}"


def test_a_first_page_is_read_in_the_order_of_arrival(databases: Databases) -> None:
    for _, db in databases:
        assert plan_of(db, statement_of(db, RunQuery(newest_first=True))) == ["SCAN run"]


def statement_of(db: sqlite3.Connection, query: RunQuery) -> str:
    """What `find` asks of the database for a query."""
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    sight.find(Session(db, 1, NOW, frozenset()), query)
    db.set_trace_callback(None)
    return asked[0]
