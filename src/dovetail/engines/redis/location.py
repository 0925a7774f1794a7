"""Where a docket lives: the URL read, and its names made fit for keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dovetail.engine.registry import redacted
from dovetail.errors import InvalidType, InvalidURL

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

PORT, SENTINEL_PORT = 6379, 26379
MOST_DATABASES = 2**31 - 1
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS = ("prefix", "replicas", "db", "sentinel_username", "sentinel_password", *_TLS)
_OF_POOLS = frozenset({
    "client_name", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "max_connections",
    "protocol", "retry_on_timeout", "socket_connect_timeout", "socket_keepalive", "socket_timeout", "timeout",
})  # fmt: skip
"""How redis-py's pools are tuned in a URL. Here there is no pool to tune, so such a URL means the same without them."""


@dataclass(frozen=True, slots=True)
class Location:
    """One server, the sentinels that know it, or some nodes of a cluster."""

    shown: str  # the URL without its password
    kind: str = "server"  # or "sentinel", "cluster"
    hosts: tuple[tuple[str, int], ...] = ()
    path: str | None = None  # of a Unix socket
    service: str = ""  # the name of the master, for sentinels
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    prefix: str = ""
    replicas: int = 1  # that have to confirm, if durability asks for it
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    provider: CredentialProvider | None = field(default=None, repr=False)  # in place of a name and a password

    @property
    def rights(self) -> dict[str, Any]:
        """Who is asking, as the driver is told it. A provider is asked anew for each connection."""
        if self.provider is not None:
            return {"credential_provider": self.provider}
        return {"username": self.username, "password": self.password}

    def signed_in_with(self, provider: Any) -> Location:
        if not hasattr(provider, "get_credentials"):
            raise InvalidType(
                "credential_provider must be a CredentialProvider of redis-py, with a method get_credentials(), not"
                f" {type(provider).__name__}"
            )
        if self.username is not None or self.password is not None:
            raise InvalidURL(
                f"url {self.shown!r} holds credentials, and so does credential_provider: give one of them, not both"
            )
        return replace(self, provider=provider)

    def root(self, docket: str) -> str:
        """What all keys of a docket begin with. The braces keep them in one slot of a cluster."""
        return f"{encoded(self.prefix)}{{dovetail:{encoded(docket)}}}:"


def encoded(name: str) -> str:
    """A name of which nothing can mean anything to the server."""
    return "".join(
        chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode("utf-8", "surrogatepass")
    )


def locate(url: str) -> Location:
    """`redis://host:port/db`, `unix:///path`, `redis+cluster://host,host`, `redis+sentinel://host,host/service/db`."""
    shown = redacted(url)
    parts = _split(shown, url)
    try:
        options = _options(shown, parts.query)
        kind, tls = _kind(parts.scheme)
        if kind == "unix":
            return _socket(shown, parts, options)
        hosts = _hosts(shown, parts.netloc.rpartition("@")[2], SENTINEL_PORT if kind == "sentinel" else PORT)
    except ValueError as error:
        # Not from the error: it may quote what is not to be shown.
        raise error if isinstance(error, InvalidURL) else InvalidURL(f"url {shown!r} cannot be read") from None
    service, db = _path(shown, kind, unquote(parts.path).strip("/"))
    return Location(
        shown, kind, hosts, None, service, _database(shown, options.get("db", db)), *_credentials(parts), tls,
        options.get("prefix", ""), _whole(shown, "replicas", options.get("replicas", "1")), _rest(shown, options),
    )  # fmt: skip


