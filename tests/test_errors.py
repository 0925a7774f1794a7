"""One tree of errors: three questions, a stable code for each."""

import inspect

import pytest

from dovetail import errors
from dovetail.errors import DovetailError, EngineUnavailable, UsageError

ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, DovetailError)]

CODES = {
    "AlreadyOpen": "already_open",
    "ConflictingBehaviors": "conflicting_behaviors",
    "DovetailError": "dovetail",
    "EngineFull": "engine_full",
    "EngineUnavailable": "engine_unavailable",
    "ExecutionCancelled": "execution_cancelled",
    "ExecutionFailed": "execution_failed",
    "InvalidArgument": "invalid_argument",
    "InvalidType": "invalid_type",
    "InvalidURL": "invalid_url",
    "NotADatabase": "not_a_database",
    "NotOpen": "not_open",
    "OutcomeUnknown": "outcome_unknown",
    "PayloadError": "payload",
    "PayloadTooLarge": "payload_too_large",
    "ResultExpired": "result_expired",
    "SchemaOutdated": "schema_outdated",
    "StoreDamaged": "store_damaged",
    "UndecodablePayload": "undecodable_payload",
    "UnknownParent": "unknown_parent",
    "UnknownTask": "unknown_task",
    "UsageError": "usage",
}


def test_codes_never_change():
    codes = {error.__name__: error.code for error in ALL}
    assert {**codes, **CODES} == codes


def test_no_two_errors_share_a_code():
    assert len({error.code for error in ALL}) == len(ALL)


def test_every_error_is_a_dovetail_error():
    defined = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    assert [each for each in defined if not issubclass(each, DovetailError)] == []


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_shows_its_sentence_as_it_is(error: type[Exception]):
    assert str(error("the sentence's words")) == "the sentence's words"


def test_a_store_that_is_away_is_a_connection_error():
    assert issubclass(EngineUnavailable, ConnectionError)


def test_a_full_store_is_an_unavailable_one():
    assert issubclass(errors.EngineFull, EngineUnavailable)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InvalidArgument, ValueError),
        (errors.InvalidType, TypeError),
        (errors.InvalidURL, ValueError),
        (errors.AlreadyOpen, AssertionError),
        (errors.UnknownTask, KeyError),
        (errors.UnknownParent, LookupError),
        (errors.ConflictingBehaviors, ValueError),
        (errors.PayloadError, ValueError),
    ],
    ids=lambda error: error.__name__,
)
def test_a_usage_error_can_be_caught_as_the_built_in_type_people_expect(
    error: type[Exception], builtin: type[Exception]
):
    assert issubclass(error, UsageError)
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", [errors.SchemaOutdated, errors.NotADatabase, errors.PayloadTooLarge])
def test_a_wrong_store_or_payload_is_the_users_to_put_right(error: type[Exception]):
    assert issubclass(error, UsageError)
