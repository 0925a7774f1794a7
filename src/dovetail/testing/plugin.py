"""The pytest plugin. Every run of pytest loads it where Dovetail is installed, so it brings next to nothing along."""

from __future__ import annotations

import pytest

# Before anybody imports it: the assertions of the conformance suite are to explain themselves.
pytest.register_assert_rewrite("dovetail.testing.conformance")


def pytest_configure(config: pytest.Config) -> None:
    # Not before all plugins are loaded: how an async fixture is declared depends on which of them runs coroutines.
    from dovetail.testing import fixtures

    config.pluginmanager.register(fixtures, "dovetail-fixtures")
