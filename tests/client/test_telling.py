"""The tasks that wait for a large set get its results some at a time, in order, all of them."""

import asyncio

from horolog import Producer, SentRecord

FIRST_MS = 1_479_144_272_509
MESSAGES = 1000

Waiting = list["asyncio.Future[SentRecord]"]


async def enqueued(producer: Producer, count: int = MESSAGES) -> Waiting:
    """The results to come of messages that go as one set."""
    return [
        await producer.enqueue("clicks", b"v", timestamp_ms=FIRST_MS + number)
        for number in range(count)
    ]


async def test_others_have_their_turns_meanwhile(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send("clicks", b"first")
        results = await enqueued(producer)
        told = []
        await results[0]
        while not results[-1].done():
            told.append(sum(result.done() for result in results))
            await asyncio.sleep(0)
        assert len(set(told)) > 3
        assert [result.result().offset for result in results] == list(range(1, MESSAGES + 1))
        assert results[-1].result().timestamp_ms == FIRST_MS + MESSAGES - 1


async def test_they_are_told_in_order(address: str) -> None:
    """Also of sets whose answers come while those of another are still being told."""
    async with Producer(address, batch_bytes=20_000) as producer:
        await producer.send("clicks", b"first")
        order: list[int] = []
        results = await enqueued(producer)
        for result in results:
            result.add_done_callback(lambda done: order.append(done.result().offset))
        await results[-1]
        await asyncio.sleep(0)
        assert order == list(range(1, MESSAGES + 1))


async def test_a_flush_ends_when_all_are_told(address: str) -> None:
    async with Producer(address, linger_ms=60_000) as producer:
        results = await enqueued(producer)
        await producer.flush()
        assert all(result.done() for result in results)


async def test_who_was_answered_is_told_though_the_producer_closes(address: str) -> None:
    producer = await Producer(address).__aenter__()
    await producer.send("clicks", b"first")
    results = await enqueued(producer)
    await results[0]
    assert not results[-1].done()
    await producer.close(flush=False)
    assert [result.result().offset for result in results] == list(range(1, MESSAGES + 1))


async def test_who_does_not_wait_any_more_is_passed_over(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send("clicks", b"first")
        results = await enqueued(producer)
        for result in results[1::2]:
            result.cancel()
        await producer.flush()
        assert [result.result().offset for result in results[::2]] == list(
            range(1, MESSAGES + 1, 2)
        )
