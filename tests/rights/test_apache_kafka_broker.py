"""The requests of the matrix sent to an Apache Kafka with rules, and to us: the same refusals."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from horolog.bench.apache_kafka import ApacheKafka, apache_kafka
from horolog.protocol.api.groups.find_coordinator import FindCoordinatorRequest
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.schema import replaced
from horolog.protocol.api.security.acl_terms import CLUSTER_NAME, Operation, PatternType, Permission
from horolog.protocol.api.security.acls import (
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from horolog.protocol.api.security.scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from horolog.protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.records.batch import build_batch
from horolog.protocol.records.messages.sets import NewRecord
from horolog.server.outcomes import first_error
from horolog.server.security.acls import Acl
from horolog.testing.access import log_in_to_kafka
from horolog.testing.requests import produce
from horolog.testing.wire import Wire, wire

from .conftest import CLUSTER, GROUP, TOPIC, Right, Strict, connection, only, rule
from .test_matrix import CASES, SINGLE, Case, asked, cases_of, prepare

pytestmark = [pytest.mark.timeout(900), pytest.mark.secure_clients]

RULE_SETS: Final = 40
NOT_ASKED: Final = {"sasl-handshake", "sasl-authenticate", "api-versions"}
"""They ask for no right, and begin another login."""

USER, PASSWORD = "asker", "asker-secret-3307"
_PACKAGE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The brokers among themselves, and whoever makes the rules here.
    "super.users": "User:ANONYMOUS",
    "listener.name.asked.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.asked.scram-sha-512.sasl.jaas.config": _PACKAGE,
}
_ANY: Final = 1
_TRIES: Final = 3_000
_ANSWER_SECONDS: Final = 60


@pytest.fixture(scope="module")
def apache(
    require_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    with apache_kafka(
        tmp_path_factory.mktemp("apache-kafka"),
        settings=_SETTINGS,
        listeners={"ASKED": "SASL_PLAINTEXT"},
        users=[f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"],
    ) as running:
        yield running


@dataclass(frozen=True)
class Theirs:
    """Connections to an Apache Kafka: of the user who makes the rules, and of their subject."""

    admin: Wire
    asker: Wire

    async def only(self, rules: Sequence[Acl]) -> None:
        """Have these rules and no others, in force."""
        every: dict[str, Any] = {
            "resource_type": _ANY,
            "resource_name": None,
            "pattern_type": _ANY,
            "principal": None,
            "host": None,
            "operation": _ANY,
            "permission_type": _ANY,
        }
        await self.admin.call(DeleteAclsRequest(filters=[AclFilter(**every)]))
        if rules:
            made = await self.admin.call(CreateAclsRequest(creations=[*map(_creation, rules)]))
            assert {one.error_code for one in made.results} == {0}
        request = DescribeAclsRequest(**every)
        for _ in range(_TRIES):
            described = await self.admin.call(request)
            if sum(len(one.acls) for one in described.resources) == len(set(rules)):
                return
            await asyncio.sleep(0.02)
        raise TimeoutError("the rules do not come into force")


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=f"User:{USER}" if acl.principal == "User:ANONYMOUS" else acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


@pytest.fixture
async def theirs(apache: ApacheKafka) -> AsyncIterator[Theirs]:
    async with wire(apache.bootstrap, kafka) as admin, wire(apache.at("ASKED"), kafka) as asker:
        await log_in_to_kafka(asker, USER, PASSWORD)
        await admin.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)]))
        commit = next(case.request for case in CASES if case.name == "offset-commit")
        for _ in range(_TRIES):  # until the topic has a leader and the group a coordinator
            await admin.call(FindCoordinatorRequest(key="g"))
            if first_error(await admin.call(commit)) == 0:
                break
            await asyncio.sleep(0.05)
        else:
            raise TimeoutError("the group has no coordinator")
        yield Theirs(admin, asker)


def cases() -> list[Case]:
    """Those of the matrix, as both take them."""
    batch = bytes(build_batch([NewRecord(b"value", timestamp_ms=1_700_000_000_000)]))
    found = []
    for case, _ in cases_of(kafka):
        if case.name == "produce":
            found.append(replace(case, request=produce("t", batch)))
        elif isinstance(case.request, MetadataRequest) and case.request.topics is None:
            # Kafka has topics of its own in such a list.
            found.append(replace(case, shows=lambda answer: "t" in {t.name for t in answer.topics}))
        elif case.name == "describe-user-scram-credentials":
            # Without names Apache Kafka 3.9 fails to refuse it, and does not answer at all.
            request = DescribeUserScramCredentialsRequest(users=[UserName(name="x")])
            found.append(replace(case, request=request))
        elif case.name not in NOT_ASKED and case.name != "delete-topics":
            found.append(case)
    return found


def to_kafka(case: Case) -> Case:
    """The same with the number that Kafka's broker has here."""
    resources = getattr(case.request, "resources", [])
    if not resources or resources[0].resource_name != "0":
        return case
    named = replaced(resources[0], resource_name="1")
    return replace(case, request=replaced(case.request, resources=[named]))


