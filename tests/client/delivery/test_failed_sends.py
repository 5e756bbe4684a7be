"""Sends that failed, and messages that were never answered, do not go unnoticed."""

import asyncio
import gc
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import horolog
from horolog import ClientClosed, InvalidTimestamp, Producer, SendsFailed, blocking
from horolog.client.produce.failed_sends import ERRORS_MAX, FailedSends
from horolog.protocol.api.topics.metadata import METADATA
from horolog.testing.program import ServerProcess, serving

from ..fakes import Log, refusal

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
                read.result(60)

    with pytest.raises(SendsFailed, match=r"^2 sends failed, first with InvalidTimestamp"):
        program()
    with pytest.raises(KeyError), blocking.Producer(server.native) as producer:  # noqa: PT012
        producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
        raise KeyError
    with blocking.Producer(server.native) as producer:
        waiting = producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
        assert isinstance(waiting.exception(60), InvalidTimestamp)


async def test_sends_whose_wait_was_cancelled_count(address: str, strict: str) -> None:
    """Cancelling the wait does not withdraw the message."""

    async def program() -> None:
        async with Producer(address, linger_ms=3_600_000) as producer:
            await producer.partition_for(strict, None)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await producer.send(strict, b"", timestamp_ms=OLD_MS)
            (await producer.enqueue(strict, b"", timestamp_ms=OLD_MS)).cancel()
            (await producer.enqueue("lenient", b"", timestamp_ms=OLD_MS)).cancel()

    with pytest.raises(SendsFailed, match=r"^2 sends failed, first with InvalidTimestamp: ") as end:
        await program()
    assert end.value.count == 2


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_cancelled_batch_counts_if_its_set_on_the_way_is_refused(
    scripted_broker: Any, refuses: bool
) -> None:
    async def hold(head: Any, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return log.metadata()
        arrived.set()
        await go.wait()
        return refusal(0, InvalidTimestamp) if refuses else log.append(body)

    async def program() -> None:
        async with Producer(broker.address, batch_bytes=200) as producer:
            batch = asyncio.ensure_future(producer.send_batch("t", [b"%d" % n for n in range(20)]))
            await arrived.wait()
            batch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await batch
            go.set()

    log, arrived, go = Log(), asyncio.Event(), asyncio.Event()
    async with scripted_broker(hold) as broker:
        if refuses:
            with pytest.raises(SendsFailed, match=r"^1 send failed, first with InvalidTimestamp: "):
                await program()
        else:
            await program()
            assert log.stored[0] == [b"%d" % n for n in range(len(log.stored[0]))]


def test_a_blocking_send_cannot_be_cancelled_and_counts(server: ServerProcess) -> None:
    with blocking.Admin(server.native) as admin, suppress(horolog.TopicAlreadyExists):
        admin.create_topic("strict", settings=STRICT)

    def program() -> None:
        with blocking.Producer(server.native, linger_ms=3_600_000) as producer:
            producer.partition_for("strict", None)
            sending = producer.enqueue("strict", b"", timestamp_ms=OLD_MS)
            assert not sending.cancel()
            with pytest.raises(TimeoutError):
                sending.result(0.001)
            with pytest.raises(TimeoutError):  # Ctrl-C cancels the wait in the same way
                producer._run(lambda: asyncio.wait_for(cancelled(producer), 0.001))

    async def cancelled(producer: blocking.Producer) -> None:
        await producer._client.send("strict", b"", timestamp_ms=OLD_MS)

    with pytest.raises(SendsFailed, match=r"^2 sends failed, first with InvalidTimestamp: "):
        program()


@pytest.mark.parametrize("reads", ["first 10,000", "all but the first", "none", "drops all"])
async def test_thousands_of_failures_are_counted_one_by_one(reads: str) -> None:
    """Nothing is reported to the event loop ("Future exception was never retrieved")."""
    count = 12_000
    loop = asyncio.get_running_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    failed = FailedSends()
    futures: list[asyncio.Future[Any]] = []
    for number in range(count):
        future = loop.create_future()
        future.set_exception(ValueError(f"{number % 7}"))
        failed.add((future,), ValueError(f"{number % 7}"))
        if reads != "drops all":
            futures.append(future)
        del future
    assert len(failed._held) <= max(64, len(futures))
    read = {"first 10,000": range(10_000), "all but the first": range(1, count)}.get(reads)
    for number in read or ():
        futures[number].exception()
    found = failed.error()
    assert found is not None
    assert found.count == count - len(read or ())
    assert str(found.failures[0]) == ("4" if reads == "first 10,000" else "0")
    assert len(found.failures) == (1 if reads == "all but the first" else 7)
    assert failed.error() is None
    futures.clear()
    gc.collect()
    assert not reported


@given(st.lists(st.tuples(st.sampled_from(["fail", "read", "drop", "cancel"]), st.integers(0, 99))))
def test_the_count_is_that_of_a_plain_list(steps: list[tuple[str, int]]) -> None:
    loop = asyncio.new_event_loop()
    failed = FailedSends()
    held: dict[int, asyncio.Future[Any]] = {}
    unread: list[int] = []
    for number, (step, chosen) in enumerate(steps):
        future: asyncio.Future[Any] = loop.create_future()
        match step[0]:
            case "f":
                held[number] = future
                unread.append(number)
                future.set_exception(ValueError(f"{number}"))
                failed.add((future,), ValueError(f"{number}"))
            case "c":
                unread.append(number)
                future.cancel()
                failed.add((future,), ValueError(f"{number}"))
            case "r" if held:
                row = sorted(held)[chosen % len(held)]
                held.pop(row).exception()
                unread.remove(row)
            case "d" if held:
                del held[sorted(held)[chosen % len(held)]]
        del future
    found = failed.error()
    loop.close()
    assert (0 if found is None else found.count) == len(unread)
    assert [str(error) for error in (found.failures if found else ())] == list(map(str, unread))


def test_different_errors_are_kept_in_bounded_memory() -> None:
    failed = FailedSends()
    for number in range(2 * ERRORS_MAX):
        failed.add_unreadable(ValueError(number))
    found = failed.error()
    assert found is not None
    assert found.count == 2 * ERRORS_MAX
    assert len(found.failures) == ERRORS_MAX


@pytest.mark.parametrize("how", ["error of the block", "dropped"])
async def test_failures_that_nothing_raises_are_one_line_of_the_log(
    address: str, strict: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def program() -> None:
        producer = Producer(address)
        if how == "dropped":
            for _ in range(3):
                await producer.enqueue(strict, b"", timestamp_ms=OLD_MS)
            await producer.close()
            return
        with pytest.raises(KeyError):  # noqa: PT012
            async with producer:
                for _ in range(3):
                    await producer.enqueue(strict, b"", timestamp_ms=OLD_MS)
                raise KeyError

    await program()
    gc.collect()
    (line,) = told_of(address, caplog)
    assert line.startswith(f"<Producer at {address}>: 3 sends failed, first with InvalidTimestamp")
    assert not reported


def told_of(address: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of this test's producers; the collector may meet others meanwhile."""
    messages = [one.getMessage() for one in caplog.records if one.name == "horolog"]
    return [message for message in messages if f"<Producer at {address}>" in message]


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
    assert told_of(broker.address, caplog) == [f"{text}: they may be lost"]
    told = [(one.category, str(one.message)) for one in warned]
    assert [one for one in told if broker.address in one[1]] == [(ResourceWarning, text)]


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
    assert not [one for one in warned if f"Producer at {address}" in str(one.message)]
