"""Snapshots of a broker, and going back to them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog import TopicAlreadyExists, blocking
from horolog.protocol.api.log.init_producer_id import InitProducerIdRequest
from horolog.protocol.errors import (
    OutOfOrderSequenceNumber,
    StorageError,
    UnknownTopicOrPartition,
)
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.testing.broker import BrokerThread
from horolog.testing.files import QuickFiles
from horolog.testing.program import Program
from horolog.testing.requests import produce, result
from horolog.testing.snapshots import copy_directory
from horolog.tests.groups.requests import kafka_client

DAY = 24 * 3600


@pytest.fixture
def admin(horolog_broker: BrokerThread) -> Iterator[blocking.Admin]:
    with blocking.Admin(horolog_broker.address) as connected:
        yield connected


def send(broker: BrokerThread, topic: str, *values: bytes, partition: int = 0) -> None:
    with blocking.Producer(broker.address) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def numbered(sequence: int) -> bytes:
    """A message of an idempotent producer."""
    encoder = RecordEncoder()
    encoder.add(b"%d" % sequence, None, 1000)
    return bytes(finish_batch(encoder, producer_id=7, producer_epoch=0, base_sequence=sequence))


def test_everything_comes_back(horolog_broker: BrokerThread, admin: blocking.Admin) -> None:
    admin.create_topic("kept", partitions=2, settings={"retention.ms": "1000000"})
    send(horolog_broker, "kept", b"one", b"two")
    send(horolog_broker, "kept", b"three", partition=1)
    admin.commit_position("reader", "kept", 0, 1)
    described = admin.describe_topic("kept")
    snapshot = horolog_broker.snapshot()

    send(horolog_broker, "kept", b"four")
    admin.alter_topic("kept", {"retention.ms": "5"})
    admin.commit_position("reader", "kept", 0, 2)
    admin.commit_position("other", "kept", 0, 2)
    admin.create_topic("new")
    horolog_broker.clock.step(DAY)
    assert horolog_broker.topic("kept").values() == []

    snapshot.restore()
    assert admin.describe_topic("kept") == described
    assert horolog_broker.topic("kept").values() == [b"one", b"two", b"three"]
    assert admin.list_topics() == {"kept": 2}
    assert admin.position_names() == ["reader"]
    position = admin.position("reader", "kept")
    assert position is not None
    assert position.offset == 1


def test_users_come_back(horolog_broker: BrokerThread, tmp_path: Path) -> None:
    run = Program(horolog_broker.address)
    (tmp_path / "password").write_text("a long password")
    run.ok("user", "add", "alice", "--password-file", tmp_path / "password")
    snapshot = horolog_broker.snapshot()
    run.ok("user", "remove", "alice")
    run.ok("user", "add", "bob", "--password-file", tmp_path / "password")
    assert "alice" not in run.ok("user", "list").out
    snapshot.restore()
    listed = run.ok("user", "list").out
    assert "alice" in listed
    assert "bob" not in listed


def test_a_deleted_topic_comes_back(horolog_broker: BrokerThread, admin: blocking.Admin) -> None:
    send(horolog_broker, "a", b"one")
    horolog_broker.snapshot()
    admin.delete_topic("a")
    admin.create_topic("a", partitions=3)
    send(horolog_broker, "a", b"other", partition=2)
    horolog_broker.restore()
    assert horolog_broker.topic("a").values() == [b"one"]
    with pytest.raises(UnknownTopicOrPartition):
        horolog_broker.topic("a").messages(2)


def test_what_retention_deleted_comes_back(
    horolog_broker: BrokerThread, admin: blocking.Admin
) -> None:
    """Closed segments too, whose log files the snapshot shares with the broker."""
    admin.create_topic("a", settings={"segment.ms": "60000", "file.delete.delay.ms": "0"})
    for number in range(3):
        with blocking.Producer(horolog_broker.address) as producer:
            now_ms = horolog_broker.clock.now_ms()
            producer.send("a", b"%d" % number, timestamp_ms=now_ms)
        horolog_broker.clock.step(61)
    assert len(admin.describe_log("a").segments) == 4
    snapshot = horolog_broker.snapshot()
    for _ in range(2):
        horolog_broker.clock.step(8 * DAY)
        horolog_broker.clock.step(2)
        assert horolog_broker.topic("a").values() == []
        assert not list((horolog_broker.data_dir / "a-0").glob("*.deleted"))
        snapshot.restore()
        assert horolog_broker.topic("a").values() == [b"0", b"1", b"2"]
        send(horolog_broker, "a", b"3")
        assert horolog_broker.topic("a").values()[3:] == [b"3"]
        snapshot.restore()


def test_append_times_come_back(horolog_broker: BrokerThread) -> None:
    send(horolog_broker, "a", b"one")
    before = horolog_broker.topic("a").messages()
    assert before[0].append_time_ms is not None
    snapshot = horolog_broker.snapshot()
    send(horolog_broker, "a", b"two")
    snapshot.restore()
    assert horolog_broker.topic("a").messages() == before


def test_the_clock_is_as_far_ahead_as_it_was(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.step(3 * DAY)
    snapshot = horolog_broker.snapshot()
    ahead_ms = clock.offset().ahead_ms
    clock.freeze()
    clock.step(DAY)
    snapshot.restore()
    assert clock.speed == 1
    assert abs(clock.offset().ahead_ms - ahead_ms) <= 1_000
    assert horolog_broker.in_loop(_caution) is None


async def _caution(broker: object) -> object:
    return broker.trusted_time.caution()  # type: ignore[attr-defined]


def test_connections_survive_a_snapshot(horolog_broker: BrokerThread) -> None:
    with blocking.Producer(horolog_broker.address, delivery_timeout_ms=0) as producer:
        producer.send("a", b"one")
        horolog_broker.snapshot()
        assert producer.send("a", b"two").offset == 1


def test_clients_connect_again_after_a_restore(horolog_broker: BrokerThread) -> None:
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("a", b"one")
        snapshot = horolog_broker.snapshot()
        producer.send("a", b"two")
        snapshot.restore()
        assert producer.send("a", b"three").offset == 1
    assert horolog_broker.topic("a").values() == [b"one", b"three"]


def test_a_producer_from_before_goes_on(horolog_broker: BrokerThread) -> None:
    snapshot = horolog_broker.snapshot()
    with (
        blocking.Producer(horolog_broker.address) as first,
        blocking.Producer(horolog_broker.address) as second,
    ):
        first.send("a", b"one")
        snapshot.restore()
        second.send("a", b"two")
        first.send("a", b"three")
        second.send("a", b"four")
    assert horolog_broker.topic("a").values() == [b"two", b"three", b"four"]


async def test_retries_and_gaps_are_found_after_a_restore(horolog_broker: BrokerThread) -> None:
    """A producer begins anywhere, and goes on from there."""

    async def send_numbered(*sequences: int) -> list[tuple[int, int]]:
        async with kafka_client(horolog_broker.kafka_address) as client:
            sent = [await client.call(produce("a", numbered(one)), 7) for one in sequences]
            return [(each.error_code, each.base_offset) for each in map(result, sent)]

    horolog_broker.restart()
    await asyncio.to_thread(send, horolog_broker, "a", b"one")
    assert await send_numbered(0, 1) == [(0, 1), (0, 2)]
    snapshot = horolog_broker.snapshot()
    assert await send_numbered(1, 2) == [(0, 2), (0, 3)]  # A snapshot alone changes nothing.
    for _ in range(2):
        snapshot.restore()
        assert await send_numbered(5, 5, 6, 5, 6) == [(0, 3), (0, 3), (0, 4), (0, 3), (0, 4)]
        horolog_broker.restart()
        assert await send_numbered(6, 7) == [(0, 4), (0, 5)]
        ((code, _),) = await send_numbered(9)
        assert code == OutOfOrderSequenceNumber.code


async def test_a_producer_id_is_given_out_once(horolog_broker: BrokerThread) -> None:
    """So one that comes later is not taken for one from before."""

    async def new_id() -> int:
        async with kafka_client(horolog_broker.kafka_address) as client:
            answer = await client.call(InitProducerIdRequest(transaction_timeout_ms=0))
            found: int = answer.producer_id
            return found

    given = [await new_id()]
    await asyncio.to_thread(send, horolog_broker, "a", b"one")
    snapshot = horolog_broker.snapshot()
    for _ in range(2):
        snapshot.restore()
        given.append(await new_id())
    assert len(set(given)) == 3


def test_a_snapshot_of_what_did_not_change_is_the_same(horolog_broker: BrokerThread) -> None:
    send(horolog_broker, "a", b"one")
    first = horolog_broker.snapshot()
    assert horolog_broker.snapshot() is first
    send(horolog_broker, "a", b"two")
    assert horolog_broker.snapshot() is not first


def test_snapshots_are_taken_and_restored_in_any_order(horolog_broker: BrokerThread) -> None:
    taken = []
    for number in range(3):
        send(horolog_broker, "a", b"%d" % number)
        taken.append(horolog_broker.snapshot())
    for number in (2, 0, 1, 0):
        taken[number].restore()
        assert len(horolog_broker.topic("a").values()) == number + 1


def test_what_cannot_be_restored(tmp_path: Path, horolog_broker: BrokerThread) -> None:
    (tmp_path / "other").mkdir()
    with BrokerThread(tmp_path / "other" / "data") as other:
        with pytest.raises(ValueError, match="no snapshot of this broker"):
            other.restore()
        with pytest.raises(ValueError, match="of another broker"):
            other.restore(horolog_broker.snapshot())
        nothing: Any = "before"
        with pytest.raises(TypeError, match=r"'before': it must be what snapshot\(\) returned"):
            other.restore(nothing)
        taken = other.snapshot()
        assert taken.folder.exists()
    assert not taken.folder.exists()
    with pytest.raises(RuntimeError, match="stopped"):
        other.snapshot()


def test_a_borrowed_broker_is_given_back_as_it_was(
    horolog_broker: BrokerThread, admin: blocking.Admin
) -> None:
    send(horolog_broker, "kept", b"one")
    address = horolog_broker.address
    with horolog_broker.borrowed({"auto.create.topics.enable": False}):
        with pytest.raises(UnknownTopicOrPartition):
            send(horolog_broker, "new", b"two")
        horolog_broker.faults.drop_connection("Produce", times=None)
        horolog_broker.stop()
    assert not horolog_broker.faults.waiting
    assert horolog_broker.address == address
    assert admin.list_topics() == {"kept": 1}
    with pytest.raises(TopicAlreadyExists):
        admin.create_topic("kept")
    send(horolog_broker, "new", b"two")


def test_a_full_disk_costs_a_test_and_leaves_no_snapshot(
    horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written goes with the test."""

    def full(*_: object) -> None:
        raise OSError(ENOSPC, "no space left")

    folders = sorted(horolog_broker.data_dir.parent.iterdir())
    with horolog_broker.borrowed():
        send(horolog_broker, "a", b"one")
        monkeypatch.setattr("horolog.testing.snapshots.shutil.copy2", full)
        before = sorted(horolog_broker.data_dir.parent.iterdir())
        with pytest.raises(OSError, match="no space"):
            horolog_broker.snapshot()
        assert sorted(horolog_broker.data_dir.parent.iterdir()) == before
        monkeypatch.undo()
        monkeypatch.setattr(horolog_broker._broker.directory, "_write_checkpoints", full)
    monkeypatch.undo()
    assert [path for path in horolog_broker.data_dir.parent.iterdir() if path not in folders] == []
    send(horolog_broker, "b", b"two")
    monkeypatch.setattr(horolog_broker._broker.directory, "_write_checkpoints", full)
    with pytest.raises(StorageError, match="not clean"):
        horolog_broker.restart()
    horolog_broker.start()


