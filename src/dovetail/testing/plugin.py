"""The pytest plugin. Every run of pytest loads it where Dovetail is installed, so it brings next to nothing along."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    # Not before all plugins are loaded: how an async fixture is declared depends on which of them runs coroutines.
    from dovetail.testing import fixtures

    config.pluginmanager.register(fixtures, "dovetail-fixtures")
