"""Users, access rules and quotas of a cluster: set at the leader, they hold at every member."""

from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest

from horolog.client.administer.access import AclAdmin, QuotaAdmin, UserAdmin
from horolog.protocol.api.security.acl_terms import Operation, ResourceType
from horolog.protocol.api.security.acls import AclCreation, AclFilter, CreateAclsRequest
from horolog.protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.protocol.api.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
)
from horolog.protocol.errors import CodedError, NotLeader, ReplicaNotAvailable
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import password_matches, salted_password
from horolog.testing.program import Program
from horolog.testing.requests import create_topic, fetch, message_set, produce, result

from .members import Member, Members, eventually, members
from .test_reading import allowed

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
PASSWORD = "secret-of-alice"
READ, TOPIC, LITERAL, ALLOW = 3, 2, 3, 3


def upsertion(name: str = "alice") -> ScramUpsertion:
    salted = salted_password(SHA_256, PASSWORD, b"salt", 4096)
    return ScramUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )


def creation(topic: str) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )


def alteration(value: float) -> QuotaAlteration:
    return QuotaAlteration(
        entity=[QuotaEntityPart(entity_type="user", entity_name="alice")],
        ops=[QuotaOp(key="consumer_byte_rate", value=value, remove=not value)],
    )


async def set_all(member: Member, *topics: str, quota: float = 5000.0) -> None:
    """A user, rules and a quota, by the requests of tools."""
    async with UserAdmin(member.address) as users:
        await users.alter_users([upsertion()])
    async with AclAdmin(member.address) as acls:
        await acls.add_acls([creation(topic) for topic in topics])
    async with QuotaAdmin(member.address) as quotas:
        await quotas.alter_quotas([alteration(quota)])


def held(member: Member) -> tuple[Any, ...]:
    """The users, rules and quotas that count at a broker."""
    assert member.broker is not None
    security = member.broker.security
    users = {name: security.users.credentials(name) for name in security.users.names()}
    return (users, security.acls.table.acls, dict(security.quotas.table.quotas))


def may_read(member: Member, topic: str) -> bool:
    assert member.broker is not None
    rights = member.broker.security.authorizer.rights("User:alice", "127.0.0.1")
    return rights.may(Operation.READ, ResourceType.TOPIC, topic)


def strict(place: Path, count: int = 2, **settings: Any) -> Any:
    """Members that look at rules. Requests without a login may do everything."""
    return members(
        place,
        count=count,
        authorization="on",
        super_users="User:ANONYMOUS",
        **settings,
    )


async def same(all_: Members, leader: Member) -> None:
    """Wait until the same users, rules and quotas count at all members."""
    await all_.in_sync(leader)
    await eventually(lambda: all(held(one) == held(leader) for one in all_.all.values()))


async def test_what_is_set_at_the_leader_holds_at_every_member(place: Path) -> None:
    async with strict(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await set_all(leader, "t", "u")
        await same(all_, leader)
        assert follower.broker is not None
        users = follower.broker.security.users
        assert password_matches(users.credential("alice", SHA_256), PASSWORD)
        assert may_read(follower, "t")
        (quota,) = follower.broker.security.quotas.table.quotas.values()
        assert list(quota.values()) == [5000.0]
        meter = follower.broker.dispatcher.meter
        assert meter is not None
        # The salt of a name without a user shows no more at one member than at another.
        assert leader.broker is not None
        decoys = [
            one.security.users.credential("nobody", SHA_256)
            for one in (leader.broker, follower.broker)
        ]
        assert decoys[0] == decoys[1]
        async with AclAdmin(leader.address) as acls:
            name = AclFilter(
                resource_type=TOPIC,
                resource_name="t",
                pattern_type=LITERAL,
                principal=None,
                host=None,
                operation=1,
                permission_type=1,
            )
            assert len(await acls.remove_acls([name])) == 1
        async with UserAdmin(leader.address) as admin:
            await admin.alter_users(removed={"alice": [1]})
        async with QuotaAdmin(leader.address) as quotas:
            await quotas.alter_quotas([alteration(0.0)])
        await same(all_, leader)
        assert held(follower)[0] == held(follower)[2] == {}
        assert not may_read(follower, "t")
        assert may_read(follower, "u")
        assert follower.broker.dispatcher.meter is None


async def test_a_change_that_was_answered_outlives_its_leader(place: Path) -> None:
    """It is in all brokers in sync, as a topic is; a restart and a new leader show it."""
    async with strict(place, min_insync_replicas=2) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await set_all(first, "t")
        before = held(first)
        ends = [one.cluster.store.metadata.log.log_end_offset for one in (first, second)]
        assert ends[0] == ends[1]
        await first.stop()
        await second.promote()
        await eventually(lambda: second.cluster.store.knows)
        assert held(second) == before


async def test_a_new_follower_gets_them_with_the_stored_state(place: Path) -> None:
    async with strict(place) as all_:
        await all_[1].start(cluster_create=True)
        leader = all_[1]
        await set_all(leader, "t")
        metadata = leader.cluster.store.metadata
        metadata.state_wanted = True
        leader.cluster.store.moved()
        await eventually(lambda: metadata.log.log_start_offset == metadata.log.log_end_offset)
        await all_[2].start(follow=leader)
        await same(all_, leader)
        assert may_read(all_[2], "t")


@pytest.mark.parametrize(
    "request_",
    [
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("bob")]),
        CreateAclsRequest(creations=[creation("x")]),
        AlterClientQuotasRequest(entries=[alteration(1.0)], validate_only=False),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_a_follower_names_the_leader_instead(place: Path, request_: Any) -> None:
    async with strict(place) as all_:
        await all_.start()
        with pytest.raises(NotLeader, match=all_[1].address):
            await all_[2].call(request_)
        assert held(all_[2]) == held(all_[1]) == ({}, (), {})


async def test_too_few_in_sync_refuse_a_change(place: Path) -> None:
    async with strict(place, min_insync_replicas=2) as all_:
        await all_.start()
        await all_[2].leave()
        await eventually(lambda: len(all_[1].cluster.node.leader.isr.members) == 1)
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion()])
        with pytest.raises(CodedError, match=r"min\.insync"):
            await all_[1].call(request)
        assert held(all_[1])[0] == {}


