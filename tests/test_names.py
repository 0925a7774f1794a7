"""The public names, which are loaded when they are first used."""

import subprocess
import sys

import pytest

import dovetail
from dovetail import testing


def loaded_by(program: str) -> set[str]:
    """The modules of ours that a fresh interpreter has loaded after a program."""
    shown = "import sys; print(*[name for name in sys.modules if name.startswith(('dovetail', 'msgspec', 'sqlite3'))])"
    ran = subprocess.run([sys.executable, "-c", f"{program}\n{shown}"], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", [dovetail, testing])
def test_every_public_name_can_be_had(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]
    assert [name for name in names if not hasattr(module, name)] == []
    assert set(names) - {"__version__"} == set(module._HOMES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", [dovetail, testing])
def test_a_name_that_there_is_not_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        module.Nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(module, "_nothing")


def test_names_can_be_listed() -> None:
    assert {"Docket", "__version__"} <= set(dir(dovetail))


def test_modules_can_be_had_as_attributes() -> None:
    assert "dovetail.errors" in loaded_by("import dovetail; dovetail.errors.UsageError")


def test_the_pytest_plugin_brings_next_to_nothing_along() -> None:
    assert loaded_by("import dovetail.testing.plugin, dovetail.testing.fixtures") == {
        "dovetail",
        "dovetail.testing",
        "dovetail.testing.fixtures",
        "dovetail.testing.plugin",
    }
