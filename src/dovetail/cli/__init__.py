"""The `dovetail` command. Imports nothing heavy until a command needs it."""

from dovetail.cli.main import main

__all__ = ["main"]
