"""The driver, behind a seam as small as we can make it: connect, ask, listen, close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.engines.postgres.failing import translated, unavailable
from dovetail.engines.postgres.location import Location
from dovetail.errors import UsageError

try:
    import psycopg
    from psycopg.adapt import AdaptersMap
    from psycopg.rows import tuple_row
    from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
except ImportError as error:
    raise UsageError("PostgreSQL needs a driver: pip install 'dovetail-tasks[postgres]'") from error

Connection = psycopg.AsyncConnection[Any]
BINARY = psycopg.pq.Format.BINARY
CONNECT_TIMEOUT = 10
"""Seconds that a server may take to answer a new connection."""
PATIENCE = 60.0
"""Seconds that an answer may take before the connection is given up."""

_SETTINGS = {
    "application_name": "dovetail",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class Asking(psycopg.AsyncRawCursor[Any]):
    """A cursor that is the same whatever a task has done to the connection that it writes through."""

    def __init__(self, connection: Connection, adapters: AdaptersMap) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = adapters
        self.format = BINARY


class Wire:
    """One connection. Whatever goes wrong in a way that nobody expects ends it."""

    def __init__(self, connection: Connection, location: Location) -> None:
        self._connection = connection
        self._location = location
        self._adapters = AdaptersMap(connection.adapters)
        self._asking = asyncio.Lock()
        self._heard: Callable[[str], None] | None = None
        self._lost: Callable[[], None] | None = None
        self._watched: int | None = None

    @classmethod
    async def connect(cls, location: Location, kind: type[Connection] = psycopg.AsyncConnection) -> Wire:
        try:
            connection = await kind.connect(
                location.url,
                autocommit=True,
                prepare_threshold=None if location.pooled else 0,
                **_settings(location.url),
            )
        except (psycopg.Error, OSError) as error:
            raise unavailable(error, location) from error
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        return cls(connection, location)

    @property
    def connection(self) -> Connection:
        """The driver's own, for one who writes through it beside us."""
        return self._connection

    @property
    def is_open(self) -> bool:
        return not self._connection.closed

    async def ask(self, statement: str, values: Sequence[Any] = (), *, patience: float = PATIENCE) -> list[Any]:
        """The rows that a statement brings. An error of the driver's comes out as one of ours."""
        async with self._asking:
            self._stop_reading()
            try:
                async with asyncio.timeout(patience):
                    cursor = Asking(self._connection, self._adapters)
                    await cursor.execute(statement.encode(), values)
                    return await cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                raise translated(error, self._location) from error
            except TimeoutError as error:
                await self.close()
                raise unavailable(error, self._location, sent=True) from error
            except BaseException:
                # Cancelled halfway, or something nobody expects: what is left on the line belongs to no one.
                await self.close()
                raise
            finally:
                self._read_on()

    async def script(self, statements: str, *, patience: float = PATIENCE) -> None:
        """Run several statements that take nothing and bring nothing."""
        async with self._asking:
            self._stop_reading()
            try:
                async with asyncio.timeout(patience):
                    # A cursor of our own: whoever writes beside us may have changed what the connection makes.
                    await psycopg.AsyncCursor(self._connection, row_factory=tuple_row).execute(
                        statements.encode(), prepare=False
                    )
            except psycopg.Error as error:
                raise translated(error, self._location) from error
            except TimeoutError as error:
                await self.close()
                raise unavailable(error, self._location, sent=True) from error
            except BaseException:
                await self.close()
                raise
            finally:
                self._read_on()

    async def close(self) -> None:
        self._stop_reading()
        self._heard = None
        await self._connection.close()

    # Listening: between statements the socket is ours to watch.

    def listen(self, heard: Callable[[str], None], lost: Callable[[], None]) -> None:
        """Call back with the payload of every notification, and once if the connection is gone."""
        self._heard, self._lost = heard, lost
        self._connection.add_notify_handler(lambda notice: heard(notice.payload))
        self._read_on()

    def _read_on(self) -> None:
        if self._heard is not None and self.is_open:
            self._watched = self._connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched, self._read)

    def _stop_reading(self) -> None:
        # By the number it had: libpq closes a socket that it finds broken, and the number may soon be a stranger's.
        if self._watched is not None:
            watched, self._watched = self._watched, None
            asyncio.get_running_loop().remove_reader(watched)

    def _read(self) -> None:
        line = self._connection.pgconn
        try:
            line.consume_input()
            while (notice := line.notifies()) is not None:
                if self._heard is not None:
                    self._heard(notice.extra.decode())
        except psycopg.Error:
            self._stop_reading()
            if self._lost is not None:
                self._lost()


def _settings(url: str) -> dict[str, Any]:
    """Our settings of a connection, unless the URL has its own."""
    return {name: value for name, value in _SETTINGS.items() if f"{name}=" not in url}
