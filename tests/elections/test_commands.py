"""What people do with a cluster in etcd, and what a broker refuses (replication.md, 4, 5, 7)."""

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, Producer
from horolog.protocol.errors import InvalidConfig
from horolog.replication.cluster_state import KeptMember
from horolog.server.broker import Broker as Server
from horolog.server.replication.cluster import Cluster
from horolog.server.replication.etcd.client import Access, EtcdClient, Gateway
from horolog.server.replication.etcd.store import ClusterStore
from horolog.testing.broker import running_broker
from horolog.testing.etcd import EtcdProcess
from horolog.testing.ports import free_port, free_ports
from horolog.testing.program import Program

from .brokers import TOPIC, Broker, cluster

ALONE = {"broker_id": 0, "cluster_etcd": "", "cluster_name": ""}
BY_ETCD = {"broker_id": 1, "cluster_etcd": "http://127.0.0.1:9", "cluster_name": "x"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"broker_id": 0},
            r"cluster\.etcd, cluster\.name: .*broker\.id, .*must be 1 to 999; it is 0,",
        ),
        (
            ALONE | {"cluster_follow": "a:1"},
            r"cluster\.follow: .*broker\.id, .*must be 1 to 999; it is 0,",
        ),
        (
            ALONE | {"cluster_create": True},
            r"cluster\.create: .*broker\.id, .*must be 1 to 999; it is 0,",
        ),
        (
            ALONE | {"cluster_alone": True},
            r"cluster\.alone: .*broker\.id, .*must be 1 to 999; it is 0,",
        ),
        ({"cluster_name": ""}, r"cluster\.name \(--cluster\).*is empty: give both"),
        ({"cluster_etcd": ""}, r"cluster\.etcd \(--etcd\).*is empty: give both"),
        ({"cluster_follow": "a:1"}, r"cluster\.follow \(--follow\) is a:1.*give one"),
        ({"cluster_alone": True}, r"cluster\.alone.*--accept-loss"),
        ({"cluster_etcd_ca": "/x"}, r"cluster\.etcd\.ca is /x, which is for https://"),
        ({"cluster_etcd_cert": "/x"}, r"cluster\.etcd\.cert is /x, which is for https://"),
        (
            {"cluster_etcd": "https://a:1", "cluster_etcd_key": "/x"},
            r"cluster\.etcd\.key is /x, and cluster\.etcd\.cert.*is empty: give both",
        ),
        ({"cluster_etcd": "https://a:1", "cluster_etcd_ca": "/x"}, r"/x \(cluster\.etcd\.ca\)"),
        ({"cluster_etcd_credentials": "/x"}, r"/x \(cluster\.etcd\.credentials\) cannot be read"),
        ({"cluster_etcd": "a:1"}, r"up to nine of http://HOST:PORT"),
        ({"cluster_etcd": "http://a"}, r"'http://a' is none"),
        ({"cluster_etcd": "http://u:p@a:1"}, r"is none"),
        ({"cluster_etcd": ",".join(["http://a:1"] * 10)}, r"Here are 10"),
        ({"cluster_name": "a/b"}, r"letters, digits"),
        ({"cluster_lease_ms": 1999}, r"cluster\.lease\.ms = 1999 is refused.*from 2000"),
    ],
)
async def test_settings_that_do_not_go_together(
    place: Path, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        async with running_broker(place / "data", **(BY_ETCD | settings)):  # type: ignore[arg-type]
            pass


async def test_what_is_no_etcd_is_an_error_at_the_start(place: Path, etcd: EtcdProcess) -> None:
    async with running_broker(place / "one", http_listen="127.0.0.1:0") as other:
        url = f"http://{other.addresses.http}"
        with pytest.raises(InvalidConfig, match=r"--etcd.*is no etcd of 3\.4 or later"):
            async with running_broker(
                place / "two", broker_id=1, cluster_etcd=url, cluster_name="x"
            ):
                pass


async def test_an_etcd_that_does_not_answer_is_waited_for(place: Path) -> None:
    async with running_broker(place / "data", **BY_ETCD) as broker:  # type: ignore[arg-type]
        status = broker.services.replication.describe()
        assert status.leader == -1
        assert "etcd is needed to know who leads" in status.waits_for
        assert "127.0.0.1:9 cannot be reached" in status.waits_for


@pytest.mark.parametrize("given", [(), ("--etcd", "http://a:1"), ("--cluster", "x")])
def test_remove_by_hand_is_refused_with_what_to_do(given: tuple[str, ...]) -> None:
    result = Program()("cluster", "remove", "3", *given)
    assert (result.code, result.out) == (2, "")
    assert "stop that broker, and start the others with a smaller cluster.brokers" in result.err


def kept_members(etcd: EtcdProcess) -> frozenset[KeptMember]:
    """The members that etcd keeps although they are out of the ISR."""

    async def read() -> frozenset[KeptMember]:
        async with EtcdClient(Access((etcd.url,))) as client:
            seen = await ClusterStore(Gateway(client), "test").read()
            assert seen.view is not None
            return seen.view.state.kept

    return asyncio.run(read())


@pytest.mark.elections
@pytest.mark.timeout(300)
def test_create_and_remove(place: Path, etcd: EtcdProcess) -> None:
    """A broker's data becomes that of a cluster; what is gone for good is not waited for."""
    run = Program()
    with cluster(place, etcd, count=2) as all_:
        first, second = all_[1], all_[2]
        at = ("--etcd", etcd.url)
        here = (*at, "--data-dir", str(first.data_dir))
        made = json.loads(run.ok("cluster", "create", "test", *here, "--json").out)
        assert made["broker"] == 1
        again = run("cluster", "create", "test", *here)
        assert again.code == 1
        assert "--replace" in again.err
        first.start()
        all_.leader()
        first.program.ok("topic", "create", TOPIC)
        first.program.ok("produce", TOPIC, stdin="kept\n")
        # A directory with messages of another cluster is refused.
        foreign = place / "broker3"
        run.ok("cluster", "create", "other", *at, "--data-dir", str(foreign), "--broker-id", "2")
        shutil.copytree(foreign, second.data_dir)
        with pytest.raises(RuntimeError, match="this directory has the data of cluster"):
            second.start()
        shutil.rmtree(second.data_dir)
        second.start()
        all_.in_sync()
        alive = run("cluster", "remove", "2", *at, "--cluster", "test")
        assert alive.code == 1
        assert "broker 2 runs at" in alive.err
        running = run("cluster", "create", "test", *here, "--replace")
        assert running.code == 1
        assert "in use" in running.err
        second.stop()
        all_.in_sync(1)
        # Until the leader changes the state once more, the logs of the stopped one may be needed.
        all_.eventually(lambda: not kept_members(etcd))
        gone = run.ok("cluster", "remove", "2", *at, "--cluster", "test", "--json")
        assert not json.loads(gone.out)["removed"]
        first.stop()
        last = run("cluster", "remove", "1", *at, "--cluster", "test")
        assert last.code == 1
        assert "--accept-loss" in last.err
        # etcd has lost everything, or was restored: the cluster begins again, in a later epoch.
        run.ok("cluster", "create", "test", *here, "--replace")
        first.start()
        second.start()
        assert all_.in_sync().status().epoch == 2
        assert list(all_.stored().values()) == ["kept"]


def _went_back(broker: Broker) -> bool:
    return "restored from a backup" in broker.status().waits_for


@pytest.mark.elections
@pytest.mark.timeout(300)
def test_an_etcd_that_was_restored_is_not_believed(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd, count=2) as all_:
        all_.start()
        etcd.stop()
        shutil.copytree(place / "etcd" / "data", place / "backup")
        etcd.start()
        before = all_.in_sync()
        other = all_[2] if before is all_[1] else all_[1]
        before.program.ok("cluster", "promote", str(other.broker_id))
        last = all_.leader(other_than=before.broker_id)
        etcd.stop()
        shutil.rmtree(place / "etcd" / "data")
        shutil.copytree(place / "backup", place / "etcd" / "data")
        etcd.start()
        for broker in all_.all.values():
            all_.eventually(partial(_went_back, broker))
            assert broker.status().leader == -1
            broker.stop()
        # Also by brokers that are started afterwards.
        last.start()
        assert "restored from a backup" in last.status().waits_for
        last.stop()
        here = ("--etcd", etcd.url, "--data-dir", str(last.data_dir))
        all_.eventually(
            lambda: Program()("cluster", "create", "test", *here, "--replace").code == 0
        )
        for broker in all_.all.values():
            broker.start()
        assert all_.in_sync() is last


@pytest.mark.parametrize("before", ["of no cluster", "of another cluster"])
async def test_other_data_is_set_aside_when_that_is_asked_for(
    place: Path, etcd: EtcdProcess, before: str
) -> None:
    def named(broker_id: int, name: str) -> dict[str, Any]:
        at = {"cluster_etcd": etcd.url, "cluster_name": name}
        return {"broker_id": broker_id, "listen": f"127.0.0.1:{free_port()}", **at}

    other = named(2, "other") | {"cluster_create": True} if "another" in before else {}
    async with running_broker(place / "two", **other) as broker:
        await until(lambda: broker.services.replication.leads)
        async with Admin(broker.addresses.native) as admin:
            await admin.create_topic("own")
    async with running_broker(place / "one", cluster_create=True, **named(1, "x")) as first:
        await until(lambda: first.services.replication.leads)
        with pytest.raises(InvalidConfig, match="--discard"):
            async with running_broker(place / "two", **named(2, "x")):
                pass
        assert (place / "two" / "own-0").is_dir()
        async with running_broker(place / "two", cluster_discard=True, **named(2, "x")) as second:
            cluster_of = second.services.replication
            await until(lambda: cluster_of.not_ready() == "")
            assert not second.directory.topics()
        assert len(list((place / "two").glob("set-aside-*Z/own-0"))) == 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is decided has no event
            await asyncio.sleep(0.02)


async def test_a_cluster_by_hand_goes_on_with_etcd(place: Path, etcd: EtcdProcess) -> None:
    ports = free_ports(2)

    def by(broker_id: int, **more: object) -> dict[str, Any]:
        return {"broker_id": broker_id, "listen": f"127.0.0.1:{ports[broker_id - 1]}", **more}

    async with running_broker(place / "one", **by(1, cluster_create=True)) as first:
        leader = first.addresses.native
        async with running_broker(place / "two", **by(2, cluster_follow=leader)) as second:
            async with Admin(leader) as admin, Producer(leader) as producer:
                await admin.create_topic(TOPIC)
                await producer.send(TOPIC, b"kept")
            cluster_id = first.directory.cluster_id()
            await until(lambda: ends(second) == {(TOPIC, 0): 1})
    at = {"cluster_etcd": etcd.url, "cluster_name": "x"}
    here = ("--etcd", etcd.url, "--data-dir", str(place / "one"))
    made = await asyncio.to_thread(Program(), "cluster", "create", "x", *here)
    assert made.code == 0, made
    async with (
        running_broker(place / "one", **by(1, **at)) as first,
        running_broker(place / "two", **by(2, **at)) as second,
    ):
        follower = second.services.replication
        assert isinstance(follower, Cluster)
        await until(lambda: follower.fetcher.leader_id == 1 and not follower.not_ready())
        assert first.services.replication.leads
        assert second.directory.cluster_id() == first.directory.cluster_id() == cluster_id
        assert ends(first) == ends(second) == {(TOPIC, 0): 1}


def ends(broker: Server) -> dict[tuple[str, int], int]:
    return {(log.topic, log.partition): log.log_end_offset for log in broker.directory.open_logs()}
