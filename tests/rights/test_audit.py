"""What the log tells of refusals and changes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acls import AclCreation, CreateAclsRequest
from horolog.protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.create_topics import CreateTopicsRequest
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.server.security import audit
from horolog.server.security.audit import FAILURES, REFUSALS, Audit
from horolog.testing.access import log_in
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.wire import Wire
from horolog.tests.guard.conftest import add_users

from .conftest import ANONYMOUS, CLUSTER, GROUP, TOPIC, Strict, connection, only, rule


def told(stream: io.StringIO) -> list[dict[str, Any]]:
    lines = map(json.loads, stream.getvalue().splitlines())
    return [line for line in lines if line.get("logger") == "audit"]


@pytest.mark.parametrize("authorization", ["on", "off"])
async def test_each_change_is_told(strict: Strict, authorization: str) -> None:
    stream = io.StringIO()
    settings = {"log_stream": stream, "log_format": "json", "authorization": authorization}
    async with strict(**settings) as broker, connection(broker, native) as client:
        only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
        await client.call(create_topic("t"))
        await client.call(create_topic("t"))
        dry: CreateTopicsRequest = create_topic("dry")
        dry.validate_only = True
        await client.call(dry)
        alter = AlterConfigsResource(
            resource_name="t", configs=[AlterableConfig(name="retention.ms", value="1000")]
        )
        await client.call(AlterConfigsRequest(resources=[alter]))
        some = IncrementalAlterConfigsResource(
            resource_name="t", configs=[IncrementalConfig(name="retention.ms", value="soon")]
        )
        await client.call(IncrementalAlterConfigsRequest(resources=[some]))
        more = CreatePartitionsTopic(name="t", count=2)
        await client.call(CreatePartitionsRequest(topics=[more]))
        await client.call(DeleteTopicsRequest(topic_names=["t"]))
        rules = [
            AclCreation(
                resource_type=2,
                resource_name=name,
                principal="User:x",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in ("t", "")
        ]
        await client.call(CreateAclsRequest(creations=rules))
    lines = told(stream)
    added = "acl_changed", "User:x at * may Read topic 't'", "added", "done"
    assert {(line["by"], line["peer"]) for line in lines} == {(ANONYMOUS, "127.0.0.1")}
    assert [(line["event"], line["what"], line["change"], line["outcome"]) for line in lines] == [
        ("topic_changed", "t", "created", "done"),
        ("topic_changed", "t", "created", "TOPIC_ALREADY_EXISTS"),
        ("settings_changed", "t", "altered", "done"),
        ("settings_changed", "t", "altered", "INVALID_CONFIG"),
        ("topic_changed", "t", "given partitions", "done"),
        ("topic_changed", "t", "deleted", "done"),
        *([] if authorization == "off" else [added]),
    ]


ON_DEMAND = "made on demand"


@pytest.mark.parametrize("authorization", ["on", "off"])
async def test_topics_that_are_made_on_demand_are_told(strict: Strict, authorization: str) -> None:
    """By the first message, or by a question about them; with the user and the result."""
    stream = io.StringIO()
    settings = {
        "log_stream": stream,
        "log_format": "json",
        "authorization": authorization,
        "auto_create_topics_enable": True,
        "max_topics": 3,
    }
    async with (
        strict(**settings) as broker,
        connection(broker, native) as client,
        connection(broker, kafka) as other,
    ):
        only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
        sent = [produce(name, message_set(5)) for name in ("a", "a", "b")]
        client.send_together(*sent)
        for _ in sent:
            await client.receive()
        for _ in range(2):
            asked = MetadataRequest(
                topics=[MetadataTopic(name="c")], allow_auto_topic_creation=True
            )
            await other.call(asked, 4)
        await client.call(produce("d", message_set(5)))
        await client.call(produce("a", message_set(5)))
    lines = told(stream)
    assert {(line["by"], line["peer"]) for line in lines} == {(ANONYMOUS, "127.0.0.1")}
    assert [(line["event"], line["what"], line["change"], line["outcome"]) for line in lines] == [
        ("topic_changed", "a", ON_DEMAND, "done"),
        ("topic_changed", "b", ON_DEMAND, "done"),
        ("topic_changed", "c", ON_DEMAND, "done"),
        ("topic_changed", "d", ON_DEMAND, "POLICY_VIOLATION"),
    ]


async def test_who_has_topics_made_is_told_apart(tmp_path: Path) -> None:
    """Requests of many connections are handled together; each topic is its own sender's."""
    stream = io.StringIO()
    async with running_broker(
        tmp_path,
        log_stream=stream,
        log_format="json",
        http_listen="off",
        authentication="required",
        allow_plaintext=True,
        auto_create_topics_enable=True,
    ) as broker:
        names = [f"user-{number}" for number in range(8)]
        add_users(broker, **dict.fromkeys(names, "password"))
        clients = [await Wire.open(broker.addresses.native) for _ in names]
        for name, client in zip(names, clients, strict=True):
            await log_in(client, name, "password")
        for name, client in zip(names, clients, strict=True):
            client.send_together(produce(f"of-{name}", message_set(5)))
        for client in clients:
            await client.receive()
            client.close()
    made = {line["what"]: line["by"] for line in told(stream) if line["event"] == "topic_changed"}
    assert made == {f"of-{name}": f"User:{name}" for name in names}


