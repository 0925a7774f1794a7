"""The reference says what the code says: names, signatures, settings and errors."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

import pytest

import dovetail
from dovetail import codec, errors, instrumentation, model, sync, testing
from dovetail.clock import SYSTEM_CLOCK
from dovetail.engine import interface
from dovetail.observe import logs
from dovetail.tasks.flow import UNSET
from tests.docs.pages import BLOCKS, ROOT

REFERENCE = ROOT / "docs" / "reference"
API = REFERENCE / "api.md"
WHOLE = (
    "Docket", "Execution", "Worker", "Retry", "ExponentialRetry", "Timeout", "Perpetual", "Cron", "ConcurrencyLimit",
    "RateLimit", "Cooldown", "Debounce", "Progress", "Agenda", "Behavior",
    "Middleware", "Schedules", "Schedule",
)  # fmt: skip
"""Classes of which every public member is described."""
HOOKS = {name for name in vars(dovetail.Behavior) if not name.startswith("_")}
HOMES: dict[Path, tuple[ModuleType, ...]] = {
    API: (dovetail, codec, testing, instrumentation, logs, model),
    REFERENCE / "sync.md": (sync,),
}
"""Where the names of a page are to be found."""
KINDS = {"posonlyargs": 0, "args": 1, "vararg": 2, "kwonlyargs": 3, "kwarg": 4}

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def described(page: Path = API) -> dict[str, ast.ClassDef | Definition]:
    """What a page defines in its stubs, by name."""
    stubs = [statement for block in BLOCKS[page] if block.is_python for statement in ast.parse(block.body).body]
    return {each.name: each for each in stubs if isinstance(each, ast.ClassDef | Definition)}


def functions(page: Path) -> Iterator[tuple[str, Definition, Any]]:
    """Every function and method of a page, beside the real one."""
    for name, stub in described(page).items():
        real = next(getattr(home, name) for home in HOMES[page] if hasattr(home, name))
        if not isinstance(stub, ast.ClassDef):
            yield name, stub, real
            continue
        for member in stub.body:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                found = inspect.getattr_static(real, member.name)
                named = f"{page.stem}: {name}.{member.name}"
                yield named, member, found if is_told(found) else get_overloads(found)[0]


def is_told(found: Any) -> bool:
    """Whether a body says what a caller may pass. If it takes anything, the overloads say it."""
    if not inspect.isfunction(found) or not get_overloads(found):
        return True
    return not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(found).parameters.values())


FUNCTIONS = [each for page in HOMES for each in functions(page)]


def test_every_name_without_await_is_described() -> None:
    text = (REFERENCE / "sync.md").read_text(encoding="utf-8")
    assert [name for name in sync.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_every_public_name_is_described() -> None:
    text = API.read_text(encoding="utf-8")
    names = [*dovetail.__all__, *testing.__all__]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    ("page", "name"),
    [
        *((API, name) for name in WHOLE),
        *((REFERENCE / "sync.md", name) for name in ("Docket", "Execution", "Schedules")),
    ],
)
def test_every_public_member_is_described(page: Path, name: str) -> None:
    stub = described(page)[name]
    assert isinstance(stub, ast.ClassDef)
    told = {each.name for each in stub.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    real = getattr(HOMES[page][0], name)
    members = {
        member
        for kind in real.__mro__
        if kind is real or kind.__module__.startswith(f"{real.__module__}.")  # parts of it, and not what it builds on
        for member, value in vars(kind).items()
        if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod))
    }
    # The hooks of a behavior are described once, with their base.
    assert members - told - (set() if name == "Behavior" else HOOKS) == set()


@pytest.mark.parametrize("noun", [model.Run, model.AttemptError, model.Failure])
def test_every_field_of_a_record_is_described(noun: type) -> None:
    stub = described()[noun.__name__]
    told = [ast.unparse(each.target) for each in stub.body if isinstance(each, ast.AnnAssign)]
    assert told == list(noun.__annotations__)


@pytest.mark.parametrize(("stub", "real"), [each[1:] for each in FUNCTIONS], ids=[each[0] for each in FUNCTIONS])
def test_a_signature_is_the_real_one(stub: Definition, real: Any) -> None:
    if isinstance(real, property):
        assert [each.id for each in stub.decorator_list if isinstance(each, ast.Name)] == ["property"]
        return
    is_classmethod = isinstance(real, classmethod)
    parameters = inspect.signature(real.__func__ if is_classmethod else real).parameters.values()
    assert list(signature_of(stub)) == [
        (each.name, each.kind.value, each.default if each.default is not each.empty else None) for each in parameters
    ]
    assert is_classmethod == ("classmethod" in [getattr(each, "id", "") for each in stub.decorator_list])


def signature_of(stub: Definition) -> Iterator[tuple[str, int, Any]]:
    """Name, kind and default of each parameter."""
    arguments = stub.args
    positional = [
        *((each, "posonlyargs") for each in arguments.posonlyargs),
        *((each, "args") for each in arguments.args),
    ]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for (argument, kind), default in zip(positional, defaults, strict=True):
        yield argument.arg, KINDS[kind], value_of(default)
    if arguments.vararg:
        yield arguments.vararg.arg, KINDS["vararg"], None
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg, KINDS["kwonlyargs"], value_of(default)
    if arguments.kwarg:
        yield arguments.kwarg.arg, KINDS["kwarg"], None


GIVEN = {
    "timedelta": timedelta, "datetime": datetime, "UTC": UTC, "SYSTEM_CLOCK": SYSTEM_CLOCK, "UNSET": UNSET,
    "LogLevel": logs.LogLevel,
}  # fmt: skip


def value_of(default: ast.expr | None) -> Any:
    return default and eval(ast.unparse(default), GIVEN)


def test_every_setting_is_described() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bDOVETAIL_[A-Z_]+\b", sources)) == set(re.findall(r"\bDOVETAIL_[A-Z_]+\b", text))


def test_every_instrument_is_described() -> None:
    source = Path(instrumentation.__file__).read_text(encoding="utf-8")
    page = (ROOT / "docs" / "guides" / "observability.md").read_text(encoding="utf-8")
    instruments = re.findall(r'"((?:docket|dovetail)_[a-z_]+)"', source)
    assert sorted(re.findall(r"^\| `((?:docket|dovetail)_[a-z_]+)` \|", page, re.MULTILINE)) == sorted(instruments)


def test_every_logger_is_described() -> None:
    sources = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "src" / "dovetail").rglob("*.py"))
    page = (ROOT / "docs" / "guides" / "observability.md").read_text(encoding="utf-8")
    loggers = set(re.findall(r'getLogger\("(dovetail[a-z.]*)"\)', sources))
    assert len(loggers) > 5
    assert [name for name in sorted(loggers) if f"`{name}`" not in page] == []


def test_every_error_is_described_with_its_code() -> None:
    lines = (REFERENCE / "errors.md").read_text(encoding="utf-8").splitlines()
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DovetailError)
    ]
    told = [kind for kind in kinds if any(f"`{kind.__name__}`" in line and f"`{kind.code}`" in line for line in lines)]
    assert [kind.__name__ for kind in kinds if kind not in told] == []


def test_the_contract_is_the_docstring_of_the_interface() -> None:
    page = " ".join((ROOT / "docs" / "explanation" / "contract.md").read_text(encoding="utf-8").split())
    contract = inspect.cleandoc(interface.__doc__ or "").split("\n\n")[2:]
    assert [paragraph for paragraph in contract if " ".join(paragraph.split()) not in page] == []


def test_the_contract_page_shows_every_verb() -> None:
    page = (ROOT / "docs" / "explanation" / "contract.md").read_text(encoding="utf-8")
    verbs = [name for name, value in vars(interface.Engine).items() if not name.startswith("_") and callable(value)]
    assert [verb for verb in verbs if f"def {verb}(" not in page] == []


def pages_with_links() -> list[Path]:
    return list(BLOCKS)


@pytest.mark.parametrize("page", pages_with_links(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors_of(found), target


def anchors_of(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
