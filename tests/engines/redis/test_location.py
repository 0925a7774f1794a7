"""URLs: what they mean, and one clear error for each that is wrong."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from dovetail import Docket
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engine.registry import engine_for
from dovetail.engines.redis import routing
from dovetail.engines.redis.location import Location, encoded, locate
from dovetail.engines.redis.routing import server_of
from dovetail.errors import DovetailError, EngineUnavailable, InvalidArgument, InvalidURL
from tests.engines.redis.engines import a_run, completed, engine, take
from tests.servers import redis as servers
from tests.servers.ports import free_port
from tests.waiting import PATIENCE

SCHEMES = [
    "redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "valkey", "valkeys",
    "valkey+cluster", "valkeys+cluster", "valkey+sentinel", "valkeys+sentinel",
]  # fmt: skip


def about(location: Location) -> tuple[object, ...]:
    return location.kind, location.hosts, location.db, location.username, location.password, location.tls


@pytest.mark.parametrize(
    ("url", "meaning"),
    [
        ("redis://", ("server", (("localhost", 6379),), 0, None, None, False)),
        ("redis://host", ("server", (("host", 6379),), 0, None, None, False)),
        ("redis://:secret@host:1234/5", ("server", (("host", 1234),), 5, None, "secret", False)),
        ("redis://ann:p%40ss@host", ("server", (("host", 6379),), 0, "ann", "p@ss", False)),
        ("redis://host?db=3", ("server", (("host", 6379),), 3, None, None, False)),
        ("redis://[::1]:7000/1", ("server", (("::1", 7000),), 1, None, None, False)),
        ("rediss://host", ("server", (("host", 6379),), 0, None, None, True)),
        ("valkey://host/2", ("server", (("host", 6379),), 2, None, None, False)),
        ("valkeys://host", ("server", (("host", 6379),), 0, None, None, True)),
        ("redis+cluster://a:1,b,c:3", ("cluster", (("a", 1), ("b", 6379), ("c", 3)), 0, None, None, False)),
        (
            "rediss+sentinel://ann:pw@a,b:7/name/4",
            ("sentinel", (("a", 26379), ("b", 7)), 4, "ann", "pw", True),
        ),
    ],
)
def test_what_a_url_means(url: str, meaning: tuple[object, ...]) -> None:
    assert about(locate(url)) == meaning


def test_a_socket_is_a_path() -> None:
    location = locate("unix://ann:pw@/var/run/redis.sock?db=3&prefix=mine")
    assert (location.path, location.db, location.prefix) == ("/var/run/redis.sock", 3, "mine")
    assert (location.username, location.password) == ("ann", "pw")


def test_sentinels_name_a_service() -> None:
    assert locate("redis+sentinel://a/mymaster").service == "mymaster"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_an_engine(scheme: str) -> None:
    url = f"{scheme}://host/service" if "sentinel" in scheme else f"{scheme}://host"
    engine_for(url, "docket", clock=SYSTEM_CLOCK, durability="durable")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host/five", "database is a number"),
        ("redis://host/-1", "database is a number"),
        ("redis://host/99999999999999999999", "no server has a database"),
        ("redis://host:port", "is no host"),
        ("redis://host:99999", "is no host"),
        ("redis://host?colour=red", "unknown option 'colour'"),
        ("redis://host?replicas=0", "replicas must be"),
        ("rediss://host?ssl_cert_reqs=maybe", "ssl_cert_reqs must be"),
        ("rediss://host?ssl_check_hostname=maybe", "ssl_check_hostname must be"),
        ("redis+cluster://host/3", "only database 0"),
        ("redis+sentinel://host", "name the service"),
        ("unix://", "name the socket"),
    ],
)
def test_a_wrong_url_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidURL, match=says):
        Docket("docket", url)


def test_what_tunes_the_pools_of_another_client_means_nothing() -> None:
    tuned = locate("redis://host/3?max_connections=50&health_check_interval=30&socket_timeout=10&prefix=mine")
    assert (tuned.hosts, tuned.db, tuned.prefix, tuned.options) == ((("host", 6379),), 3, "mine", ())


def test_an_error_does_not_show_the_password() -> None:
    with pytest.raises(InvalidURL) as refused:
        locate("redis://ann:secret@host/five")
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(locate("redis://ann:secret@host"))


@pytest.mark.parametrize("scheme", ["redis", "rediss+cluster", "redis+sentinel", "unix"])
@pytest.mark.parametrize("character", ["#", "/", "?", "[", "]", "/@", "#?", "[:", "?x="])
def test_a_password_that_is_not_encoded_is_neither_read_nor_shown(scheme: str, character: str) -> None:
    place = "/run/redis.sock" if scheme == "unix" else "host:6379/0"
    url = f"{scheme}://ann:secret{character}hidden@{place}"
    with pytest.raises(InvalidURL, match="percent-encoded") as refused:
        Docket("docket", url)
    shown = "".join(traceback.format_exception(refused.value))
    assert "secret" not in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert "secret" not in shown.replace(url, "")


def test_no_password_of_sentinels_is_shown() -> None:
    location = locate("redis+sentinel://host/service?sentinel_password=secret&prefix=a@b")
    assert "secret" not in repr(location)
    assert dict(location.options)["sentinel_password"] == "secret"
    assert location.prefix == "a@b"


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'process', 'durable' or 'replicated'"):
        engine("redis://host", durability="eternal")


@pytest.mark.parametrize("name", ["{}", "a:b", "*?[x]", "\x00\n", "é", "\ud800", "%7B"])
def test_an_encoded_name_means_nothing(name: str) -> None:
    text = encoded(name)
    assert text.isascii()
    assert not set(text) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-%")


def test_different_names_stay_different() -> None:
    names = ["{", "}", "%7B", "%", "{}", "a", "A", "\x00", " ", ""]
    assert len({encoded(name) for name in names}) == len(names)


# Opening


async def refused(url: str) -> str:
    """What is said when a docket cannot be opened there, and how soon."""
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(DovetailError) as error:
            async with engine(url):
                pass
    return str(error.value)


async def test_nobody_there() -> None:
    port = free_port()
    assert "cannot be reached" in await refused(f"redis://127.0.0.1:{port}")


async def test_a_host_that_does_not_exist() -> None:
    said = await refused("redis://no-such-host.invalid")
    assert "no-such-host.invalid" in said
    assert "cannot be reached" in said or "did not answer" in said


async def test_a_database_that_does_not_exist(valkey: servers.Server) -> None:
    with pytest.raises(InvalidURL, match="no such database"):
        async with engine(f"redis://127.0.0.1:{valkey.port}/9999"):
            pass


async def test_no_password_and_a_wrong_one() -> None:
    with servers.server(password="secret") as server:
        assert "password" in await refused(server.url)
        said = await refused(f"redis://:wrong-one@127.0.0.1:{server.port}")
        assert "password" in said
        assert "wrong-one" not in said
        async with engine(f"redis://:secret@127.0.0.1:{server.port}"):
            pass


async def test_a_user_with_rights_of_its_own() -> None:
    with servers.server() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", ">pw", "~{dovetail:*", "&{dovetail:*", "+@all")
            client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~other*", "+@all", "-@scripting")
        async with engine(f"redis://ann:pw@127.0.0.1:{server.port}") as opened:
            await opened.schedule([a_run()])
            await opened.finish(completed(*await take(opened)))
            assert await opened.residue() == {}
        async with engine(f"redis://bob:pw@127.0.0.1:{server.port}") as opened:
            with pytest.raises(EngineUnavailable, match="may not do this"):
                await opened.schedule([a_run()])


async def test_a_cluster_url_to_a_single_server(valkey: servers.Server) -> None:
    assert "is not a cluster" in await refused(f"redis+cluster://127.0.0.1:{valkey.port}")


async def test_a_plain_url_to_a_cluster(valkey_cluster: servers.Cluster) -> None:
    assert "redis+cluster://" in await refused(valkey_cluster.masters[0].url)


async def test_a_plain_url_to_a_sentinel(watched_by_sentinels: servers.Watched) -> None:
    assert "redis+sentinel://" in await refused(watched_by_sentinels.sentinels[0].url)


async def test_a_service_that_the_sentinels_do_not_know(watched_by_sentinels: servers.Watched) -> None:
    url = watched_by_sentinels.url.replace("/dovetail/0", "/nobody")
    assert "'nobody'" in await refused(url)


async def test_sentinels_that_are_not_there() -> None:
    assert "no sentinel answers" in await refused(f"redis+sentinel://127.0.0.1:{free_port()}/name")


async def test_something_that_is_no_redis() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert f"127.0.0.1:{port}" in await refused(f"redis://127.0.0.1:{port}")


def test_how_a_server_says_what_it_is() -> None:
    old = server_of({"redis_version": "6.0.16", "redis_mode": "standalone"})
    assert (old.name, old.version, old.knows_flags) == ("Redis", (6, 0, 16), False)
    new = server_of({"redis_version": "7.2.4", "valkey_version": "9.1.2", "server_mode": "cluster"})
    assert (new.name, new.version, new.mode, new.knows_flags) == ("Valkey", (9, 1, 2), "cluster", True)


async def test_a_unix_socket() -> None:
    with servers.server(unixsocket="redis.sock") as server:
        async with engine(f"unix://{server.folder}/redis.sock") as opened:
            await opened.schedule([a_run()])
            await opened.finish(completed(*await take(opened)))
            assert await opened.residue() == {}


async def test_an_engine_that_is_not_open_says_so() -> None:
    with pytest.raises(EngineUnavailable, match="not open"):
        await engine("redis://host").survey()


async def test_a_server_that_is_too_old(redis_6_2: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "OLDEST_REDIS", (7, 0))
    said = await refused(redis_6_2.url)
    assert "runs Redis 6.2" in said
    assert "upgrade the server" in said
