"""Who may follow a leader that etcd decides for: its members (replication.md, sections 3 and 5)."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from horolog.bench.raw_client import RawClient, RefusedRequest
from horolog.protocol.api.cluster.replicate import ReplicateRequest, Says
from horolog.server.replication.member_files import decode_identity
from horolog.storage.directory.known_files import IDENTITY_FILE
from horolog.testing.etcd import EtcdProcess
from horolog.testing.requests import message_set, produce, result

from .brokers import TOPIC, Cluster, cluster


def refused(all_: Cluster, **hello: Any) -> str:
    request = ReplicateRequest(says=Says.HELLO, connection=1, **hello)
    with closing(RawClient(all_[1].address)) as client, pytest.raises(RefusedRequest) as found:
        client.call(request)
    return str(found.value)


def test_a_broker_that_is_no_member_is_not_believed(place: Path, etcd: EtcdProcess) -> None:
    """It gets nothing, is waited for by no producer, and ends no epoch; nor does a member that
    says it knows an epoch which etcd does not have."""
    # A lease this long does not end while the machine stands still, so the leader stays.
    settings = {"acks_all_durability": "written", "cluster_lease_ms": 20_000}
    with cluster(place, etcd, count=2, **settings) as all_:
        all_.start()
        all_.program.ok("topic", "create", TOPIC)
        leader = all_.in_sync()
        assert leader is all_[1]
        before = leader.status()
        nonce = decode_identity((all_[2].data_dir / IDENTITY_FILE).read_bytes()).identity.nonce
        for hello in (
            {"broker_id": 4, "nonce": 99},
            {"broker_id": 2, "nonce": nonce + 1},
            {"broker_id": 2, "nonce": nonce, "highest_epoch": 2_000_000_000},
        ):
            assert "is no member of this cluster" in refused(all_, **hello)
        with closing(RawClient(leader.address)) as client:
            answer = client.call(produce(TOPIC, message_set(1), acks=-1, timeout_ms=20_000))
        assert result(answer).error_code == 0
        after = leader.status()
        assert (after.leader, after.epoch) == (before.leader, before.epoch)
        assert after.in_sync == before.in_sync == [1, 2]
        came = [line for line in leader.told().splitlines() if "follower_came" in line]
        assert came
        assert all("broker=2" in line for line in came)
