"""Collections: lists of functions that are named as module:member."""

import pytest

from dovetail.errors import InvalidArgument, InvalidType
from dovetail.tasks import load_collection, load_member
from tests import collections_of_tasks


def test_a_member_is_found_by_its_name():
    assert load_member("tests.collections_of_tasks:first") is collections_of_tasks.first


def test_a_collection_gives_its_functions():
    assert load_collection("tests.collections_of_tasks:tasks") == collections_of_tasks.tasks


def test_any_iterable_is_a_collection():
    assert load_collection("tests.collections_of_tasks:automatic") == [collections_of_tasks.ticking]


def test_a_collection_may_be_empty():
    assert load_collection("tests.collections_of_tasks:empty") == []


def test_the_standard_tasks_are_a_collection():
    assert [task.__name__ for task in load_collection("dovetail.tasks:standard_tasks")] == ["trace", "fail", "sleep"]


@pytest.mark.parametrize("path", ["", ":", "module", "module:", ":member", "tests.collections_of_tasks"])
def test_a_path_without_a_member_is_refused(path: str):
    with pytest.raises(InvalidArgument, match=r"package.module:member"):
        load_collection(path)


def test_a_member_that_does_not_exist_is_refused():
    with pytest.raises(InvalidArgument, match="no member 'nothing'"):
        load_collection("tests.collections_of_tasks:nothing")


def test_a_module_that_does_not_exist_is_an_import_error():
    with pytest.raises(ImportError, match="no_such_module"):
        load_collection("no_such_module:tasks")


def test_an_error_inside_the_module_is_not_mistaken_for_a_missing_member(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_collection.py").write_text("import os\nos.no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="no_such_thing"):
        load_collection("broken_collection:tasks")


def test_what_is_no_iterable_is_refused():
    with pytest.raises(InvalidType, match="must be an iterable"):
        load_collection("tests.collections_of_tasks:not_iterable")


def test_what_holds_something_else_than_functions_is_refused():
    with pytest.raises(InvalidType, match="holds 5"):
        load_collection("tests.collections_of_tasks:not_functions")