async def test_a_change_is_planned_upon_the_one_before(place: Path) -> None:
    """Two requests at one time: the second one sees what the first has done."""
    async with strict(place) as all_:
        await all_.start()
        removal = ScramDeletion(name="alice", mechanism=1)
        adds = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion()])
        removes = AlterUserScramCredentialsRequest(deletions=[removal], upsertions=[])
        leader = all_[1]
        for request, code in ((removes, 91), (adds, 0), (adds, 0), (removes, 0), (removes, 91)):
            answer = await leader.call(request)
            assert [each.error_code for each in answer.results] == [code]
        await same(all_, leader)
        answer = await all_[2].call(DescribeUserScramCredentialsRequest(users=None))
        assert answer.results == []


async def test_a_follower_of_a_silent_leader_reads_nothing_by_old_rules(place: Path) -> None:
    async with strict(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic("t"))
        assert result(await leader.call(produce("t", message_set(5), acks=-1))).error_code == 0
        await eventually(
            lambda: (
                "t" in follower.broker.directory.topics() and follower.log("t").high_watermark == 1
            )
        )
        read = allowed(fetch("t", (0, 0)))
        assert result(await follower.call(read)).error_code == 0
        silent = PropertyMock(return_value=True)
        with patch.object(type(follower.cluster.states), "leader_is_silent", silent):
            with pytest.raises(ReplicaNotAvailable, match=r"lag\.time\.max\.ms .* may be old"):
                await follower.call(read)
            assert result(await leader.call(read)).error_code == 0


async def test_the_first_user_can_be_added_before_the_first_start(place: Path) -> None:
    data_dir = place / "member1"
    adding = ("user", "add", "alice", "--password-file", "-", "--data-dir", data_dir)
    Program().ok(*adding, stdin=PASSWORD)
    async with strict(place) as all_:
        await all_.start()
        await same(all_, all_[1])
        assert [list(held(one)[0]) for one in all_.all.values()] == [["alice"]] * 2
    refused = Program()(*adding, stdin=PASSWORD)
    assert refused.code != 0
    assert "ask a running member with --server" in refused.err


async def test_what_a_single_broker_had_goes_when_it_joins_as_a_follower(place: Path) -> None:
    """Its metadata log begins at offset 0 without epochs, as the leader's may: the two could not be
    told apart, and its users would stay beside those of the cluster."""
    async with strict(place) as all_:
        leader, joining = all_[1], all_[2]
        await leader.start(cluster_create=True)
        await set_all(leader, "t")
        adding = ("user", "add", "carol", "--password-file", "-", "--data-dir", joining.data_dir)
        Program().ok(*adding, stdin="secret of carol")
        await joining.start(follow=leader)
        await same(all_, leader)
        users, _, _ = held(joining)
        assert users.keys() == {"alice"}
