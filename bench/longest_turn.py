"""Measures the longest turn of the event loop for each kind of request."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..config.address import split_address
from ..protocol.api.encodings import Encoding
from ..protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.api.security.acl_terms import Operation, PatternType, Permission, ResourceType
from ..protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ..protocol.limits import MAX_REQUEST_VALUES
from ..protocol.records.kernel import FORM
from ..server.quotas.rules import Entity, Quota, QuotaChange, Quotas
from ..server.security.acl_store import Acls
from ..server.security.acls import Acl
from ..storage.directory.journal import MAX_TOPIC_REMOVALS, Cause, Removal
from ..storage.directory.truncations import Truncations
from ..storage.files import SystemFiles
from ..storage.metadata.local_metadata import offline_metadata
from ..storage.metadata.records import MessagesRemoved
from ..testing.files import QuickFiles
from ..testing.logs import RecordedEvents
from ..testing.requests import create_topic, message_set, produce_to
from .brokers import MIB, data_folder
from .figure import BoundedFigure
from .guard.largest import GROUP, NARROW, PRINCIPAL, WIDE, LargestRequest, Size, largest
from .raw_client import RawClient
from .watched_broker import Turn, WatchedBroker, watched_broker

LIMIT_SECONDS: Final = 0.05 if FORM == "compiled" else 0.15
"""The longest allowed turn."""

LARGEST: Final = Size(
    values=MAX_REQUEST_VALUES,
    frame_bytes=60 * MIB,
    partitions=5_000,
    topics=500,
    rules=9_000,
)

_ROUNDS: Final = 2
"""Number of rounds, of which the better counts: the first request of a kind may load modules."""
_ANSWER_SECONDS: Final = 600
_RECEIVED_BYTES: Final = MIB
_PLACES: Final = (("", ()), (" of a principal without rights", ("authorization=on",)))
"""(text behind the name of a request, options of the broker)"""


def longest_turn(size: Size = LARGEST, *, rounds: int = _ROUNDS) -> Iterator[BoundedFigure]:
    """Yield, for each encoding and kind of request, the longest turn of all its largest
    requests."""
    with data_folder() as data:
        data.mkdir()
        _add_rules(data, size)
        _add_removals(data, min(size.rules, MAX_TOPIC_REMOVALS))
        # What is there when a broker starts is not looked through for garbage.
        with watched_broker(data) as broker:
            _fill(broker, size)
        for whose, options in _PLACES:
            with watched_broker(data, *_SETTINGS, *options) as broker:
                for encoding in (kafka, native):
                    for figure in _turns_of(broker, encoding, size, rounds):
                        yield replace(figure, note=f"{figure.note}{whose}")


_SETTINGS: Final = (
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
)


def _turns_of(
    broker: WatchedBroker, encoding: Encoding, size: Size, rounds: int
) -> Iterator[BoundedFigure]:
    worst: dict[str, BoundedFigure] = {}
    name = ""
    for asked in largest(encoding, size):
        if name != asked.api.name and name:
            yield worst.pop(name)
        name = asked.api.name
        turn = _turn_of(broker, encoding, asked, rounds)
        if name not in worst or worst[name].value < turn.loop_seconds:
            worst[name] = _figure(encoding, asked, turn)
    yield worst.pop(name)


def _figure(encoding: Encoding, asked: LargestRequest, turn: Turn) -> BoundedFigure:
    spoken = "native" if encoding.NATIVE else "kafka"
    return BoundedFigure(
        name=f"longest_turn.{spoken}.{asked.api.name}",
        value=turn.loop_seconds,
        unit="s",
        limit=LIMIT_SECONDS,
        note=f"{asked.name}; with other threads {turn.process_seconds:.3f} s",
    )


def _turn_of(broker: WatchedBroker, encoding: Encoding, asked: LargestRequest, rounds: int) -> Turn:
    frame = asked.frame(encoding)
    address = broker.native if encoding.NATIVE else broker.kafka
    found = []
    for _ in range(rounds):
        with closing(socket.create_connection(split_address(address))) as client:
            client.settimeout(_ANSWER_SECONDS)
            broker.take()
            with suppress(ConnectionError):  # what is no request is answered with an end
                client.sendall(frame)
                _take_answer(client)
        found.append(broker.take())
    return min(found)


def _take_answer(client: socket.socket) -> None:
    """Read one answer, or to the end of the connection."""
    buffer = bytearray(_RECEIVED_BYTES)
    head = client.recv(4, socket.MSG_WAITALL)
    left = int.from_bytes(head, "big") if len(head) == 4 else 0
    while left:
        received = client.recv_into(buffer, min(left, len(buffer)))
        if not received:
            return
        left -= received


def _fill(broker: WatchedBroker, size: Size) -> None:
    """Create topics with a message in each partition, and commit positions in all of them."""
    with closing(RawClient(broker.native)) as client:
        client.call(create_topic(WIDE, partitions=size.partitions))
        narrow = [CreatableTopic(name=NARROW.format(number)) for number in range(size.topics)]
        client.call(CreateTopicsRequest(topics=narrow))
        data = message_set(5)
        for some in _some(range(size.partitions)):
            client.call(produce_to(WIDE, [(number, data) for number in some]))
            positions = [
                OffsetCommitPartition(partition=number, committed_offset=1) for number in some
            ]
            topics = [OffsetCommitTopic(name=WIDE, partitions=positions)]
            client.call(OffsetCommitRequest(group_id=GROUP, topics=topics))


def _some(numbers: range) -> Iterable[range]:
    return (numbers[begin : begin + 1000] for begin in range(0, len(numbers), 1000))


def _add_rules(data: Path, size: Size) -> None:
    """Add access rules and quotas of many principals."""
    files = SystemFiles()
    rules = [
        Acl(
            ResourceType.TOPIC,
            PatternType.LITERAL,
            "*",
            PRINCIPAL.format(number),
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        for number in range(size.rules)
    ]
    values = {Quota.PRODUCER_BYTE_RATE: 1e9}
    entities = [Entity(user=f"u{number}") for number in range(size.rules)]
    changes = [QuotaChange(entity, values) for entity in entities]
    with offline_metadata(files, data, RecordedEvents(), advice="stop it") as metadata:
        metadata.change_access(lambda: Acls({}).plan_adding(rules))
        metadata.change_access(lambda: Quotas({}).planned(changes))


def _add_removals(data: Path, number: int) -> None:
    """Fill the journal of the topic `WIDE`, and the file of truncations."""
    removals = [
        Removal(Cause.TRIM, PRINCIPAL.format(at), WIDE, "0" * 22, at, *(0, 1, 1, 1, 1, 1, 1))
        for at in range(number)
    ]
    files = QuickFiles()
    with offline_metadata(files, data, RecordedEvents(), advice="stop it") as metadata:
        metadata.record([MessagesRemoved(removals)])
    truncations = Truncations(data, files)
    for each in removals:
        truncations.add(each._replace(cause=str(Cause.TRUNCATION)))
