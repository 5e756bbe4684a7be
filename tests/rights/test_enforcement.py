"""What becomes of requests, part by part, where some of it may be done and some may not."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    LIST_POSITIONS,
    OffsetFetchRequest,
)
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acl_terms import PatternType, Permission
from horolog.protocol.api.security.acls import (
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from horolog.protocol.api.topics.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import (
    CodedError,
    GroupAuthorizationFailed,
    InvalidRequest,
    SecurityDisabled,
)
from horolog.server.broker import Broker
from horolog.testing.requests import (
    create_topic,
    fetch,
    message_set,
    produce,
    produce_to,
    result,
    results,
)
from horolog.testing.waiting import until

from .conftest import (
    CLUSTER,
    ENCODINGS,
    GROUP,
    TOPIC,
    Strict,
    add,
    connection,
    only,
    rule,
)

ALL = tuple(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER))


async def topics(broker: Broker, *names: str) -> None:
    """Topics with a message each."""
    only(broker, *ALL)
    async with connection(broker, native) as client:
        for name in names:
            await client.call(create_topic(name))
            await client.call(produce(name, message_set(5)))


def names(answer: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_each_topic_by_itself(strict: Strict, encoding: Encoding) -> None:
    async with strict() as broker, connection(broker, encoding) as client:
        await topics(broker, "open", "shut")
        only(broker, rule((Op.ALL, TOPIC), "open"))
        asked = [MetadataTopic(name=name) for name in ("shut", "open", "none")]
        answer = await client.call(MetadataRequest(topics=asked))
        assert sorted(names(answer)) == [("none", 29), ("open", 0), ("shut", 29)]
        assert answer.brokers
        refused = [topic for topic in answer.topics if topic.error_code]
        assert all(not topic.partitions for topic in refused)
        assert names(await client.call(MetadataRequest(topics=None))) == [("open", 0)]
        both = fetch("open", (0, 0))
        both.topics += fetch("shut", (0, 0)).topics + fetch("none", (0, 0)).topics
        answer = await client.call(both)
        found = {topic.name: topic.partitions[0] for topic in answer.topics}
        assert {name: each.error_code for name, each in found.items()} == {
            "open": 0,
            "shut": 29,
            "none": 29,
        }
        assert found["open"].records
        assert not found["shut"].records
        both_sets = produce("open", message_set(6))
        both_sets.topics += produce_to("shut", [(0, message_set(7)), (3, message_set(7))]).topics
        answer = await client.call(both_sets)
        assert [each.error_code for each in results(answer)] == [0, 29, 29]
        assert [each.base_offset for each in results(answer)] == [1, -1, -1]
        listed = ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsPartition(partition=0, timestamp=-1)]
                )
                for name in ("shut", "open")
            ]
        )
        answer = await client.call(listed)
        told = {topic.name: topic.partitions[0] for topic in answer.topics}
        assert (told["open"].offset, told["shut"].error_code, told["shut"].offset) == (2, 29, -1)
        only(broker, *ALL)
        assert result(await client.call(fetch("shut", (0, 1)))).high_watermark == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_no_answer_tells_whether_a_topic_exists(strict: Strict, encoding: Encoding) -> None:
    """The same for one that there is and one that there is not."""
    async with strict() as broker, connection(broker, encoding) as client:
        await topics(broker, "there")
        only(broker)

        def asked(name: str) -> list[Any]:
            commit = OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitTopic(
                        name=name,
                        partitions=[OffsetCommitPartition(partition=0, committed_offset=1)],
                    )
                ],
            )
            return [
                MetadataRequest(topics=[MetadataTopic(name=name)]),
                fetch(name, (0, 0), (7, 0), max_wait_ms=60_000, min_bytes=1),
                produce(name, message_set(5)),
                commit,
                create_topic(name),
                DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_name=name)]),
            ]

        for there, away in zip(asked("there"), asked("aways"), strict=True):
            told = []
            for request in (there, away):
                try:
                    answer = repr(await client.call(request))
                    told.append(re.sub(r"<memory at \w+>", "", answer))
                except CodedError as error:
                    told.append(repr(error))
            assert told[0].replace("there", "aways") == told[1]
        assert list(broker.directory.topics()) == ["there"]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_topic_is_made_only_by_who_may(strict: Strict, encoding: Encoding) -> None:
    async with strict() as broker, connection(broker, encoding) as client:
        only(broker, rule((Op.WRITE, TOPIC)), rule((Op.READ, TOPIC)))
        answer = await client.call(MetadataRequest(topics=[MetadataTopic(name="new")]))
        assert names(answer) == [("new", 29)]
        assert result(await client.call(produce("new", message_set(1)))).error_code == 29
        assert not broker.directory.topics()
        for right in ((Op.CREATE, TOPIC), (Op.CREATE, CLUSTER)):
            name = right[1].name.lower()
            only(broker, rule((Op.WRITE, TOPIC)), rule(right, name))
            answer = await client.call(MetadataRequest(topics=[MetadataTopic(name=name)]))
            assert names(answer) == [(name, 0)]
            made = result(await client.call(produce(f"{name}2", message_set(1))))
            assert made.error_code == (0 if right[1] is CLUSTER else 29)


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_rule_that_is_taken_away_holds_for_the_next_request(
    strict: Strict, encoding: Encoding
) -> None:
    """Also for those that were sent together, and that many connections send."""
    async with strict() as broker, connection(broker, encoding) as client:
        await topics(broker, "t")
        only(broker, rule((Op.READ, TOPIC)), rule((Op.WRITE, TOPIC)), rule((Op.ALTER, CLUSTER)))
        for _ in range(3):
            assert result(await client.call(produce("t", message_set(5)))).error_code == 0
            assert result(await client.call(fetch("t", (0, 0)))).error_code == 0
        gone = AclFilter(
            resource_type=2,
            resource_name=None,
            principal=None,
            host=None,
            operation=4,
            permission_type=1,
        )
        sent = client.send_together(
            produce("t", message_set(5)),
            DeleteAclsRequest(filters=[gone]),
            produce("t", message_set(5)),
            fetch("t", (0, 0)),
        )
        answers = [(await client.receive())[1] for _ in sent]
        assert result(answers[0]).error_code == 0
        assert len(answers[1].filter_results[0].matching_acls) == 1
        assert [result(each).error_code for each in answers[2:]] == [29, 0]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_fetch_that_waits_already_is_answered_as_it_was_asked(
    strict: Strict, encoding: Encoding
) -> None:
    """As docs/security/guarding.md says: the next one is refused."""
    async with (
        strict() as broker,
        connection(broker, encoding) as client,
        connection(broker, encoding) as producer,
    ):
        await topics(broker, "t")
        only(broker, rule((Op.READ, TOPIC)))
        client.send_together(fetch("t", (0, 1), max_wait_ms=60_000, min_bytes=1))
        await until(lambda: broker.parked()["fetch"] == 1)
        only(broker, rule((Op.WRITE, TOPIC)))
        assert result(await producer.call(produce("t", message_set(5)))).error_code == 0
        _, answer = await client.receive()
        assert result(answer).error_code == 0
        assert result(answer).records
        assert result(await client.call(fetch("t", (0, 1)))).error_code == 29


async def test_requests_of_many_that_are_heard_together(strict: Strict) -> None:
    """Of two connections in one turn, and several requests of each."""
    async with strict() as broker:
        await topics(broker, "t", "u")
        only(broker, rule((Op.WRITE, TOPIC), "t"))
        async with connection(broker, native) as one, connection(broker, native) as two:
            kept = [produce("t", message_set(5)), produce("u", message_set(5))] * 3
            for client in (one, two):
                client.send_together(*kept)
            for client in (one, two):
                told = [result((await client.receive())[1]).error_code for _ in kept]
                assert told == [0, 29] * 3
        ends = {log.topic: log.log_end_offset for log in broker.logs()}
        assert ends == {"t": 7, "u": 1}


async def test_an_append_without_an_answer_that_is_refused(strict: Strict) -> None:
    async with strict() as broker, connection(broker, kafka) as client:
        await topics(broker, "t", "u")
        only(broker, rule((Op.WRITE, TOPIC), "t"))
        request = produce("t", message_set(5), acks=0)
        request.topics += produce("u", message_set(5)).topics
        client.send(next(iter_api(request)), 2, request)
        assert await client.at_end()
        ends = {log.topic: log.log_end_offset for log in broker.logs()}
        assert ends == {"t": 2, "u": 1}


def iter_api(request: Any) -> Any:
    from horolog.protocol.api.registry import APIS

    return (api for api in APIS.values() if api.request is type(request))


async def test_a_fetch_that_waits_beside_one_that_is_refused(strict: Strict) -> None:
    async with strict() as broker, connection(broker, kafka) as client:
        await topics(broker, "t", "u")
        only(broker, rule((Op.READ, TOPIC), "t"), rule((Op.WRITE, TOPIC), "t"))
        request = fetch("t", (0, 1), max_wait_ms=30_000, min_bytes=1)
        request.topics += fetch("u", (0, 0)).topics
        waiting = asyncio.ensure_future(client.call(request))
        await until(lambda: broker.parked()["fetch"] == 1)
        async with connection(broker, native) as writer:
            await writer.call(produce("t", message_set(9)))
        answer = await waiting
        assert [each.error_code for each in results(answer)] == [0, 29]
        assert results(answer)[0].records


async def test_who_may_deny_wins(strict: Strict) -> None:
    async with strict() as broker, connection(broker, native) as client:
        await topics(broker, "t-1", "t-2")
        deny = {"permission": Permission.DENY}
        only(
            broker,
            rule((Op.ALL, TOPIC), "t-", pattern_type=PatternType.PREFIXED),
            rule((Op.WRITE, TOPIC), "t-2", principal="User:*", **deny),
            rule((Op.READ, TOPIC), "t-1", host="10.1.2.3", **deny),
        )
        for name, code in (("t-1", 0), ("t-2", 29)):
            assert result(await client.call(produce(name, message_set(5)))).error_code == code
            assert result(await client.call(fetch(name, (0, 0)))).error_code == 0


async def test_super_users_and_nobody_else(strict: Strict) -> None:
    for super_users, code in (("", 29), ("User:bob;User:ANONYMOUS", 0)):
        async with strict(super_users=super_users) as broker, connection(broker, kafka) as client:
            assert result(await client.call(produce("t", message_set(5)))).error_code == code


async def test_positions_that_may_not_be_seen(strict: Strict) -> None:
    """Pages of lists go on however much of them is left out."""
    async with strict() as broker, connection(broker, native) as client:
        every = [f"t{number}" for number in range(5)]
        await topics(broker, *every)
        for group in ("a", "b", "c", "d"):
            parts = [OffsetCommitPartition(partition=0, committed_offset=1)]
            committed = [OffsetCommitTopic(name=name, partitions=parts) for name in every]
            await client.call(OffsetCommitRequest(group_id=group, topics=committed))
        only(
            broker,
            rule((Op.DESCRIBE, GROUP), "c"),
            rule((Op.DESCRIBE, TOPIC), "t1"),
            rule((Op.DESCRIBE, TOPIC), "t4"),
        )
        listed = OffsetFetchRequest(group_id="", topics=[], listing=LIST_NAMES)
        for limit in (1, 2, 100):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("horolog.server.handlers.positions.MAX_LISTED", limit)
                answer = await client.call(listed)
                assert answer.names == ["c"]
                found, after = [], ""
                while True:
                    request = OffsetFetchRequest(
                        group_id="c", topics=[], listing=LIST_POSITIONS, after=after
                    )
                    answer = await client.call(request)
                    found += [topic.name for topic in answer.topics]
                    if not answer.more or not answer.topics:
                        break
                    after = found[-1]
                assert found == ["t1", "t4"]
        with pytest.raises(GroupAuthorizationFailed):
            await client.call(OffsetFetchRequest(group_id="a", topics=[], listing=LIST_POSITIONS))
        async with connection(broker, kafka) as other:
            answer = await other.call(OffsetFetchRequest(group_id="c", topics=None))
            assert [topic.name for topic in answer.topics] == ["t1", "t4"]
            answer = await other.call(OffsetFetchRequest(group_id="a", topics=None))
            assert (answer.error_code, answer.topics) == (30, [])


async def test_without_authorization_rules_are_kept_and_not_looked_at(strict: Strict) -> None:
    async with strict(authorization="off") as broker, connection(broker, kafka) as client:
        add(broker, rule((Op.ALL, TOPIC), permission=Permission.DENY))
        assert result(await client.call(produce("t", message_set(5)))).error_code == 0
        assert broker.dispatcher._guard is None


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_without_authorization_rules_are_neither_shown_nor_changed(
    strict: Strict, encoding: Encoding
) -> None:
    """As by Kafka without an authorizer."""
    about: dict[str, Any] = {"resource_type": 2, "principal": "User:x", "host": "*", "operation": 3}
    added = AclCreation(resource_name="t", permission_type=3, **about)
    meant = AclFilter(resource_name="t", permission_type=3, **about)
    shown = DescribeAclsRequest(
        resource_type=1,
        resource_name=None,
        pattern_type=1,
        principal=None,
        host=None,
        operation=1,
        permission_type=1,
    )
    async with strict(authorization="off") as broker, connection(broker, encoding) as client:
        kept = rule((Op.READ, TOPIC), "t", principal="User:x")
        add(broker, kept)
        made = (await client.call(CreateAclsRequest(creations=[added, added]))).results
        gone = (await client.call(DeleteAclsRequest(filters=[meant, meant]))).filter_results
        told = await client.call(shown)
        assert [one.error_code for one in (*made, *gone, told)] == [SecurityDisabled.code] * 5
        assert "authorization=on" in told.error_message
        assert list(broker.security.acls.table.acls) == [kept]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_rule_for_a_host_where_no_client_can_be(
    strict: Strict, encoding: Encoding, tmp_path: Path
) -> None:
    hosts = ["localhost", "999.1.1.1", "10.0.0.0/8", "", "10.1.2.3", "::1", "*"]
    asked = [
        AclCreation(
            resource_type=2,
            resource_name="t",
            principal="User:x",
            host=host,
            operation=3,
            permission_type=3,
        )
        for host in hosts
    ]
    async with strict() as broker, connection(broker, encoding) as client:
        only(broker, rule((Op.ALTER, CLUSTER)), rule((Op.DESCRIBE, CLUSTER)))
        stored = rule((Op.READ, TOPIC), "t", host="by-an-earlier-version")
        add(broker, stored)
        made = await client.call(CreateAclsRequest(creations=asked))
        codes = [result.error_code for result in made.results]
        assert codes == [InvalidRequest.code] * 4 + [0] * 3
        for host, result in zip(hosts[:3], made.results, strict=False):
            assert repr(host) in str(result.error_message)
            assert "no IP address" in str(result.error_message)
        assert {acl.host for acl in broker.security.acls.table.acls} == {*hosts[4:], stored.host}
    async with strict() as broker:
        assert stored in broker.security.acls.table
