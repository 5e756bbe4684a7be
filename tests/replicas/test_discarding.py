"""`--discard`: a directory with other data joins a cluster, and that data is kept aside."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import CodedError
from horolog.storage.directory.known_files import IDENTITY_FILE, UNFINISHED_SETTING_ASIDE
from horolog.storage.directory.topics import TOPICS_FILE
from horolog.testing.broker import running_broker
from horolog.testing.program import Program, serving
from horolog.testing.requests import create_topic

from .brokers import Broker
from .members import Member, eventually, members

TOPIC = "t"


def aside(member: Member) -> list[Path]:
    return sorted(member.data_dir.glob("set-aside-*Z*"))


def told(stream: io.StringIO, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines() if line]
    return [line for line in lines if line["event"] == event]


async def fill(member: Member) -> None:
    await member.call(create_topic("own"))
    await member.produce("own", "mine")


async def test_data_of_no_cluster(place: Path) -> None:
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, "a")
        async with running_broker(follower.data_dir, listen=follower.address):
            await fill(follower)
        (segment,) = follower.data_dir.glob("own-0/*.log")
        stored = segment.read_bytes()
        with pytest.raises(CodedError, match="--discard"):
            await follower.start(follow=leader)
        assert segment.read_bytes() == stored
        await follower.start(follow=leader, cluster_discard=True)
        await all_.in_sync(leader)
        assert list(follower.cluster.directory.topics()) == [TOPIC]
        (folder,) = aside(follower)
        assert (folder / "own-0" / segment.name).read_bytes() == stored
        assert (folder / TOPICS_FILE).exists()
        # Left in the settings it does nothing more, nor is the folder taken for anything.
        await follower.stop()
        await follower.start(follow=leader, cluster_discard=True)
        await all_.in_sync(leader)
        assert aside(follower) == [folder]
        assert follower.log(TOPIC).log_end_offset == 1


async def test_data_of_another_cluster(place: Path) -> None:
    async with members(place) as all_:
        leader, other = all_[1], all_[2]
        await other.start(cluster_create=True)
        await fill(other)
        await other.stop()
        await leader.start(cluster_create=True)
        await other.start(follow=leader)
        text = await eventually(lambda: other.cluster.fetcher._reported)
        assert "this is cluster" in text
        assert "cluster.discard" in text
        await other.stop()
        assert aside(other) == []
        await other.start(follow=leader, cluster_discard=True)
        await all_.in_sync(leader)
        (folder,) = aside(other)
        assert (folder / IDENTITY_FILE).exists()
        assert list(folder.glob("own-0/*.log"))
        assert other.cluster.directory.cluster_id() == leader.cluster.directory.cluster_id()
        assert not other.cluster.directory.topics()


async def test_nothing_is_moved_while_nobody_says_what_cluster_it_is(place: Path) -> None:
    async with members(place) as all_:
        leader, other = all_[1], all_[2]
        await other.start(cluster_create=True)
        await fill(other)
        await other.stop()
        stream = io.StringIO()
        settings: dict[str, Any] = {
            "broker_id": 2,
            "cluster_follow": leader.address,
            "cluster_discard": True,
        }
        async with running_broker(
            other.data_dir, log_stream=stream, log_format="json", listen=other.address, **settings
        ) as broker:
            assert "own" in broker.directory.topics()
        (event,) = told(stream, "not_discarded")
        assert leader.address in event["error"]
        assert aside(other) == []


async def test_an_identity_that_cannot_be_read(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await all_.in_sync(leader)
        await follower.stop()
        (follower.data_dir / IDENTITY_FILE).write_text("{")
        with pytest.raises(CodedError, match="cannot be read"):
            await follower.start(follow=leader)
        await follower.start(follow=leader, cluster_discard=True)
        await all_.in_sync(leader)
        (folder,) = aside(follower)
        assert (folder / IDENTITY_FILE).read_text() == "{"


async def test_an_empty_directory_has_nothing_to_set_aside(place: Path) -> None:
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        await follower.start(follow=leader, cluster_discard=True)
        await all_.in_sync(leader)
        assert aside(follower) == []


async def test_only_who_follows_discards(place: Path) -> None:
    for settings in ({}, {"broker_id": 1, "cluster_create": True}):
        with pytest.raises(CodedError, match="is for a broker that follows another"):
            async with running_broker(place / "data", cluster_discard=True, **settings):  # type: ignore[arg-type]
                pass


async def test_any_start_finishes_what_was_begun(place: Path) -> None:
    """Half of the data is nobody's: not even a broker that is alone would have it."""
    stream = io.StringIO()
    data_dir = place / "data"
    async with running_broker(data_dir) as broker:
        assert broker.directory.cluster_id()
    name = "set-aside-2025-11-25T13-14-00.123Z"
    (data_dir / name).mkdir()
    (data_dir / UNFINISHED_SETTING_ASIDE).write_text(f"{name}\n")
    async with running_broker(data_dir, log_stream=stream, log_format="json") as broker:
        assert not broker.directory.topics()
    (event,) = told(stream, "data_set_aside")
    assert event["folder"] == str(data_dir / name)
    assert (data_dir / name / "cluster-id").exists()


def test_the_option(place: Path) -> None:
    leader = Broker(place, 1, {})
    alone = Broker(place, 2, {})
    follower = Broker(place, 2, {})
    try:
        leader.start("--create-cluster")
        alone.server = alone._stack.enter_context(
            serving(alone.data_dir, "--listen", alone.address)
        )
        Program(alone.address)("topic", "create", "own")
        alone.stop()
        follower.start("--discard", follow=leader)
        assert "data_set_aside" in follower.told()
        assert list(follower.data_dir.glob("set-aside-*Z/own-0"))
    finally:
        for broker in (leader, alone, follower):
            broker.close()
