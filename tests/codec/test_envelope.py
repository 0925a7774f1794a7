"""The envelope says what is inside, and its signature that nobody changed it."""

from __future__ import annotations

import copy
import pickle

import pytest

from dovetail import Docket, Worker
from dovetail.codec import CallTypes, Keyring, SigningKey, codec_named
from dovetail.errors import InvalidArgument, UndecodablePayload
from dovetail.model import NewRun, RunQuery, State, new_id

TYPES = CallTypes.unknown("work")
OLD, NEW = SigningKey("old", b"o" * 32), SigningKey("new", "n" * 32)
CALL = (("a", 1), {"b": (2,)})

unsigned = codec_named("json")
signed = codec_named("json", signing=Keyring(NEW, [OLD]))


def test_what_is_signed_is_read_with_the_key():
    data = signed.dump_call(TYPES, *CALL)
    assert data.startswith(b"1js:new:")
    assert signed.load_call(TYPES, data) == CALL
    assert signed.load_result(TYPES, signed.dump_result(TYPES, (1,))) == (1,)


def test_an_old_key_is_believed_while_it_hangs_on_the_ring():
    data = codec_named("json", signing=Keyring(OLD)).dump_call(TYPES, *CALL)
    assert signed.load_call(TYPES, data) == CALL
    with pytest.raises(UndecodablePayload, match="a key that is not on this keyring"):
        codec_named("json", signing=Keyring(NEW)).load_call(TYPES, data)


def test_another_secret_under_the_same_id_is_not_believed():
    data = codec_named("json", signing=Keyring(SigningKey("new", b"x" * 32))).dump_call(TYPES, *CALL)
    with pytest.raises(UndecodablePayload, match="its signature is wrong"):
        signed.load_call(TYPES, data)


def test_unsigned_payloads_are_refused_unless_allowed():
    data = unsigned.dump_call(TYPES, *CALL)
    with pytest.raises(UndecodablePayload, match="not signed, and this docket requires signatures"):
        signed.load_call(TYPES, data)
    lenient = codec_named("json", signing=Keyring(NEW, require_signature=False))
    assert lenient.load_call(TYPES, data) == CALL


def test_a_signed_payload_is_not_read_without_keys():
    with pytest.raises(UndecodablePayload, match="no keys to check it with"):
        unsigned.load_call(TYPES, signed.dump_call(TYPES, *CALL))


def test_a_signed_result_is_no_signed_call():
    for name in ("json", "pickle"):
        codec = codec_named(name, signing=Keyring(NEW))
        result = codec.dump_result(TYPES, ((), {}))
        with pytest.raises(UndecodablePayload, match="its signature is wrong"):
            codec.load_call(TYPES, result)


def test_any_change_to_a_signed_payload_is_found_out():
    data = signed.dump_call(TYPES, *CALL)
    for index in range(len(data)):
        for flip in (0x01, 0x20, 0x80):
            changed = data[:index] + bytes([data[index] ^ flip]) + data[index + 1 :]
            with pytest.raises(UndecodablePayload):
                signed.load_call(TYPES, changed)


@pytest.mark.parametrize("name", ["json", "pickle"])
def test_a_signed_call_is_no_call_of_another_task(name: str):
    codec = codec_named(name, signing=Keyring(NEW))
    data = codec.dump_call(TYPES, *CALL, "greet")
    assert codec.load_call(TYPES, data, "greet") == CALL
    with pytest.raises(UndecodablePayload, match="its signature is wrong"):
        codec.load_call(TYPES, data, "destroy")


async def test_whoever_can_write_to_the_store_cannot_make_one_task_of_another(url: str):
    destroyed: list[str] = []

    async def greet(name: str) -> None: ...

    async def destroy(name: str) -> None:
        destroyed.append(name)

    async with Docket(url=url, signing=Keyring(NEW)) as docket:
        docket.register(destroy)
        await docket.add(greet, key="honest")("ann")
        (honest,) = await docket.engine.find(RunQuery(keys=("honest",)))
        await docket.engine.schedule([NewRun(new_id(), "forged", "destroy", honest.payload)])
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        runs = {run.key: run.state for run in await docket.engine.find(RunQuery())}
    assert runs == {"honest": State.COMPLETED, "forged": State.FAILED}
    assert destroyed == []


def test_a_signature_is_bound_to_codec_and_key():
    pickled = codec_named("pickle", signing=Keyring(NEW, [OLD]))
    data = signed.dump_call(TYPES, *CALL)
    for changed in (data.replace(b"1js:", b"1ps:"), data.replace(b":new:", b":old:")):
        with pytest.raises(UndecodablePayload, match="its signature is wrong"):
            pickled.load_call(TYPES, changed)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a Dovetail payload"),
        (b"{}", "not a Dovetail payload"),
        (b"1j", "not a Dovetail payload"),
        (b"1js:new:short:{}", "not a Dovetail payload"),
        (b"2j:{}", "newer version"),
        (b"1z:{}", "codec that is not known here"),
        (b"1p:N.", 'codec="pickle"'),
    ],
    ids=repr,
)
def test_an_envelope_that_cannot_be_opened_says_why(data: bytes, reason: str):
    with pytest.raises(UndecodablePayload, match=f"a call of 'work' cannot be read: .*{reason}"):
        unsigned.load_call(TYPES, data)


def test_an_unknown_codec_is_refused():
    with pytest.raises(InvalidArgument, match='codec=\'yaml\': choose "json" or "pickle"'):
        codec_named("yaml")


@pytest.mark.parametrize(("id", "secret"), [("", "s" * 32), ("a:b", "s" * 32), ("a\n", "s" * 32), ("a", "short")])
def test_a_key_that_cannot_be_is_refused(id: str, secret: str):
    with pytest.raises(InvalidArgument, match="signing key"):
        SigningKey(id, secret)


def test_a_secret_is_never_shown_nor_pickled():
    key = SigningKey("k", "hunter2 hunter2 hunter2")
    for shown in (repr(key), str(key), f"{key}", repr(Keyring(key)), repr([key])):
        assert "hunter2" not in shown
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leak(key)
