"""Sends that failed, and messages that were never answered, do not go unnoticed."""

import asyncio
import gc
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import horolog
from horolog import ClientClosed, InvalidTimestamp, Producer, SendsFailed, blocking
from horolog.client.produce.failed_sends import KEPT_MAX, FailedSends
from horolog.testing.program import ServerProcess, serving

STRICT = {"max.message.time.difference.ms": 1000}
OLD_MS = 1_400_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("failed") / "data") as started:
        yield started


@pytest.fixture
async def strict(address: str) -> str:
    """A topic that refuses `OLD_MS`."""
    async with horolog.Admin(address) as admin:
        await admin.create_topic("strict", settings=STRICT)
    return "strict"


async def test_leaving_tells_how_many_sends_failed_and_why(address: str, strict: str) -> None:
    async def program() -> None:
        async with Producer(address, linger_ms=1) as producer:
            for n in range(3):
                await producer.enqueue(strict, b"%d" % n, timestamp_ms=OLD_MS)
                await producer.enqueue("lenient", b"%d" % n, timestamp_ms=OLD_MS)

    with pytest.raises(SendsFailed, match=r"^3 sends failed, first with InvalidTimestamp: ") as end:
        await program()
    assert end.value.count == 3
    assert {type(error) for error in end.value.failures} == {InvalidTimestamp}
    assert end.value.__cause__ is end.value.failures[0]
    assert not end.value.retriable


@pytest.mark.parametrize("reads", ["await", "exception", "gather", "callback", "send"])
async def test_errors_that_the_program_got_do_not_count(
    address: str, strict: str, reads: str
) -> None:
    async with Producer(address) as producer:
        if reads == "send":
            with pytest.raises(InvalidTimestamp):
                await producer.send(strict, b"", timestamp_ms=OLD_MS)
            return
        waiter = await producer.enqueue(strict, b"", timestamp_ms=OLD_MS)
        match reads:
            case "await":
                with pytest.raises(InvalidTimestamp):
                    await waiter
            case "exception":
                await producer.flush()
                assert isinstance(waiter.exception(), InvalidTimestamp)
            case "gather":
                await asyncio.gather(waiter, return_exceptions=True)
            case "callback":
                waiter.add_done_callback(lambda waiter: waiter.exception())


async def test_sends_that_other_tasks_wait_for_do_not_count(address: str, strict: str) -> None:
    async with Producer(address, linger_ms=3_600_000) as producer:
        sends = [
            asyncio.create_task(producer.send(strict, b"", timestamp_ms=OLD_MS, partition=0))
            for _ in range(300)
        ]
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(producer.send(strict, b"", timestamp_ms=OLD_MS))
        await asyncio.sleep(0)
        cancelled.cancel()
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert {type(result) for result in results} == {InvalidTimestamp}


async def test_an_error_of_the_body_stays(address: str, strict: str) -> None:
    with pytest.raises(KeyError):  # noqa: PT012
        async with Producer(address) as producer:
            waiter = await producer.enqueue(strict, b"", timestamp_ms=OLD_MS)
            raise KeyError
    assert isinstance(waiter.exception(), InvalidTimestamp)


def test_the_same_without_await(server: ServerProcess) -> None:
    with blocking.Admin(server.native) as admin:
        admin.create_topic("strict", settings=STRICT)

    def program() -> None:
        with blocking.Producer(server.native) as producer:
            read = producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
            for _ in range(2):
                producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
            with pytest.raises(InvalidTimestamp):
                read.result(5)

    with pytest.raises(SendsFailed, match=r"^2 sends failed, first with InvalidTimestamp"):
        program()
    with pytest.raises(KeyError), blocking.Producer(server.native) as producer:  # noqa: PT012
        producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
        raise KeyError
    with blocking.Producer(server.native) as producer:
        waiting = producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
        assert isinstance(waiting.exception(5), InvalidTimestamp)


def test_failures_are_kept_in_bounded_memory() -> None:
    """Those that were not kept count as read as long as the kept ones are."""
    read: set[int] = set()
    failed = FailedSends[int](lambda number: number not in read)
    failed.add(range(3 * KEPT_MAX))
    assert len(failed._kept) == KEPT_MAX
    found = failed.error(lambda number: KeyError(number % 7))
    assert found is not None
    assert found.count == 3 * KEPT_MAX
    read.update(range(3 * KEPT_MAX))
    assert failed.error(KeyError) is None
    failed.add(range(4 * KEPT_MAX, 5 * KEPT_MAX + 1))
    last = failed.error(KeyError)
    assert last is not None
    assert len(failed._kept) <= KEPT_MAX


def unanswered(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "horolog"]


@pytest.mark.parametrize("how", ["flush=False", "deadline", "cancelled"])
async def test_closing_with_unanswered_messages_warns_of_their_number(
    scripted_broker: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def silent(*_: Any) -> None:
        """Answers nothing."""

    caplog.set_level(logging.WARNING, "horolog")
    async with scripted_broker(silent) as broker:
        producer = Producer(broker.address)
        waiters = [await producer.enqueue("t", b"v", partition=0) for _ in range(1234)]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            match how:
                case "flush=False":
                    await producer.close(flush=False)
                case "deadline":
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await producer.close()
                case "cancelled":
                    with pytest.raises(asyncio.CancelledError):
                        async with producer:
                            raise asyncio.CancelledError
        await producer.close()
    for waiter in waiters:
        assert isinstance(waiter.exception(), ClientClosed)
    text = f"<Producer at {broker.address}> was closed with 1,234 messages unanswered"
    assert unanswered(caplog) == [f"{text}: they may be lost"]
    assert [str(one.message) for one in warned if one.category is ResourceWarning] == [text]


async def test_a_producer_that_is_dropped_warns_of_what_is_unanswered(scripted_broker: Any) -> None:
    async def silent(*_: Any) -> None:
        """Answers nothing."""

    async with scripted_broker(silent) as broker:
        producer = Producer(broker.address)
        waiters = [await producer.enqueue("t", b"v", partition=0) for _ in range(2)]
        await asyncio.sleep(0)
        text = re.escape(f"<Producer at {broker.address}> was never closed, with 2 messages")
        with pytest.warns(ResourceWarning, match=text):
            del producer
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "_send_all" in repr(task):
                task.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)


def test_a_program_that_ends_is_warned() -> None:
    async def program() -> Producer:
        producer = Producer("127.0.0.1:1", linger_ms=3_600_000)
        (await producer.enqueue("a", b"v", partition=0)).cancel()
        return producer

    producer = asyncio.run(program())
    with pytest.warns(ResourceWarning, match="was never closed, with 1 message unanswered"):
        del producer


async def test_a_producer_without_unanswered_messages_warns_of_nothing(address: str) -> None:
    producer = Producer(address)
    await producer.send("a", b"v")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del producer
        gc.collect()  # also of the connection, of which asyncio warns
    assert not [one for one in warned if "Producer" in str(one.message)]
