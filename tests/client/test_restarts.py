"""Producer and consumer at work while their broker is killed and started again."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from horolog import ConnectionFailed, Consumer, Producer
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.program import ServerProcess, serving

MESSAGES_BETWEEN = 200


@pytest.fixture
def port() -> int:
    return free_port()


class Restarted:
    """A broker at one address, killed and started again."""

    def __init__(self, data_dir: Path, port: int, stack: ExitStack) -> None:
        self._data_dir = data_dir
        self._stack = stack
        self.address = f"127.0.0.1:{port}"
        self._server = self._start()

    def _start(self) -> ServerProcess:
        return self._stack.enter_context(
            serving(self._data_dir, "--listen", self.address, command="serve")
        )

    def kill(self) -> None:
        self._server.stop(signal.SIGKILL)

    async def kill_and_start(self) -> None:
        await asyncio.to_thread(self.kill)
        self._server = await asyncio.to_thread(self._start)


@pytest.fixture
def restarted(tmp_path: Path, port: int) -> Iterator[Restarted]:
    with ExitStack() as stack:
        yield Restarted(tmp_path / "data", port, stack)


def without_repeats(values: list[Any]) -> list[Any]:
    """Each value where it came first."""
    return list(dict.fromkeys(values))


@pytest.mark.parametrize("acks", ["all", 1])
async def test_kills_lose_nothing_acknowledged_and_keep_the_order(
    restarted: Restarted, acks: Any
) -> None:
    acknowledged: dict[int, bytes] = {}
    progress = asyncio.Condition()

    async def produce(producer: Producer, count: int) -> None:
        async def answered(waiter: asyncio.Future[Any], value: bytes) -> None:
            acknowledged[(await waiter).offset] = value
            async with progress:
                progress.notify_all()

        async with asyncio.TaskGroup() as answers:
            for number in range(count):
                value = b"%06d" % number
                waiter = await producer.enqueue("t", value)
                answers.create_task(answered(waiter, value))
                if number % 10 == 0:
                    await asyncio.sleep(0.001)  # so that the kills fall among the messages

    async def kill(times: int) -> None:
        for turn in range(1, times + 1):
            async with progress:
                while len(acknowledged) < turn * MESSAGES_BETWEEN:
                    await progress.wait()
            await restarted.kill_and_start()

    count = 5 * MESSAGES_BETWEEN
    async with Producer(restarted.address, acks=acks, batch_bytes=2_000) as producer:
        await producer.partition_for("t", None)  # so that the topic is there
        consumer = Consumer(restarted.address, max_wait_ms=100)
        consumer.assign("t", 0, offset=0)
        async with consumer, asyncio.TaskGroup() as group:
            group.create_task(produce(producer, count))
            group.create_task(kill(2))
            read: list[Any] = []
            while len(without_repeats(read)) < count:
                read += [record.value for record in await consumer.fetch()]
    expected = [b"%06d" % number for number in range(count)]
    assert without_repeats(read) == expected
    assert len(acknowledged) == count
    async with Consumer(restarted.address, max_wait_ms=0) as consumer:
        consumer.assign("t", 0, offset=0)
        stored: dict[int, bytes | None] = {}
        while batch := await consumer.fetch():
            stored |= {record.offset: record.value for record in batch}
    assert without_repeats(list(stored.values())) == expected
    assert {offset: stored[offset] for offset in acknowledged} == acknowledged


async def test_a_stop_in_order_is_waited_out(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    places: dict[str, Any] = {"http_listen": "off", "listen": address}
    async with contextlib.AsyncExitStack() as stack:
        async with running_broker(tmp_path, **places):
            producer = await stack.enter_async_context(Producer(address))
            consumer = await stack.enter_async_context(Consumer(address, max_wait_ms=30_000))
            consumer.assign("t", 0, offset=0)
            await producer.send("t", b"before")
            assert (await anext(consumer)).value == b"before"
            reading = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
        sending = asyncio.ensure_future(producer.send("t", b"after"))
        questions = asyncio.ensure_future(consumer.lag())
        await asyncio.sleep(0)
        async with running_broker(tmp_path, **places):
            assert (await sending).offset == 1
            assert (await reading).value == b"after"
            assert (await questions)["t", 0].messages in (0, 1)


async def test_a_reader_gives_up_in_time(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off") as broker,
        Consumer(broker.addresses.native, retry_timeout_ms=100) as consumer,
    ):
        consumer.assign("t", 0, offset=0)
        await broker.stop()
        with pytest.raises(ConnectionFailed, match="given up after retry_timeout_ms=100"):
            await anext(consumer)
