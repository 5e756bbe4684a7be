"""Every request of both protocols x {no rights, each single right}, of a broker that runs."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.api.broker.describe_broker import DescribeBrokerRequest
from horolog.protocol.api.broker.describe_cluster import DescribeClusterRequest
from horolog.protocol.api.broker.describe_quorum import DescribeQuorumRequest
from horolog.protocol.api.cluster.describe_replicas import DescribeReplicasRequest
from horolog.protocol.api.cluster.promote import PromoteRequest
from horolog.protocol.api.cluster.replicate import ReplicateRequest, Says
from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.groups.delete_groups import DeleteGroupsRequest
from horolog.protocol.api.groups.describe_groups import DescribeGroupsRequest
from horolog.protocol.api.groups.find_coordinator import FindCoordinatorRequest
from horolog.protocol.api.groups.heartbeat import HeartbeatRequest
from horolog.protocol.api.groups.join_group import JoinGroupRequest
from horolog.protocol.api.groups.leave_group import LeaveGroupRequest
from horolog.protocol.api.groups.list_groups import ListGroupsRequest
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from horolog.protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    LIST_POSITIONS,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from horolog.protocol.api.groups.sync_group import SyncGroupRequest
from horolog.protocol.api.log.count_by_time import CountByTimeRequest
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.log.describe_log_dirs import DescribeLogDirsRequest
from horolog.protocol.api.log.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from horolog.protocol.api.log.describe_removals import DescribeRemovalsRequest
from horolog.protocol.api.log.init_producer_id import InitProducerIdRequest
from horolog.protocol.api.log.list_transactions import ListTransactionsRequest
from horolog.protocol.api.log.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acls import (
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from horolog.protocol.api.security.authenticate import AuthenticateRequest
from horolog.protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.protocol.api.security.sasl_authenticate import SaslAuthenticateRequest
from horolog.protocol.api.security.sasl_handshake import SaslHandshakeRequest
from horolog.protocol.api.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramDeletion,
)
from horolog.protocol.api.topics.alter_configs import AlterConfigsRequest, AlterConfigsResource
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.elect_leaders import ElectLeadersRequest
from horolog.protocol.api.topics.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from horolog.protocol.api.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import CodedError
from horolog.server.outcomes import first_error
from horolog.server.reference import is_enough
from horolog.testing.requests import fetch, list_offsets, message_set, produce
from horolog.testing.wire import Wire

from .conftest import CLUSTER, ENCODINGS, GROUP, TOPIC, Right, Strict, connection, only, rule

SINGLE: list[Right] = [
    (operation, kind)
    for kind in (TOPIC, GROUP, CLUSTER)
    for operation in Op
    if operation not in (Op.UNKNOWN, Op.ANY)
]
REFUSALS = {29: TOPIC, 30: GROUP, 31: CLUSTER}

DESCRIBES = (Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL)


def any_of(kind: Any, *operations: Op) -> set[Right]:
    return {(operation, kind) for operation in (*operations, Op.ALL)}


def describe(kind: Any) -> set[Right]:
    return any_of(kind, *DESCRIBES)


EVERY = set(SINGLE)


@dataclass(frozen=True)
class Case:
    """A request, which single rights are enough for it, and the error without."""

    name: str
    request: Any
    enough: Collection[Right]
    code: int = 0
    shows: Callable[[Any], bool] | None = None
    """Whether the answer has what a list is to show; those that lack it say no error."""


def resources(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


ACL: dict[str, Any] = {"principal": "nobody", "host": "*", "operation": 3, "permission_type": 3}
ACL_FILTER: dict[str, Any] = {"host": None, "operation": 1, "permission_type": 1}

CASES = [
    Case("produce", produce("t", message_set(5)), any_of(TOPIC, Op.WRITE), 29),
    Case("fetch", fetch("t", (0, 0)), any_of(TOPIC, Op.READ), 29),
    Case("list-offsets", list_offsets("t", (0, -1)), describe(TOPIC), 29),
    Case("metadata", MetadataRequest(topics=[MetadataTopic(name="t")]), describe(TOPIC), 29),
    Case(
        "metadata",
        MetadataRequest(topics=None),
        describe(TOPIC),
        shows=lambda answer: bool(answer.topics),
    ),
    Case(
        "offset-commit",
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitTopic(
                    name="t",
                    partitions=[OffsetCommitPartition(partition=0, committed_offset=0)],
                )
            ],
        ),
        (),  # of the group and of the topic
        29,
    ),
    Case(
        "offset-fetch",
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="t", partitions=[0])]),
        (),
        29,
    ),
    Case(
        "offset-fetch",
        OffsetFetchRequest(group_id="g", topics=[], listing=LIST_NAMES),
        describe(GROUP),
        shows=lambda answer: answer.names == ["g"],
    ),
    Case("find-coordinator", FindCoordinatorRequest(key="g"), describe(GROUP), 30),
    # Those that are let in fail in a moment: the member is none, the timeout is too short.
    Case(
        "join-group",
        JoinGroupRequest(
            group_id="g", session_timeout_ms=1, member_id="", protocol_type="x", protocols=[]
        ),
        any_of(GROUP, Op.READ),
        30,
    ),
    Case(
        "heartbeat",
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        any_of(GROUP, Op.READ),
        30,
    ),
    Case("leave-group", LeaveGroupRequest(group_id="g", member_id="m"), any_of(GROUP, Op.READ), 30),
    Case(
        "sync-group",
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
        any_of(GROUP, Op.READ),
        30,
    ),
    Case("describe-groups", DescribeGroupsRequest(groups=["g"]), describe(GROUP), 30),
    Case(
        "list-groups",
        ListGroupsRequest(),
        describe(GROUP) | any_of(CLUSTER, *DESCRIBES),
        shows=lambda answer: [each.group_id for each in answer.groups] == ["g"],
    ),
    Case(
        "offset-delete",
        OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteTopic(name="t", partitions=[OffsetDeletePartition(partition=1)])],
        ),
        (),  # of the group and of the topic
        29,
    ),
    Case("delete-groups", DeleteGroupsRequest(groups_names=["none"]), any_of(GROUP, Op.DELETE), 30),
    Case("sasl-handshake", SaslHandshakeRequest(mechanism="PLAIN"), EVERY),
    Case("api-versions", ApiVersionsRequest(), EVERY),
    Case(
        "create-topics",
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1)], validate_only=True
        ),
        any_of(TOPIC, Op.CREATE) | any_of(CLUSTER, Op.CREATE),
        29,
    ),
    Case("delete-topics", DeleteTopicsRequest(topic_names=["x"]), any_of(TOPIC, Op.DELETE), 29),
    Case(
        "delete-records",
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition=0, offset=0)]
                )
            ]
        ),
        any_of(TOPIC, Op.DELETE),
        29,
    ),
    Case(
        "init-producer-id",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
        any_of(CLUSTER, Op.IDEMPOTENT_WRITE) | any_of(TOPIC, Op.WRITE),
        31,
    ),
    Case(
        "offset-for-leader-epoch",
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochTopic(
                    name="t",
                    partitions=[OffsetForLeaderEpochPartition(partition=0, leader_epoch=0)],
                )
            ]
        ),
        describe(TOPIC) | any_of(CLUSTER, Op.CLUSTER_ACTION),
        29,
    ),
    Case(
        "describe-acls",
        DescribeAclsRequest(resource_type=1, resource_name=None, principal="User:x", **ACL_FILTER),
        describe(CLUSTER),
        31,
    ),
    Case(
        "create-acls",
        CreateAclsRequest(creations=[AclCreation(resource_type=2, resource_name="t", **ACL)]),
        any_of(CLUSTER, Op.ALTER),
        31,
    ),
    Case(
        "delete-acls",
        DeleteAclsRequest(
            filters=[
                AclFilter(resource_type=1, resource_name=None, principal="User:x", **ACL_FILTER)
            ]
        ),
        any_of(CLUSTER, Op.ALTER),
        31,
    ),
    Case(
        "describe-configs",
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_name="t")]),
        any_of(TOPIC, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        29,
    ),
    Case(
        "describe-configs",
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(**resources(BROKER_RESOURCE, "0"))]
        ),
        any_of(CLUSTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        31,
    ),
    Case(
        "alter-configs",
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_name="t", configs=[])], validate_only=True
        ),
        any_of(TOPIC, Op.ALTER_CONFIGS),
        29,
    ),
    Case(
        "alter-configs",
        AlterConfigsRequest(
            resources=[AlterConfigsResource(**resources(BROKER_RESOURCE, "0"), configs=[])]
        ),
        any_of(CLUSTER, Op.ALTER_CONFIGS),
        31,
    ),
    Case(
        "incremental-alter-configs",
        IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsResource(resource_name="t", configs=[])],
            validate_only=True,
        ),
        any_of(TOPIC, Op.ALTER_CONFIGS),
        29,
    ),
    Case(
        "incremental-alter-configs",
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(**resources(BROKER_RESOURCE, "0"), configs=[])
            ]
        ),
        any_of(CLUSTER, Op.ALTER_CONFIGS),
        31,
    ),
    Case("sasl-authenticate", SaslAuthenticateRequest(auth_bytes=b""), EVERY),
    Case(
        "create-partitions",
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2)], validate_only=True
        ),
        any_of(TOPIC, Op.ALTER),
        29,
    ),
    Case(
        "describe-client-quotas",
        DescribeClientQuotasRequest(components=[]),
        any_of(CLUSTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        31,
    ),
    Case(
        "alter-client-quotas",
        AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(
                    entity=[QuotaEntityPart(entity_type="user", entity_name="x")],
                    ops=[QuotaOp(key="producer_byte_rate", value=1.0, remove=False)],
                )
            ],
            validate_only=True,
        ),
        any_of(CLUSTER, Op.ALTER_CONFIGS),
        31,
    ),
    Case(
        "describe-user-scram-credentials",
        DescribeUserScramCredentialsRequest(users=None),
        describe(CLUSTER),
        31,
    ),
    Case(
        "alter-user-scram-credentials",
        AlterUserScramCredentialsRequest(deletions=[ScramDeletion(name="x", mechanism=1)]),
        any_of(CLUSTER, Op.ALTER),
        31,
    ),
    Case(
        "describe-log",
        DescribeLogRequest(topics=[DescribeLogTopic(name="t", partitions=[0])]),
        describe(TOPIC),
        29,
    ),
    Case("describe-removals", DescribeRemovalsRequest(topic="t"), describe(TOPIC), 29),
    Case("describe-broker", DescribeBrokerRequest(), describe(CLUSTER), 31),
    Case(
        "count-by-time",
        CountByTimeRequest(topic="t", partition=0, from_ms=0, until_ms=10),
        describe(TOPIC),
        29,
    ),
    Case("elect-leaders", ElectLeadersRequest(topic_partitions=[]), any_of(CLUSTER, Op.ALTER), 31),
    Case(
        "list-partition-reassignments",
        ListPartitionReassignmentsRequest(),
        describe(CLUSTER),
        31,
    ),
    Case("describe-quorum", DescribeQuorumRequest(topics=[]), describe(CLUSTER), 31),
    Case("describe-cluster", DescribeClusterRequest(), EVERY),
    Case(
        "describe-producers",
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partitions=[0])]),
        any_of(TOPIC, Op.READ),
        29,
    ),
    Case("list-transactions", ListTransactionsRequest(), EVERY),
    Case("authenticate", AuthenticateRequest(), EVERY),
    Case(
        "replicate",
        ReplicateRequest(says=Says.HELLO, connection=1, broker_id=2),
        any_of(CLUSTER, Op.CLUSTER_ACTION),
        31,
    ),
    Case("describe-replicas", DescribeReplicasRequest(), describe(CLUSTER), 31),
    Case("promote", PromoteRequest(), any_of(CLUSTER, Op.ALTER), 31),
]

LOG_DIRS = {
    True: Case("describe-log-dirs", DescribeLogDirsRequest(topics=None), describe(CLUSTER), 31),
    False: Case(
        "describe-log-dirs",
        DescribeLogDirsRequest(topics=None),
        describe(CLUSTER),
        shows=lambda answer: bool(answer.results),  # as Kafka's versions 0 and 1
    ),
}
NATIVE_ONLY_LISTS = (LIST_NAMES, LIST_POSITIONS)


def cases_of(encoding: Encoding) -> list[tuple[Case, Any]]:
    apis = {api.request: api for api in APIS.values()}
    found = []
    for case in (*CASES, LOG_DIRS[encoding.NATIVE]):
        listing = getattr(case.request, "listing", "")
        versions = apis[type(case.request)].versions(native=encoding.NATIVE)
        if len(versions) and (encoding.NATIVE or listing not in NATIVE_ONLY_LISTS):
            found.append((case, versions))
    return found


async def asked(client: Wire, case: Case) -> tuple[bool, int]:
    """Whether the request was answered, and the code where it was not."""
    try:
        answer = await client.call(case.request)
    except CodedError as error:
        return error.code not in REFUSALS, error.code
    code = first_error(answer)
    if code in REFUSALS:
        return False, code
    return (True, 0) if case.shows is None else (case.shows(answer), 0)


def test_every_request_is_in_the_matrix() -> None:
    apis = {api.name for api in APIS.values()}
    assert apis == {case.name for case in CASES} | {"describe-log-dirs"}
    for case in CASES:
        assert next(api for api in APIS.values() if api.name == case.name).request is type(
            case.request
        )


def test_the_page_says_the_same() -> None:
    """The first case of each request is what the page's matrix is about."""
    first = {case.name: case for case in reversed((*CASES, LOG_DIRS[True]))}
    for api in APIS.values():
        case = first[api.name]
        told = {right for right in SINGLE if is_enough(api.rights, *right)}
        assert told == set(case.enough), api.name


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_the_matrix(strict: Strict, encoding: Encoding) -> None:
    async with strict() as broker, connection(broker, encoding) as client:
        await prepare(broker)
        cases = [case for case, _ in cases_of(encoding)]
        wrong = []
        for right in (None, *SINGLE):
            only(broker, *(() if right is None else (rule(right),)))
            for case in cases:
                answered, code = await asked(client, case)
                expected = right in case.enough or case.enough is EVERY
                # Without the right to the group it is that which is told.
                told = code if case.enough == () and code in (29, 30) else case.code
                if answered != expected or (not answered and code != told):
                    wrong.append((case.name, right, answered, code))
        assert wrong == []


async def prepare(broker: Any) -> None:
    """A topic with a message, and a name with a position."""
    only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
    async with connection(broker, native) as client:
        made = await client.call(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])
        )
        assert first_error(made) == 0
        commit = next(case.request for case in CASES if case.name == "offset-commit")
        assert first_error(await client.call(commit)) == 0
