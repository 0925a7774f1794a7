"""Where a store lives: every form of the URL, and places that are refused before anything there is touched."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from dovetail.clock import VirtualClock
from dovetail.engines.sqlite import SqliteEngine, location
from dovetail.engines.sqlite.location import Location, file_system_of, locate
from dovetail.errors import EngineUnavailable, InvalidURL, NotADatabase, SchemaOutdated
from dovetail.testing.conformance.vocabulary import a_run, all_runs, complete_one_by_one, keys, place
from tests.engines.sqlite.words import Opened, by_hand

HERE = Path.cwd()


# URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite://", HERE / "dovetail.db"),
        ("sqlite:///", HERE / "dovetail.db"),
        ("sqlite:///jobs.db", HERE / "jobs.db"),
        ("sqlite:///some/where/jobs.db", HERE / "some" / "where" / "jobs.db"),
        ("sqlite:////var/lib/jobs.db", Path("/var/lib/jobs.db")),
        ("sqlite:///~/jobs.db", Path.home() / "jobs.db"),
        ("sqlite:////with%20space/a%23b%3Fc.db", Path("/with space/a#b?c.db")),
        ("sqlite:////with space/jobs.db", Path("/with space/jobs.db")),
        ("sqlite:////%C3%A9t%C3%A9.db", Path("/été.db")),
        ("sqlite:////été.db", Path("/été.db")),
        ("SQLite:////jobs.db", Path("/jobs.db")),
    ],
)
def test_the_url_names_the_file(url: str, path: Path) -> None:
    assert locate(url) == Location(path, str(path))


@pytest.mark.parametrize(
    ("url", "single"), [("?single_process=true", True), ("?single_process=false", False), ("", False)]
)
def test_the_url_says_whether_one_process_has_the_file_to_itself(url: str, single: bool) -> None:
    assert locate(f"sqlite:////jobs.db{url}").single_process is single


@pytest.mark.parametrize(("url", "name"), [("memory://", ""), ("memory://a", "a"), ("memory://a/b?c", "a/b?c")])
def test_a_store_in_memory_has_a_name_and_no_path(url: str, name: str) -> None:
    assert locate(url) == Location(None, name)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite://jobs.db", "write three slashes, as in 'sqlite:///jobs.db'"),
        ("sqlite://host/jobs.db", "write three slashes"),
        ("sqlite:////jobs.db?mode=ro", "unknown option 'mode'; known: single_process"),
        ("sqlite:////jobs.db?single_process=yes", "single_process must be true or false, not 'yes'"),
        ("sqlite:////jobs.db?single_process", "single_process must be true or false, not ''"),
        ("sqlite:////jo%00bs.db", "NUL"),
        ("sqlite:///~nobody-of-that-name/jobs.db", "nobody-of-that-name"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, complaint: str, clock: VirtualClock) -> None:
    with pytest.raises(InvalidURL) as refused:
        SqliteEngine(url, "tests", clock=clock)
    assert complaint in str(refused.value)
    assert url in str(refused.value)


async def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    folder: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    engine = SqliteEngine("sqlite:///here.db", "tests", clock=clock)
    monkeypatch.chdir("/")
    async with engine:
        assert (folder / "here.db").exists()


# Places that cannot hold a store


async def refusal(opened: Opened, path: Path, kind: type[Exception]) -> str:
    with pytest.raises(kind) as refused:
        await opened(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


async def test_a_missing_folder_is_not_made(opened: Opened, folder: Path) -> None:
    message = await refusal(opened, folder / "missing" / "store.db", EngineUnavailable)
    assert f"the folder {folder / 'missing'} does not exist; create it first" in message
    assert list(folder.iterdir()) == []


async def test_a_folder_is_no_file(opened: Opened, folder: Path) -> None:
    assert "it is a folder; name a file in it" in await refusal(opened, folder, NotADatabase)
    assert list(folder.iterdir()) == []


async def test_a_pipe_is_no_file(opened: Opened, path: Path) -> None:
    os.mkfifo(path)
    assert "it is not a regular file" in await refusal(opened, path, NotADatabase)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
async def test_a_folder_that_cannot_be_written_is_refused(opened: Opened, folder: Path, path: Path) -> None:
    folder.chmod(0o500)
    assert "not writable" in await refusal(opened, path, EngineUnavailable)
    folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
async def test_a_file_that_cannot_be_written_is_refused(opened: Opened, path: Path) -> None:
    path.touch(0o400)
    assert "not readable and writable" in await refusal(opened, path, EngineUnavailable)


@pytest.mark.parametrize(
    "content",
    [b"x", b"hello, world\n", b"\x00" * 100, b"SQLite format 2\x00" + bytes(4096), bytes(range(256)) * 64],
    ids=["one byte", "text", "zeros", "another version", "bytes"],
)
async def test_a_file_that_is_something_else_stays_as_it_was(
    opened: Opened, path: Path, folder: Path, content: bytes
) -> None:
    path.write_bytes(content)
    before = path.stat()
    await refusal(opened, path, NotADatabase)
    assert path.read_bytes() == content
    assert (path.stat().st_mode, path.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert list(folder.iterdir()) == [path]


async def test_a_database_that_was_cut_off_is_refused(opened: Opened, path: Path) -> None:
    with by_hand(path) as db:
        db.execute("CREATE TABLE own (x)")
        db.execute("INSERT INTO own VALUES (zeroblob(100000))")
    content = path.read_bytes()[:5000]
    path.write_bytes(content)
    await refusal(opened, path, NotADatabase)


async def test_an_empty_file_becomes_a_store(opened: Opened, path: Path) -> None:
    path.touch()
    engine = await opened()
    await place(engine, a_run("a"))


async def test_a_place_that_was_refused_can_be_used_once_it_is_right(opened: Opened, path: Path) -> None:
    path.write_text("something else")
    await refusal(opened, path, NotADatabase)
    path.unlink()
    await place(await opened(), a_run("a"))


async def test_an_engine_that_is_not_open_says_so(path: Path, clock: VirtualClock) -> None:
    engine = SqliteEngine(f"sqlite:///{path}", "tests", clock=clock)
    with pytest.raises(EngineUnavailable, match="not open; use it inside 'async with'"):
        await place(engine, a_run("a"))
    async with engine:
        pass
    with pytest.raises(EngineUnavailable, match="not open"):
        await place(engine, a_run("a"))


# A newer schema


async def test_a_store_of_a_newer_version_stays_as_it_was(opened: Opened, path: Path) -> None:
    async with SqliteEngine(f"sqlite:///{path}", "tests", clock=VirtualClock()) as engine:
        await place(engine, a_run("kept"))
    with by_hand(path) as db:
        db.execute("UPDATE dovetail_schema SET version = 999")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    message = await refusal(opened, path, SchemaOutdated)
    assert "has schema version 999" in message
    assert "upgrade dovetail-tasks, nothing was changed" in message
    assert path.read_bytes() == before
    with by_hand(path) as db:
        assert db.execute("SELECT key FROM dovetail_run").fetchall() == [("kept",)]


# Beside the application's own tables


async def test_the_application_keeps_its_own_tables_in_the_file(opened: Opened, path: Path) -> None:
    with by_hand(path) as db:
        db.execute("CREATE TABLE own (x)")
        db.execute("CREATE VIEW seen AS SELECT x FROM own")
        db.execute("INSERT INTO own VALUES (7)")
        engine = await opened()
        await place(engine, a_run("a"))
        db.execute("INSERT INTO own VALUES (8)")
        assert await complete_one_by_one(engine) == ["a"]
        assert db.execute("SELECT x FROM seen").fetchall() == [(7,), (8,)]


async def test_two_dockets_share_a_file_and_nothing_else(opened: Opened) -> None:
    one, other = await opened(docket="one"), await opened(docket="other")
    await place(one, a_run("a"))
    await place(other, a_run("a"), a_run("b"))
    assert keys(await all_runs(one)) == ["a"]
    assert await complete_one_by_one(other) == ["a", "b"]
    assert await complete_one_by_one(one) == ["a"]


# Network file systems

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/share nfs4 rw,vers=4.2 0 0
tmpfs /mnt/share/local tmpfs rw 0 0
//server/files /mnt/with\\040space cifs rw 0 0
/dev/vdb /mnt/sharednot xfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    (tmp_path / "mounts").write_text(MOUNTS)
    return str(tmp_path / "mounts")


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv", "ext4"),
        ("/", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/inside", "nfs4"),
        ("/mnt/share/local/inside", "tmpfs"),
        ("/mnt/with space", "cifs"),
        ("/mnt/sharednot", "xfs"),
    ],
)
def test_the_nearest_mount_says_what_file_system_a_folder_is_on(mounts: str, place: str, kind: str) -> None:
    assert file_system_of(Path(place), mounts) == kind


def test_where_mounts_are_not_listed_the_file_system_is_not_known() -> None:
    assert file_system_of(Path("/"), "/nowhere/mounts") == ""


def test_a_line_that_makes_no_sense_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("\nnonsense\n" + MOUNTS)
    assert file_system_of(Path("/mnt/share"), str(tmp_path / "mounts")) == "nfs4"


@pytest.fixture
def networked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every folder seems to lie on a file system of this kind."""
    kind: str = getattr(request, "param", "nfs4")
    monkeypatch.setattr(location, "file_system_of", lambda _: kind)
    return kind


