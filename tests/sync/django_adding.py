"""Run by a test in a process of its own: Django's connection, given to a sync docket in the thread of the view."""

import sys

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from dovetail.errors import InvalidArgument
from dovetail.sync import Docket


async def noop(number: int) -> None: ...


def database(url: str) -> dict[str, object]:
    if url.startswith("sqlite:///"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    parts = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts["port"],
    }  # fmt: skip


def main(url: str) -> None:
    settings.configure(DATABASES={"default": database(url)})
    django.setup()
    from django.db import connection, connections
    from django.db.transaction import Atomic

    docket = Docket("tests", url)
    docket.open()
    with Atomic(using=None, savepoint=True, durable=False):
        docket.add(noop, key="committed", connection=connection)(1)
    try:
        with Atomic(using=None, savepoint=True, durable=False):
            docket.add(noop, key="rolled back", connection=connections["default"])(1)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    try:
        docket.add(noop, key="alone", connection=connection)(1)
    except InvalidArgument:
        return
    raise AssertionError("a connection without a transaction was taken")


main(*sys.argv[1:])
