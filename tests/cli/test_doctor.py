"""`dovetail doctor` as a user has it."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from dovetail import Docket
from dovetail.cli.main import app
from dovetail.model import NewRun, WorkerInfo, new_id
from tests.cli.commands import run
from tests.servers import redis
from tests.servers.postgres import PostgresServer
from tests.stores import Stores

LEASE = timedelta(seconds=30)


async def doctor(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["doctor", *arguments])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


async def with_work(url: str, name: str = "docket") -> None:
    async with Docket(name, url) as docket:
        await docket.engine.schedule([NewRun(new_id(), "a", "greet\x1b[31m", queue="mail")])
        await docket.engine.heartbeat(WorkerInfo("ann", id="1", concurrency=1), [], lease=LEASE)


async def test_a_healthy_docket(url: str) -> None:
    async with Docket(url=url) as docket:
        await docket.engine.heartbeat(WorkerInfo("ann", id="1", concurrency=1), [], lease=LEASE)
    done = await doctor("--url", url)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "sqlite.integrity" in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


async def test_a_problem_is_said_first_and_the_exit_code_is_3(url: str) -> None:
    await with_work(url)
    done = await doctor("--url", url)
    assert done.exit_code == 3
    assert done.stdout.splitlines()[2].split() == ["problem", "tasks.unknown"]
    assert "greet\\x1b[31m" in done.stdout
    assert "\x1b" not in done.stdout


async def test_as_json(url: str) -> None:
    await with_work(url)
    told = json.loads((await doctor("--url", url, "--json")).stdout)
    assert (told["docket"], told["healthy"], told["repairs"]) == ("docket", False, [])
    first = told["findings"][0]
    assert (first["check"], first["severity"]) == ("tasks.unknown", "problem")
    assert set(first) == {"check", "severity", "found", "advice"}


async def test_a_missing_schema_is_said_and_not_made(url: str, tmp_path: Path) -> None:
    done = await doctor("--url", url, "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.exit_code, finding["check"]) == (3, "schema")
    assert "dovetail migrate" in finding["advice"]
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_schema_on_a_server(stores: Stores) -> None:
    with stores.place("postgres") as url:
        name = f"s{new_id().replace('-', '')}"
        assert (
            json.loads((await doctor("--url", f"{url}?schema={name}", "--json")).stdout)["findings"][0]["check"]
            == "schema"
        )
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchone()
        assert found is None


async def test_a_schema_of_a_newer_version(stores: Stores) -> None:
    with stores.place("postgres") as url:
        there = f"{url}?schema=s{new_id().replace('-', '')}"
        async with Docket(url=there):
            pass
        with psycopg.connect(url) as connection:
            connection.execute(f"UPDATE {there.rpartition('=')[2]}.schema_version SET version = 99".encode())
        done = await doctor("--url", there)
    assert done.exit_code == 3
    assert "made by a newer Dovetail" in " ".join(done.stdout.split())


@pytest.mark.parametrize("nowhere", ["redis://u:secret@127.0.0.1:1", "postgresql://u:secret@127.0.0.1:1/x"])
async def test_no_server(nowhere: str) -> None:
    done = await doctor("--url", nowhere, "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.exit_code, finding["check"], finding["severity"]) == (4, "store", "problem")
    assert "secret" not in done.stdout + done.stderr


async def test_a_wrong_password() -> None:
    with redis.server("valkey", password="right") as server:
        done = await doctor("--url", server.url.replace("//", "//:wrong@"))
    assert done.exit_code == 4
    assert "refuses the user name or password" in " ".join(done.stdout.split())


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are notes, and no database" * 10)
    done = await doctor("--url", f"sqlite:///{tmp_path / 'notes.txt'}")
    assert done.exit_code == 3
    assert "is not an SQLite database" in " ".join(done.stdout.split())


async def test_a_url_that_cannot_be_is_wrong_usage() -> None:
    command = [sys.executable, "-m", "dovetail", "doctor", "--url", "nonsense://x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no engine is installed" in done.stderr


async def test_a_repair_says_what_it_did_and_then_has_nothing_to_do() -> None:
    with redis.server("valkey", appendonly="yes", appendfsync="always", maxmemory="100mb") as server:
        await with_work(server.url)
        with server.client() as client:
            client.delete("{dovetail:docket}:ready:mail")
        assert "redis.indexes" in (await doctor("--url", server.url)).stdout
        told = json.loads((await doctor("--url", server.url, "--repair", "--json")).stdout)
        assert told["repairs"] == [{"what": "records put back into their indexes", "count": 1}]
        assert {each["check"]: each["severity"] for each in told["findings"]}["redis.indexes"] == "ok"
        assert json.loads((await doctor("--url", server.url, "--repair", "--json")).stdout)["repairs"] == []


async def test_a_server_that_only_reads_is_said() -> None:
    server = PostgresServer().create().start()
    try:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE watcher LOGIN")
            connection.execute("ALTER ROLE watcher SET default_transaction_read_only = on")
        done = await doctor("--url", server.url(user="watcher"))
    finally:
        server.remove()
    assert done.exit_code == 4
    assert "set to read-only transactions" in " ".join(done.stdout.split())


async def test_a_server_that_evicts_is_looked_at_though_no_docket_is_opened_there() -> None:
    with redis.server("valkey", **{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        done = await doctor("--url", server.url, "--json")
        as_process = await doctor("--url", server.url, "--json", "--durability", "process")
    assert done.exit_code == 3
    found = {each["check"]: each["severity"] for each in json.loads(done.stdout)["findings"]}
    assert (found["redis.eviction"], found["redis.persistence"]) == ("problem", "problem")
    less = {each["check"]: each["severity"] for each in json.loads(as_process.stdout)["findings"]}
    assert (less["redis.eviction"], less["redis.persistence"]) == ("warning", "note")


@pytest.mark.parametrize("place", ["sqlite:///nothing.db", "redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/nothing"])
def test_a_durability_that_is_none_is_refused_in_the_same_words_for_every_store(place: str) -> None:
    said = run(("doctor", "--durability", "nope", "--url", place))
    assert said.code == 2
    assert "must be one of durable, process, replicated, not 'nope'" in " ".join(said.err.split())