STEPS = st.tuples(st.sampled_from("abc"), st.sampled_from(("send", "drop", "take", "back")))


@settings(max_examples=8)
@given(st.lists(STEPS, max_size=12))
def test_any_order_of_changes_beside_a_dictionary(
    horolog_broker: BrokerThread, steps: list[tuple[str, str]]
) -> None:
    held: dict[str, list[bytes]] = {}
    with horolog_broker.borrowed(), blocking.Admin(horolog_broker.address) as admin:
        last, then = horolog_broker.snapshot(), held
        for number, (topic, step) in enumerate(steps):
            if step == "send":
                send(horolog_broker, topic, b"%d" % number)
                held = {**held, topic: [*held.get(topic, []), b"%d" % number]}
            elif step == "drop" and topic in held:
                admin.delete_topic(topic)
                held = {name: values for name, values in held.items() if name != topic}
            elif step == "take":
                last, then = horolog_broker.snapshot(), held
            elif step == "back":
                last.restore()
                held = then
        assert {name: horolog_broker.topic(name).values() for name in admin.list_topics()} == held


def test_files_that_go_while_a_directory_is_copied_are_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a-0").mkdir(parents=True)
    target.mkdir()
    (source / "a-0" / "00.log").write_bytes(b"closed")
    (source / "a-0" / "01.log").write_bytes(b"active")
    (source / "gone").symlink_to("nowhere")
    copy_directory(source, target)
    assert not (target / "gone").exists()
    assert (target / "a-0" / "00.log").stat().st_nlink == 2
    assert (target / "a-0" / "01.log").stat().st_nlink == 1


def test_a_file_with_a_second_name_is_copied_before_it_is_changed(tmp_path: Path) -> None:
    path, second = tmp_path / "a", tmp_path / "second"
    path.write_bytes(b"closed")
    os.utime(path, (1, 1))
    second.hardlink_to(path)
    with closing(QuickFiles().open(path, read_only=True)):
        assert path.samefile(second)
    with closing(QuickFiles().open(path)) as file:
        assert path.stat().st_mtime == 1
        file.truncate(2)
    assert (path.read_bytes(), second.read_bytes()) == (b"cl", b"closed")
    assert sorted(tmp_path.iterdir()) == [path, second]
