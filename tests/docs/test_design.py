"""The design page draws the house as it is: the parts, and the floors they are on."""

import re
import tomllib
from pathlib import Path

import dovetail
from tests.docs.pages import ROOT

PARTS = re.search(r"```\nsrc/dovetail/\n(.*?)```", (ROOT / "docs/explanation/design.md").read_text(), re.DOTALL)


def floors_of_the_page() -> list[set[str]]:
    assert PARTS is not None
    floors = [set(re.findall(r"^  (\w+)(?:\.py|/) ", floor, re.MULTILINE)) for floor in PARTS[1].split("\n\n")]
    return [floor - {"__init__"} for floor in floors if floor != {"__init__"}]


def test_the_floors_are_those_that_imports_are_held_to() -> None:
    contract, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [{name for name in re.split(r"[\s|:]+", layer) if name[0] != "("} for layer in contract["layers"]]
    assert floors_of_the_page() == layers


def test_every_part_is_on_the_page() -> None:
    here = Path(dovetail.__file__).parent
    parts = {each.stem for each in here.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()}
    assert set.union(*floors_of_the_page()) == {part for part in parts if not part.startswith("__")}
