"""Clients that begin while nobody leads wait as long as they would for an answer."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, ConnectionFailed, Consumer, NewRecord, Producer
from horolog.client.client import Client
from horolog.testing.program import Program

from .members import Member, Members, eventually, members

TOPIC = "t"


@pytest.fixture
async def orphaned(place: Path) -> AsyncIterator[Members]:
    """The leader of two is gone, and nobody has promoted the other one yet."""
    async with members(place) as all_:
        await all_.start()
        async with Admin(all_[1].address) as admin:
            await admin.create_topic(TOPIC)
        await all_[1].produce(TOPIC, "first")
        await all_.in_sync(all_[1])
        await all_[1].stop()
        yield all_


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and answers nothing, as of a machine that hangs."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def both(all_: Members) -> str:
    return f"{all_[1].address},{all_[2].address}"


def asked(member: Member, times: int = 2) -> "asyncio.Event":
    """Set when a broker has been asked so often who leads."""
    addresses, event = member.cluster.addresses, asyncio.Event()
    answer, left = addresses.metadata, times

    def counted(body: Any, call: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            event.set()
        return answer(body, call)

    addresses.metadata = counted
    return event


async def still_waits(work: "asyncio.Task[Any]", told: asyncio.Event) -> None:
    """Wait until a broker has been asked, by work that goes on after that."""
    telling = asyncio.create_task(told.wait())
    await asyncio.wait({work, telling}, return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    assert not work.done(), work


async def begin_and_lead(all_: Members, client: Client) -> None:
    """Open a client; the second broker is promoted when it has been told that nobody leads."""
    told = asked(all_[2])
    opening = asyncio.create_task(client.__aenter__())
    await still_waits(opening, told)
    await all_[2].promote(accept_loss=True)
    await opening


@pytest.mark.parametrize("acks", ["all", 0])
async def test_a_producer(orphaned: Members, acks: Any) -> None:
    producer = Producer(both(orphaned), acks=acks, delivery_timeout_ms=0)
    await begin_and_lead(orphaned, producer)
    try:
        await producer.send(TOPIC, b"second")
    finally:
        await producer.close()
    assert await orphaned[2].values(TOPIC, 2) == ["first", "second"]


async def test_a_consumer(orphaned: Members) -> None:
    consumer = Consumer(both(orphaned))
    await begin_and_lead(orphaned, consumer)
    try:
        consumer.assign(TOPIC)
        assert (await anext(consumer)).value == b"first"
    finally:
        await consumer.close()


async def test_a_leader_that_hangs_is_not_waited_for(orphaned: Members, silent: str) -> None:
    """It would not have answered before the client gives up; the other one leads long before."""
    admin = Admin(f"{silent},{orphaned[2].address}", request_timeout_ms=60_000)
    async with asyncio.timeout(20):
        await begin_and_lead(orphaned, admin)
    await admin.close()


async def test_messages_without_answers(orphaned: Members) -> None:
    """`acks` 0: what is sent just as the leader goes is sent to the next one."""
    await orphaned[2].promote(accept_loss=True)
    await orphaned[1].start(follow=orphaned[2])
    await orphaned.in_sync(orphaned[2])
    async with Producer(both(orphaned), acks=0) as producer:
        await orphaned[2].stop()
        told = asked(orphaned[1])
        sending = asyncio.create_task(producer.send(TOPIC, b"second"))
        await still_waits(sending, told)
        await orphaned[1].promote(accept_loss=True)
        await sending
    assert await orphaned[1].values(TOPIC, 2) == ["first", "second"]


async def test_who_was_asked_is_named_in_the_end(orphaned: Members) -> None:
    admin = Admin(both(orphaned), request_timeout_ms=3000)
    with pytest.raises(ConnectionFailed) as failed:
        await admin.__aenter__()
    await admin.close()
    text = str(failed.value)
    assert text.startswith(f"no leader at {both(orphaned)}: ")
    assert f"{orphaned[2].address} does not lead" in text
    assert f"cannot connect to {orphaned[1].address}" in text
    assert text.endswith("given up after request_timeout_ms=3000")


async def _opened(producer: Producer) -> None:
    await producer.__aenter__()


async def _sent(producer: Producer) -> None:
    await producer.send(TOPIC, b"second")


async def _sent_to(producer: Producer) -> None:
    await producer.send(TOPIC, b"second", partition=0)


async def _sent_many(producer: Producer) -> None:
    await producer.send_many(TOPIC, [NewRecord(b"second")])


async def _sent_batch(producer: Producer) -> None:
    await producer.send_batch(TOPIC, [b"second"])


@pytest.mark.parametrize("acks", ["all", 1])
async def test_a_producer_gives_up_the_leader_after_the_delivery_timeout(
    orphaned: Members, acks: Any
) -> None:
    """Whatever waits for the leader; a request would wait for ten minutes."""
    for work in (_opened, _sent, _sent_to, _sent_many, _sent_batch):
        producer = Producer(
            both(orphaned), acks=acks, delivery_timeout_ms=1000, request_timeout_ms=600_000
        )
        with pytest.raises(ConnectionFailed) as failed:
            async with asyncio.timeout(30):
                await work(producer)
        await producer.close()
        text = str(failed.value)
        assert text.startswith(f"no leader at {both(orphaned)}: "), work
        assert text.endswith("given up after delivery_timeout_ms=1000"), work


async def test_a_client_that_is_closed_waits_no_more(orphaned: Members) -> None:
    admin = Admin(both(orphaned))
    told = asked(orphaned[2])
    opening = asyncio.create_task(admin.__aenter__())
    await still_waits(opening, told)
    await admin.close()
    with pytest.raises(RuntimeError, match="is closed"):
        async with asyncio.timeout(10):
            await opening


async def test_commands(orphaned: Members) -> None:
    told = asked(orphaned[2])
    program = Program(both(orphaned))
    listing = asyncio.create_task(asyncio.to_thread(program, "topic", "list", "--json"))
    await still_waits(listing, told)
    await orphaned[2].promote(accept_loss=True)
    result = await listing
    assert result.code == 0, result
    assert TOPIC in result.out


async def test_what_is_for_people_waits_for_nobody(orphaned: Members, silent: str) -> None:
    """Who promotes another leader is not to wait for one."""
    program = Program(f"{silent},{both(orphaned)}")
    async with asyncio.timeout(20):  # a client waits for 30 s
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
    assert result.code == 0, result
    assert json.loads(result.out)["in_sync"] == [1, 2]
    refused = await asyncio.to_thread(program, "cluster", "promote", "--accept-loss")
    assert refused.code == 1
    assert "name the broker to promote (promote ID)" in refused.err
    async with asyncio.timeout(20):
        result = await asyncio.to_thread(program, "cluster", "promote", "2", "--accept-loss")
    assert result.code == 0, result
    await eventually(lambda: orphaned[2].cluster.leads)
