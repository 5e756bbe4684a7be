"""Groups of every client, and consumers that are slow."""

from collections.abc import Sequence

from .client import Client, Member, Message, Sending, Stored
from .matrix import proves
from .steps import Step

BATCH = [Message(b"x" * 1000)] * 200


def numbered(first: int, count: int) -> list[Message]:
    return [Message(b"%d" % number) for number in range(first, first + count)]


def polled(member: Member, count: int) -> list[Stored]:
    """What a member gets until it is so much."""
    found: list[Stored] = []
    while len(found) < count:
        found += member.poll()
    return found


def settled(members: Sequence[Member], partitions: int) -> list[set[int]]:
    """What each has, as soon as they share so many partitions evenly."""
    while True:
        for member in members:
            member.poll()
        shares = [member.assigned() for member in members]
        even = all(len(share) == partitions // len(members) for share in shares)
        if even and set().union(*shares) == set(range(partitions)):
            return shares


@proves(Step.GROUP)
def test_group(client: Client, topic: str) -> None:
    client.produce(topic, numbered(0, 10))
    with client.member(f"of {topic}", topic) as member:
        first = polled(member, 10)
        member.commit()
    client.produce(topic, numbered(10, 10))
    with client.member(f"of {topic}", topic) as member:
        second = polled(member, 10)
    assert [one.message.value for one in first] == [b"%d" % n for n in range(10)]
    assert [one.message.value for one in second] == [b"%d" % n for n in range(10, 20)]


@proves(Step.REBALANCE)
def test_rebalance(client: Client, other: Client, topic: str) -> None:
    other.create_topic(topic, 4, {})
    group = f"of {topic}"
    with client.member(group, topic) as stays:
        assert settled([stays], 4) == [{0, 1, 2, 3}]
        with client.member(group, topic) as leaves:
            settled([stays, leaves], 4)
        settled([stays], 4)
        for partition in range(4):
            other.produce(topic, numbered(0, 1), Sending(partition=partition))
        assert {one.partition for one in polled(stays, 4)} == {0, 1, 2, 3}


@proves(Step.SLOW_CONSUMER)
def test_slow_consumer(client: Client, other: Client, topic: str) -> None:
    client.produce(topic, BATCH)
    with client.member(f"of {topic}", topic) as slow:
        found = list(polled(slow, 1))
        for _ in range(39):
            other.produce(topic, BATCH)
        assert len(other.consume(topic, 8000)) == 8000
        found += polled(slow, 8000 - len(found))
    assert [one.offset for one in found] == list(range(8000))
