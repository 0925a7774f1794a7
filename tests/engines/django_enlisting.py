"""Run by a test in a process of its own: Django's connection, committed and rolled back."""

import sys
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from dovetail import Docket
from dovetail.errors import InvalidArgument


async def noop(number: int) -> None: ...


def main(url: str, name: str) -> None:
    parts = conninfo_to_dict(url)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts["port"],
            }
        }
    )  # fmt: skip
    django.setup()
    from django.db import connection, connections, transaction

    @async_to_sync
    async def add(key: str, through: object) -> None:
        async with Docket(name, url) as docket:
            await docket.add(noop, key=key, connection=through)(1)

    atomic: Any = transaction.atomic
    with atomic():
        add("committed", connection)
    try:
        with atomic():
            add("rolled back", connections["default"])
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    try:
        add("alone", connection)
    except InvalidArgument:
        return
    raise AssertionError("a connection without a transaction was taken")


main(*sys.argv[1:])
