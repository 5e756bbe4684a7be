"""What the log tells of refusals and changes."""

import io
import json
from typing import Any

import pytest

from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acls import AclCreation, CreateAclsRequest
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
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.server.security import audit
from horolog.server.security.audit import REFUSALS, Audit
from horolog.testing.requests import create_topic, message_set, produce

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
    assert {(line["by"], line["peer"]) for line in lines} == {(ANONYMOUS, "127.0.0.1")}
    assert [(line["event"], line["what"], line["change"], line["outcome"]) for line in lines] == [
        ("topic_changed", "t", "created", "done"),
        ("topic_changed", "t", "created", "TOPIC_ALREADY_EXISTS"),
        ("settings_changed", "t", "altered", "done"),
        ("topic_changed", "t", "given partitions", "done"),
        ("topic_changed", "t", "deleted", "done"),
        ("acl_changed", "User:x at * may Read topic 't'", "added", "done"),
    ]


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
    assert len(kept._counts) == 3
    kept._window_ends()
    assert [(each["by"], each["count"]) for _, each in seen[3 * REFUSALS :]] == [
        (who, 1000 - REFUSALS) for who in ("a", "b", "others")
    ]
    kept.refused("a", "::1", "fetch", "Read", "topic 't'")
    assert seen[-1][0] == "action_refused"
    kept.stop()