@pytest.mark.parametrize("networked", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"], indirect=True)
async def test_a_network_file_system_is_refused(opened: Opened, path: Path, folder: Path, networked: str) -> None:
    message = await refusal(opened, path, EngineUnavailable)
    assert f"a network file system ({networked})" in message
    assert "?single_process=true" in message
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("networked", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", ""], indirect=True)
@pytest.mark.usefixtures("networked")
async def test_a_local_file_system_is_not_refused(opened: Opened) -> None:
    await opened()


# A single process


@pytest.mark.usefixtures("networked", "impatient")
async def test_a_single_process_may_use_a_network_file_system(opened: Opened, path: Path) -> None:
    engine = await opened(f"sqlite:///{path}?single_process=true")
    await place(engine, a_run("a"))
    assert keys(await all_runs(engine)) == ["a"]
    assert await complete_one_by_one(engine) == ["a"]


@pytest.mark.usefixtures("impatient")
async def test_a_single_process_may_have_several_engines(opened: Opened, path: Path) -> None:
    url = f"sqlite:///{path}?single_process=true"
    engine, other = await opened(url), await opened(url, docket="other")
    await place(engine, a_run("a"))
    await place(other, a_run("b"))
    async with engine.twin() as twin:
        assert keys(await all_runs(twin)) == ["a"]


@pytest.mark.usefixtures("impatient")
async def test_nobody_else_can_use_the_file_of_a_single_process(opened: Opened, path: Path) -> None:
    await opened(f"sqlite:///{path}?single_process=true")
    with by_hand(path) as db:
        db.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute("SELECT * FROM dovetail_run")
