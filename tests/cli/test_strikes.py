"""`strike`, `restore` and `strikes ls`."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dovetail import Docket
from dovetail.cli.reading import value_in
from dovetail.errors import InvalidArgument
from tests.cli.commands import Commands
from tests.cli.tasks_for_commands import PATH, count, send


async def test_a_strike_is_laid_shown_and_restored(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("strikes", "ls")).out == "nothing is stricken\n"
    words = ("send", "to", "==", "ann")
    said = await dovetail("strike", *words, "--reason", "she left", "--owner", "bob", "--for", "2h")
    assert said.out == "Striking send to == 'ann'\n"
    (strike,) = await docket.strikes()
    assert (strike.function, strike.parameter, strike.value, strike.reason) == ("send", "to", "ann", "she left")
    line = (await dovetail("strikes", "ls")).lines[1]
    assert [part.strip() for part in line.split("  ") if part][:3] == ["send", "to == 'ann'", "bob"]
    assert line.rstrip().endswith("she left")
    (data,) = (await dovetail("strikes", "ls", "--json")).json
    assert (data["owner"], data["until"] is not None) == ("bob", True)
    assert (await dovetail("restore", *words)).out == "Restoring send to == 'ann'\n"
    assert await docket.strikes() == []


async def test_to_restore_what_is_not_stricken_says_what_is(docket: Docket, dovetail: Commands) -> None:
    words = ("restore", "send", "amount", "==", "int:7")
    said = await dovetail(*words, code=3)
    assert (said.out, said.err) == ("", "dovetail: there was no strike of send amount == 7; nothing is stricken\n")
    await docket.strike("send", "amount", "==", "7")
    said = await dovetail(*words, code=3)
    assert said.err == "dovetail: there was no strike of send amount == 7; in force: send amount == '7'\n"
    assert len(await docket.strikes()) == 1


async def test_a_preview_counts_and_strikes_nothing(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    await docket.add(send)("bob")
    await docket.add(count)(3)
    said = await dovetail("strike", "send", "to", "==", "ann", "--preview", "--tasks", PATH)
    assert said.out.startswith("1 waiting run would be kept from starting")
    assert await docket.strikes() == []


async def test_a_preview_owns_up_to_what_it_cannot_judge(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    await docket.add(send)(to="ann")
    await docket.add(send)(to="bob")
    words = ("strike", "send", "to", "==", "ann", "--preview")
    said = await dovetail(*words)
    assert said.out == "1 waiting run would be kept from starting by striking send to == 'ann'\n"
    assert said.err == (
        "dovetail: of 1 run that cannot be said: their arguments cannot be told apart here;"
        " name their tasks with --tasks module:member\n"
    )
    assert (await dovetail(*words, "--tasks", PATH)).err == ""
    assert (await dovetail("strike", "send", "--preview")).err == ""


async def test_strikes_are_told_as_data(docket: Docket, dovetail: Commands) -> None:
    await docket.add(send)("ann")
    words = ("send", "to", "==", "ann")
    told = {"function": "send", "parameter": "to", "operator": "==", "value": "'ann'"}
    assert (await dovetail("strike", *words, "--preview", "--json")).json == {**told, "hit": 0, "unjudged": 1}
    laid = (await dovetail("strike", *words, "--owner", "bob", "--json")).json
    assert laid == {**told, "reason": None, "owner": "bob", "until": None}
    assert (await dovetail("restore", *words, "--json")).json == {**told, "restored": True}
    assert (await dovetail("restore", *words, "--json", code=3)).json == {**told, "restored": False}


async def test_a_preview_makes_no_store(dovetail: Commands, tmp_path: Path) -> None:
    file = tmp_path / "nothing.db"
    said = await dovetail("strike", "send", "--preview", "--url", f"sqlite:///{file}", code=3)
    assert "there is no docket" in said.err
    assert not file.exists()


async def test_a_star_or_nothing_stands_for_any_task(docket: Docket, dovetail: Commands) -> None:
    assert (await dovetail("strike", "*", "to", "between", "json:[10,20]")).out == (
        "Striking (all tasks) to between [10, 20]\n"
    )
    assert (await dovetail("strike", "", "to", ">", "int:5")).out == "Striking (all tasks) to > 5\n"
    assert (await dovetail("strike", "send")).out == "Striking send\n"
    assert len(await docket.strikes()) == 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("*",), 2, "name a task, a parameter, or both"),
        (("", "*"), 2, "name a task, a parameter, or both"),
        (("send", "to"), 2, "say with which value of 'to'"),
        (("send", "to", "=="), 2, "json:null stands for None"),
        (("send", "to", "like", "a"), 1, "operator must be one of"),
        (("send", "to", ">", "int:five"), 1, "'five' is no int"),
        (("send", "cc", "==", "ann", "--tasks", PATH), 1, "the task has no such parameter"),
    ],
)
async def test_words_that_mean_nothing_are_refused(
    docket: Docket, dovetail: Commands, words: tuple[str, ...], code: int, told: str
) -> None:
    assert told in " ".join((await dovetail("strike", *words, code=code)).err.split())
    assert await docket.strikes() == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("hello", "hello"),
        ("https://example.com", "https://example.com"),
        ("str:int:5", "int:5"),
        ("int:42", 42),
        ("float:3.5", 3.5),
        ("bool:False", False),
        ("json:[1, 2]", [1, 2]),
        ("decimal.Decimal:3.14", Decimal("3.14")),
        ("datetime.timedelta:10", timedelta(seconds=10)),
        ("datetime.timedelta:5m", timedelta(minutes=5)),
        ("uuid.UUID:123e4567-e89b-12d3-a456-426614174000", UUID("123e4567-e89b-12d3-a456-426614174000")),
        ("os.system:true", "os.system:true"),
    ],
)
def test_a_value_says_its_type(text: str | None, value: Any) -> None:
    assert value_in(text) == value


@pytest.mark.parametrize("text", ["int:x", "bool:yes", "json:{", "uuid.UUID:5", "decimal.Decimal:x"])
def test_a_value_that_is_not_of_its_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no"):
        value_in(text)
