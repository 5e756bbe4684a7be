"""incremental-alter-configs: what is named changes, all of it or nothing; the rest stays."""

import pytest

from horolog.protocol.api.topics.describe_configs import BROKER_RESOURCE
from horolog.protocol.api.topics.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResult,
    IncrementalConfig,
)
from horolog.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from horolog.server.broker import Broker
from horolog.testing.requests import create_topic
from horolog.testing.wire import Wire

Change = tuple[str, int, str | None]

OWN, KAFKAS = "max.message.time.difference.ms", "message.timestamp.difference.max.ms"


@pytest.fixture(params=["kafka 0", "kafka 1", "own"])
def speaker(
    request: pytest.FixtureRequest, client: Wire, own_client: Wire
) -> tuple[Wire, int | None]:
    """A client of each encoding, and the version that it speaks."""
    kind, _, version = request.param.partition(" ")
    return (client if kind == "kafka" else own_client), int(version or 1)


def of_topic(name: str, *changes: Change) -> IncrementalAlterConfigsResource:
    configs = [
        IncrementalConfig(name=setting, config_operation=operation, value=value)
        for setting, operation, value in changes
    ]
    return IncrementalAlterConfigsResource(resource_name=name, configs=configs)


async def altered(
    speaker: tuple[Wire, int],
    *resources: IncrementalAlterConfigsResource,
    validate_only: bool = False,
) -> list[IncrementalAlterConfigsResult]:
    client, version = speaker
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    found: list[IncrementalAlterConfigsResult] = (await client.call(request, version)).responses
    return found


def overrides(broker: Broker, topic: str) -> dict[str, str]:
    return dict(broker.directory.topics()[topic].overrides)


async def test_what_is_named_changes_and_the_rest_stays(
    broker: Broker, client: Wire, speaker: tuple[Wire, int]
) -> None:
    await client.call(create_topic("a", retention_ms=5, segment_bytes=1000, segment_ms=8))
    changes = [("retention.ms", SET, "7"), ("segment.bytes", DELETE, None), (KAFKAS, SET, "9")]
    (tried,) = await altered(speaker, of_topic("a", *changes), validate_only=True)
    assert tried.error_code == 0
    assert overrides(broker, "a") == {
        "retention.ms": "5",
        "segment.bytes": "1000",
        "segment.ms": "8",
    }
    (made,) = await altered(speaker, of_topic("a", *changes))
    assert (made.error_code, made.resource_type, made.resource_name) == (0, 2, "a")
    assert overrides(broker, "a") == {"retention.ms": "7", "segment.ms": "8", OWN: "9"}
    # What is not set may be unset, and a value beside that means nothing; none is no change.
    (made,) = await altered(speaker, of_topic("a", ("flush.ms", DELETE, "x"), (OWN, DELETE, None)))
    assert made.error_code == 0
    (made,) = await altered(speaker, of_topic("a"))
    assert made.error_code == 0
    assert overrides(broker, "a") == {"retention.ms": "7", "segment.ms": "8"}


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (("segment.bytes", SET, "0"), InvalidConfig, "segment.bytes"),
        (("no.such", SET, "1"), InvalidConfig, "no.such"),
        (("no.such", DELETE, None), InvalidConfig, "no.such"),
        (("segment.ms", SET, None), InvalidRequest, "set to null"),
        (("segment.ms", APPEND, "5"), InvalidConfig, "is no list"),
        (("segment.ms", SUBTRACT, "5"), InvalidConfig, "is no list"),
        (("cleanup.policy", SET, "keep"), InvalidConfig, "delete, compact"),
        (("cleanup.policy", APPEND, "keep"), InvalidConfig, "delete, compact"),
        (("cleanup.policy", SUBTRACT, "delete"), InvalidConfig, "delete, compact"),
        (("cleanup.policy", APPEND, None), InvalidRequest, "null"),
        (("segment.ms", 4, "1"), InvalidRequest, "config_operation is 4"),
        (("segment.ms", -1, "1"), InvalidRequest, "config_operation is -1"),
        (("retention.ms", SET, "9"), InvalidRequest, "more than once"),
        (("retention.ms", DELETE, None), InvalidRequest, "more than once"),
        (("log.retention.ms", DELETE, None), InvalidRequest, "under two of its names"),
    ],
)
async def test_a_refused_change_changes_nothing_of_its_topic(
    broker: Broker,
    client: Wire,
    speaker: tuple[Wire, int],
    change: Change,
    error: type[InvalidConfig | InvalidRequest],
    named: str,
) -> None:
    for topic in ("a", "b"):
        await client.call(create_topic(topic, segment_ms=7))
    wanted = of_topic("a", ("retention.ms", SET, "3"), change)
    refused, made = await altered(speaker, wanted, of_topic("b", ("retention.ms", SET, "3")))
    assert refused.error_code == error.code
    assert named in (refused.error_message or "")
    assert made.error_code == 0
    assert overrides(broker, "a") == {"segment.ms": "7"}
    assert overrides(broker, "b") == {"segment.ms": "7", "retention.ms": "3"}


async def test_what_cannot_be_altered(broker: Broker, speaker: tuple[Wire, int]) -> None:
    of_broker = IncrementalAlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name="0",
        configs=[IncrementalConfig(name="max.topics", value="5")],
    )
    of_user = IncrementalAlterConfigsResource(resource_type=7, resource_name="x", configs=[])
    answers = await altered(speaker, of_topic("nowhere"), of_broker, of_user)
    assert [each.error_code for each in answers] == [
        UnknownTopicOrPartition.code,
        InvalidRequest.code,
        InvalidRequest.code,
    ]


async def test_a_topic_that_is_named_twice(
    broker: Broker, client: Wire, speaker: tuple[Wire, int]
) -> None:
    await client.call(create_topic("a"))
    twice = [of_topic("a", ("retention.ms", SET, "3")), of_topic("a", ("segment.ms", SET, "3"))]
    (refused,) = await altered(speaker, *twice)
    assert refused.error_code == InvalidRequest.code
    assert overrides(broker, "a") == {}


async def test_a_list_is_appended_to_and_taken_out_of(
    broker: Broker, client: Wire, speaker: tuple[Wire, int]
) -> None:
    """What is appended comes behind the value in force, the broker's or the default too."""
    await client.call(create_topic("a"))
    for operation, items, policy in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact, delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        (made,) = await altered(speaker, of_topic("a", ("cleanup.policy", operation, items)))
        assert made.error_code == 0, made.error_message
        assert overrides(broker, "a") == {"cleanup.policy": policy}
