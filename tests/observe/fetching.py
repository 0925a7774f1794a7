"""A client for what a worker serves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.waiting import PATIENCE


@dataclass(frozen=True, slots=True)
class Fetched:
    status: int
    kind: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(port: int | None, path: str = "/", accept: str = "*/*") -> Fetched:
    request = Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urlopen(request, timeout=PATIENCE) as response:
            return Fetched(response.status, response.headers["Content-Type"], response.read().decode())
    except HTTPError as error:
        with error:
            return Fetched(error.code, error.headers["Content-Type"], error.read().decode())


async def fetch(port: int | None, path: str = "/", accept: str = "*/*") -> Fetched:
    """The same, while the event loop goes on."""
    return await asyncio.to_thread(get, port, path, accept)