def _split(shown: str, url: str) -> SplitResult:
    """The parts of the URL, unless a password has torn them apart."""
    parts = None
    try:
        parts = urlsplit(url)
        names = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        is_whole = not parts.fragment and not ("@" in parts.query and names - set(_OPTIONS))
        if not parts.scheme.startswith("unix"):
            is_whole = is_whole and "@" not in parts.path
        elif parts.netloc:
            is_whole = is_whole and parts.netloc.endswith("@")
        is_whole = is_whole and not set("[]") & set(parts.netloc.rpartition("@")[0])
    except ValueError:
        is_whole = False
    if not is_whole or parts is None:
        raise InvalidURL(
            f"url {shown!r} cannot be read; in a user name or password write special characters percent-encoded, such"
            " as %23 for '#', %2F for '/', %3F for '?', %5B for '[', %40 for '@'"
        )
    return parts


def _kind(scheme: str) -> tuple[str, bool]:
    base, _, kind = scheme.lower().partition("+")
    return ("unix" if base == "unix" else kind or "server"), base in ("rediss", "valkeys")


def _options(shown: str, query: str) -> dict[str, str]:
    options = {name: value for name, value in parse_qsl(query, keep_blank_values=True) if name not in _OF_POOLS}
    for name in options:
        if name not in _OPTIONS:
            raise InvalidURL(f"url {shown!r}: unknown option {name!r}; known: {', '.join(sorted(_OPTIONS))}")
    return options


def _rest(shown: str, options: dict[str, str]) -> tuple[tuple[str, Any], ...]:
    rest: dict[str, Any] = {
        name: value for name, value in options.items() if name in _TLS or name.startswith("sentinel")
    }
    if "ssl_check_hostname" in rest:
        rest["ssl_check_hostname"] = _truth(shown, "ssl_check_hostname", rest["ssl_check_hostname"])
    if rest.get("ssl_cert_reqs", "required") not in ("required", "optional", "none"):
        raise InvalidURL(f"url {shown!r}: ssl_cert_reqs must be required, optional or none")
    return tuple(sorted(rest.items()))


def _socket(shown: str, parts: Any, options: dict[str, str]) -> Location:
    path = unquote(parts.path)
    if not path.strip("/"):
        raise InvalidURL(f"url {shown!r}: name the socket, as in 'unix:///var/run/redis.sock?db=0'")
    return Location(
        shown, "server", (), path, "", _database(shown, options.get("db", "0")), *_credentials(parts), False,
        options.get("prefix", ""), _whole(shown, "replicas", options.get("replicas", "1")),
    )  # fmt: skip


def _credentials(parts: Any) -> tuple[str | None, str | None]:
    username = unquote(parts.username) if parts.username else None
    return username, None if parts.password is None else unquote(parts.password)


def _hosts(shown: str, text: str, port: int) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for each in (text or "localhost").split(","):
        match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]*)(?::(\d+))?", each.strip())
        if match is None or (match[2] and not 0 < int(match[2]) < 65536):
            raise InvalidURL(f"url {shown!r}: {each!r} is no host; write 'host' or 'host:port'")
        hosts.append((match[1].strip("[]") or "localhost", int(match[2] or port)))
    return tuple(hosts)


def _path(shown: str, kind: str, path: str) -> tuple[str, str]:
    """The name of the service, for sentinels, and the number of the database."""
    if kind == "cluster":
        if path not in ("", "0"):
            raise InvalidURL(f"url {shown!r}: a cluster has only database 0; leave {path!r} out")
        return "", "0"
    if kind != "sentinel":
        return "", path or "0"
    service, _, db = path.partition("/")
    if not service:
        raise InvalidURL(f"url {shown!r}: name the service, as in 'redis+sentinel://host:26379/mymaster/0'")
    return service, db or "0"


def _database(shown: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidURL(f"url {shown!r}: the database is a number such as 0, not {text!r}")
    if int(text) > MOST_DATABASES:
        raise InvalidURL(f"url {shown!r}: no server has a database {text}; name one such as 0")
    return int(text)


def _whole(shown: str, name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidURL(f"url {shown!r}: {name} must be a whole number of 1 or more, not {text!r}")
    return int(text)


def _truth(shown: str, name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidURL(f"url {shown!r}: {name} must be true or false, not {text!r}")
    return text == "true"
