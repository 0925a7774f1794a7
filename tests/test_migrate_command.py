"""`dovetail migrate`, on SQLite and on a server."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli.main import app
from dovetail.errors import EngineUnavailable, InvalidArgument
from dovetail.model import new_id
from tests.servers import redis
from tests.servers.postgres import PostgresServer


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["migrate", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.output.strip()


def test_a_plan_an_application_and_nothing_left_to_do_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    assert said("--url", url, "--plan") == "001_runs"
    assert not (tmp_path / "store.db").exists()
    assert said("--url", url) == f"{url} has version 1"
    assert said("--url", url, "--plan") == "nothing to do"
    assert "CREATE TABLE dovetail_run" in said("--url", url, "--sql")


def test_the_same_on_a_server() -> None:
    server = PostgresServer().create().start()
    try:
        url = server.url(schema=f"s{new_id().replace('-', '')}")
        assert said("--url", url, "--plan") == "001_tables"
        assert said("--url", url) == f"{url} has version 1"
        assert said("--url", url, "--plan") == "nothing to do"
        assert "CREATE OR REPLACE FUNCTION claim" in said("--url", url, "--sql")
        assert "_worker" in said("--url", url, "--roles")
    finally:
        server.remove()


def test_a_version_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no schema version 99"):
        said("--url", f"sqlite:///{tmp_path / 'store.db'}", "--to", "99")


def test_a_store_without_a_schema_has_nothing_to_bring_up() -> None:
    with redis.server(appendonly="yes") as server:
        assert said("--url", server.url) == f"{server.url} has version 1"
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        said("--url", server.url)