async def test_a_topic_that_may_not_be_made_is_told(strict: Strict) -> None:
    stream = io.StringIO()
    async with (
        strict(log_stream=stream, log_format="json", auto_create_topics_enable=True) as broker,
        connection(broker, native) as client,
    ):
        only(broker, rule((Op.WRITE, TOPIC)), rule((Op.DESCRIBE, TOPIC)))
        await client.call(produce("new", message_set(5)))
        asked = MetadataRequest(topics=[MetadataTopic(name="new")], allow_auto_topic_creation=True)
        await client.call(asked)
        assert "new" not in broker.directory.topics()
    assert [(line["event"], line["operation"], line["resource"]) for line in told(stream)] == [
        ("action_refused", "Create", "topic 'new'")
    ] * 2


async def test_refusals_are_told_and_bounded(strict: Strict) -> None:
    """No message is in them."""
    stream = io.StringIO()
    asked = 3 * REFUSALS
    async with (
        strict(log_stream=stream, log_format="json") as broker,
        connection(broker, native) as client,
    ):
        request = produce("t", message_set(5, value=b"the-secret-message"))
        client.send_together(*[request] * asked)
        for _ in range(asked):
            await client.receive()
    lines = told(stream)
    assert len(lines) == REFUSALS + 1
    assert "the-secret-message" not in stream.getvalue()
    refused = {
        "event": "action_refused",
        "by": ANONYMOUS,
        "peer": "127.0.0.1",
        "request": "produce",
        "operation": "Write",
        "resource": "topic 't'",
        "outcome": "refused",
    }
    for line in lines[:-1]:
        assert {name: line[name] for name in refused} == refused
    assert (lines[-1]["event"], lines[-1]["count"]) == ("refusals_not_shown", asked - REFUSALS)


async def test_one_who_is_refused_often_hides_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is by principal, and it is told when the time is over."""
    monkeypatch.setattr(audit, "MAX_PRINCIPALS", 2)
    seen: list[tuple[str, dict[str, object]]] = []

    def observe(event: str, /, **fields: object) -> None:
        seen.append((event, fields))

    kept = Audit(observe)
    for number in range(1000):
        for who in ("a", "b", f"c{number}"):
            kept.refused(who, "::1", "fetch", "Read", "topic 't'")
    assert len(seen) == 3 * REFUSALS
    assert len(kept._refusals.by_principal) == 3
    kept._window_ends()
    assert [(each["by"], each["count"]) for _, each in seen[3 * REFUSALS :]] == [
        (who, 1000 - REFUSALS) for who in ("a", "b", "others")
    ]
    kept.refused("a", "::1", "fetch", "Read", "topic 't'")
    assert seen[-1][0] == "action_refused"
    kept.stop()


async def test_what_changes_nothing_has_no_line(strict: Strict) -> None:
    """Rules that there are, settings and log starts that stay as they are, quotas too."""
    stream = io.StringIO()
    rules = [
        AclCreation(
            resource_type=2,
            resource_name=f"t-{number}",
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(50)
    ]
    alter = AlterConfigsResource(
        resource_name="t", configs=[AlterableConfig(name="retention.ms", value="1000")]
    )
    quota = QuotaAlteration(
        entity=[QuotaEntityPart(entity_type="user", entity_name="x")],
        ops=[QuotaOp(key="producer_byte_rate", value=9.0, remove=False)],
    )
    trim = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition=0, offset=1)])
    async with (
        strict(log_stream=stream, log_format="json") as broker,
        connection(broker, native) as client,
    ):
        only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
        await client.call(create_topic("t"))
        await client.call(produce("t", message_set(5, 5)))
        changes = [
            CreateAclsRequest(creations=[*rules, *rules]),
            AlterConfigsRequest(resources=[alter]),
            AlterClientQuotasRequest(entries=[quota], validate_only=False),
            DeleteRecordsRequest(topics=[trim]),
        ]
        for change in changes:
            await client.call(change)
        made = len(told(stream))
        for change in changes:
            await client.call(change)
    assert made == 1 + 50 + 1 + 1 + 1
    assert len(told(stream)) == made


async def test_changes_that_fail_are_bounded(strict: Strict) -> None:
    """For each principal; those that are made all have their line."""
    stream = io.StringIO()
    asked = 10 * FAILURES
    async with (
        strict(log_stream=stream, log_format="json") as broker,
        connection(broker, native) as client,
    ):
        only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
        absent = [f"absent-{number}" for number in range(asked)]
        await client.call(DeleteTopicsRequest(topic_names=absent))
        await client.call(create_topic("t"))
        await client.call(DeleteTopicsRequest(topic_names=absent))
        await client.call(DeleteTopicsRequest(topic_names=["t"]))
    lines = told(stream)
    failed = [line for line in lines if line.get("outcome") == "UNKNOWN_TOPIC_OR_PARTITION"]
    assert len(failed) == FAILURES
    done = [(line["what"], line["change"]) for line in lines if line.get("outcome") == "done"]
    assert done == [("t", "created"), ("t", "deleted")]
    last = lines[-1]
    assert (last["event"], last["by"]) == ("failures_not_shown", ANONYMOUS)
    assert last["count"] == 2 * asked - FAILURES
