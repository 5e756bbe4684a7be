"""Whatever goes wrong, a program catches one base, and sees whether trying again may help."""

import asyncio
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import horolog
from horolog.cli.errors_reference import NOT_SENT, WITHOUT_CODE
from horolog.client.cluster.link import NoLeader
from horolog.client.produce.outbox import TooManyMessages
from horolog.client.results import SentBatch
from horolog.protocol.api.framing import ForeignProtocol
from horolog.protocol.api.kafka.compact import Wrong as CompactWrong
from horolog.protocol.api.native.faults import NativeFault
from horolog.protocol.errors import ERRORS
from horolog.protocol.records.kernel.terms import Unreadable
from horolog.protocol.records.messages.downconversion import DamagedSlice
from horolog.testing.broker import BrokerThread

INSIDE = {
    *(CompactWrong, DamagedSlice, ForeignProtocol),
    *(NoLeader, TooManyMessages, Unreadable, NativeFault),
}
"""Raised and caught within the library; no caller meets them."""

RETRIABLE = {
    "ClientClosed": False,
    "ConnectionFailed": True,
    "DataLoss": False,
    "InvalidLine": False,
    "NoJava": False,
    "NoMatplotlib": False,
    "OptionError": False,
    "NoRecording": False,
    "NoZone": False,
    "OtherUnit": False,
    "PartlySent": False,
    "ProtocolError": False,
    "SecurityError": False,
    "SendsFailed": False,
    "TimeError": False,
    "TlsFailed": False,
}
"""Of the errors without a code."""


def modules_of_a_program() -> Iterator[str]:
    """What a program or a Spark job that uses Horolog runs of it."""
    yield from ("horolog.times", "horolog.blocking")
    for part in ("client", "protocol", "pipeline"):
        package = importlib.import_module(f"horolog.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"horolog.{part}."):
            yield found.name


def errors_of_a_program() -> set[type[BaseException]]:
    found: set[type[BaseException]] = set()
    for name in modules_of_a_program():
        try:
            module = importlib.import_module(name)
        except ImportError:  # the optional packages of the pipeline are not there
            continue
        found |= {
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, BaseException)
            if value.__module__ == name and not value.__name__.startswith("_")
        }
    return found - INSIDE


def test_every_error_of_a_program_has_the_base() -> None:
    errors = errors_of_a_program()
    assert {"ConnectionFailed", "OptionError"} <= {error.__name__ for error in errors}
    assert [error for error in errors if not issubclass(error, horolog.HorologError)] == []


def test_every_error_without_a_code_says_whether_to_try_again() -> None:
    found = {
        error.__name__: error.retriable
        for error in errors_of_a_program()
        if issubclass(error, horolog.HorologError)
        and not issubclass(error, horolog.CodedError)
        and error is not horolog.HorologError
    }
    assert found == RETRIABLE


@pytest.mark.parametrize("code", [2, 3, 6, 7, 19, 20])
def test_codes_that_may_be_tried_again_p2c(code: int) -> None:
    assert ERRORS[code].retriable


@pytest.mark.parametrize("code", [1, 10, 18, 21, 32, 42, 43])
def test_codes_that_stay_p2c(code: int) -> None:
    assert not ERRORS[code].retriable


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (horolog.ConnectionFailed, ConnectionError),
        (horolog.ConnectionFailed, OSError),
        (horolog.ClientClosed, RuntimeError),
        (horolog.PartlySent, RuntimeError),
        (horolog.SendsFailed, RuntimeError),
        (horolog.TimeError, ValueError),
        (horolog.SecurityError, ValueError),
        (horolog.TlsFailed, ConnectionError),
    ],
)
def test_the_usual_class_of_python_catches_it_too(
    error: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(error, base)


@pytest.mark.parametrize(
    "error",
    [
        horolog.ConnectionFailed("127.0.0.1:1: no answer"),
        horolog.ClientClosed("it is closed"),
        horolog.PartlySent("2 were appended", SentBatch("t", ())),
        horolog.ProtocolError("no msgpack"),
        horolog.TimeError("no zone"),
        horolog.MessageTooLarge("1 MiB"),
    ],
)
def test_text_and_class_survive_another_process(error: horolog.HorologError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.message) == (str(error), error.message)
    assert vars(again) == vars(error)


def test_every_error_without_a_code_is_public() -> None:
    for module, errors in WITHOUT_CODE.items():
        public = importlib.import_module(module)
        assert [error for error in errors if getattr(public, error.__name__) is not error] == []
    listed = {error.__name__ for errors in WITHOUT_CODE.values() for error in errors}
    # They end only a command, become another error, or are TimeErrors that commands tell apart.
    inner = {"InvalidLine", "NoMatplotlib", "NoZone", "OtherUnit"}
    assert listed == RETRIABLE.keys() - inner


def test_an_error_without_a_text_says_what_its_class_means() -> None:
    assert "cannot be reached" in horolog.ConnectionFailed().message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        "kafka://127.0.0.1:1",
        "no-such-host.invalid:7070",
        f"{'u' * 63}.invalid:7070",
        f"{'ü' * 60}.invalid:7070",
    ],
)
async def test_an_address_at_which_nobody_is(address: str) -> None:
    with pytest.raises(horolog.HorologError) as caught:
        async with horolog.Admin(address, request_timeout_ms=5_000):
            pass
    assert isinstance(caught.value, horolog.ConnectionFailed)
    assert caught.value.retriable


@pytest.mark.parametrize("address", ["", "host", "a..b:1", f"{'u' * 64}:1", "a\x00b:1", "a\x1bb:1"])
@pytest.mark.parametrize("scheme", ["", "kafka://"])
async def test_an_address_that_is_none(scheme: str, address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        horolog.Admin(f"{scheme}{address}")


async def test_who_answers_is_no_broker() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x00\x00\x00\x04\x93\x00\x00\x00")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        with pytest.raises(horolog.HorologError) as caught:
            async with horolog.Admin(f"{host}:{port}"):
                pass
    assert isinstance(caught.value, ConnectionError)


NUMBERS = [2**31, 2**40, 2**63, 2**70]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kafka", [False, True])
async def test_numbers_that_no_request_can_carry(tmp_path: Path, kafka: bool, number: int) -> None:
    with BrokerThread(tmp_path, {"kafka.listen": "127.0.0.1:0"}) as broker:
        address = f"kafka://{broker.kafka_address}" if kafka else broker.address
        async with (
            horolog.Admin(address) as admin,
            horolog.Producer(address, delivery_timeout_ms=0) as producer,
        ):
            await admin.create_topic("t")
            for call in (
                admin.list_offsets("t", number, [horolog.LATEST]),
                admin.create_topic("u", partitions=number),
                admin.create_partitions("t", number),
                admin.delete_records("t", 0, number),
                admin.delete_records("t", number, 0),
                admin.commit_position("n", "t", number, 0),
                admin.commit_position("n", "t", 0, number),
                admin.position("n", "t", number),
                producer.send("t", b"v", partition=number),
            ):
                try:
                    await call
                except (horolog.HorologError, ValueError):
                    continue  # a refusal, or what Python says of a wrong argument
            assert await admin.list_topics()  # the connection is as good as before


def test_errors_are_marked_that_no_broker_of_ours_sends() -> None:
    root = Path(horolog.__file__).parent
    folders = ("protocol", "storage", "replication", "server")
    files = {file for folder in folders for file in (root / folder).rglob("*.py")}
    files.remove(root / "protocol" / "errors.py")
    words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    assert {one for one in ERRORS.values() if one.__name__ not in words} == set(NOT_SENT)