def rule_sets(seed: str) -> Iterator[list[Acl]]:
    """None, each single right on everything, and some at random."""
    yield []
    for right in SINGLE:
        yield [rule(right)]
    choose = random.Random(seed)
    for _ in range(RULE_SETS):
        yield list(dict.fromkeys(_rule(choose) for _ in range(choose.randrange(1, 8))))


def _rule(choose: random.Random) -> Acl:
    kind = choose.choice((TOPIC, TOPIC, GROUP, CLUSTER))
    operations = [each for each in Operation if each > Operation.ANY]
    right: Right = choose.choice(operations), kind
    if kind is CLUSTER:
        named: dict[str, Any] = {"resource_name": CLUSTER_NAME}
    elif choose.random() < 0.5:
        named = {"resource_name": choose.choice(("t", "g", "x", "*"))}
    else:
        pattern = PatternType.PREFIXED
        named = {"resource_name": choose.choice(("t", "g", "n", "xy")), "pattern_type": pattern}
    return rule(
        right,
        principal=choose.choice(("User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:other")),
        host=choose.choice(("*", "127.0.0.1", "10.1.2.3")),
        permission=choose.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        **named,
    )


async def test_both_refuse_the_same(
    theirs: Theirs, strict: Strict, pytestconfig: pytest.Config
) -> None:
    """29, 30 and 31, and what lists leave out."""
    seen: set[tuple[bool, int]] = set()
    wrong = []
    async with strict() as broker, connection(broker, kafka) as client:
        await prepare(broker)
        for rules in rule_sets(pytestconfig.getoption("--hypothesis-seed")):
            only(broker, *rules)
            await theirs.only(rules)
            for case in cases():
                ours, told = await _asked(client, case), await _asked(theirs.asker, to_kafka(case))
                seen.add(ours)
                if ours != told:
                    wrong.append((case.name, ours, told, [str(each) for each in rules]))
    assert wrong[:10] == []
    assert seen == {(True, 0), (False, 0), (False, 29), (False, 30), (False, 31)}


async def test_deleting_without_the_right_to(theirs: Theirs, strict: Strict) -> None:
    """Who may only Describe is told by Kafka that there is no such topic, and by us that it may not
    delete one: both know already."""
    request = DeleteTopicsRequest(topic_names=["x", "t"])
    async with strict() as broker, connection(broker, kafka) as client:
        await prepare(broker)
        for right, ours, kafkas in (
            ((Operation.READ, GROUP), [29, 29], [29, 29]),
            ((Operation.DESCRIBE, TOPIC), [29, 29], [3, 29]),
        ):
            only(broker, rule(right))
            await theirs.only([rule(right)])
            answers = [await one.call(request) for one in (client, theirs.asker)]
            assert [codes_by_name(each) for each in answers] == [ours, kafkas]


def codes_by_name(answer: Any) -> list[int]:
    """Of x, then of t."""
    return [one.error_code for one in sorted(answer.responses, key=lambda one: one.name == "t")]


async def _asked(client: Wire, case: Case) -> tuple[bool, int]:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            answered, code = await asked(client, case)
    except TimeoutError:
        raise TimeoutError(f"no answer to {case.request}") from None
    return answered, 0 if answered else code
