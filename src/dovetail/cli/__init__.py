"""The `dovetail` command. Imports nothing heavy until a command needs it."""

from dovetail.cli.main import app, main

__all__ = ["app", "main"]
