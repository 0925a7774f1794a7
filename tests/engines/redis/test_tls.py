"""TLS, which the proxy speaks for the server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.errors import EngineUnavailable
from dovetail.model import EventKind, Topic
from tests.engines.redis.engines import a_run, completed, engine, take
from tests.servers.proxy import proxy
from tests.servers.redis import Server

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl, which makes the certificate, is missing")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "certificate.pem"


@pytest.fixture
async def port(valkey: Server, certificate: Path) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    async with proxy("127.0.0.1", valkey.port, tls=context) as running:
        yield running.port


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_a_docket_by_tls(port: int, certificate: Path, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{port}?ssl_ca_certs={certificate}"
    async with engine(url) as opened, opened.watch(Topic(EventKind.WORK)) as events:
        await opened.schedule([a_run(payload=b"x" * 300_000)])
        await anext(events)
        await opened.finish(completed(*await take(opened)))
        assert await opened.residue() == {}


@pytest.mark.parametrize("query", ["ssl_ca_certs={}", "ssl_cert_reqs=none&ssl_check_hostname=false"])
async def test_the_client_that_is_lent_goes_the_same_way(port: int, certificate: Path, query: str) -> None:
    async with engine(f"rediss://127.0.0.1:{port}?{query.format(certificate)}") as opened, opened.client() as client:
        assert await client.ping()


async def test_a_certificate_that_nobody_vouches_for_is_refused(port: int) -> None:
    with pytest.raises(EngineUnavailable, match="certificate"):
        async with engine(f"rediss://127.0.0.1:{port}"):
            pass


async def test_one_may_do_without_a_certificate(port: int) -> None:
    async with engine(f"rediss://127.0.0.1:{port}?ssl_cert_reqs=none&ssl_check_hostname=false") as opened:
        assert await opened.residue() == {}
