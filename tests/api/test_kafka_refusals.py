"""Responses of Kafka's encoding that refuse a whole request."""

from typing import Any

import pytest

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.groups.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.kafka.refusals import refusal
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api
from horolog.protocol.api.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.server.outcomes import first_error
from horolog.testing.requests import fetch

from .conftest import example

KAFKA_APIS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in api.versions(native=False)
    if api.name != "describe-log-dirs"  # Its response names directories, which a request does not.
]


def sent(api: Api, version: int, request: Any) -> Any:
    frame = kafka.encode_refusal(RequestHead(api.key, version, 9, None), api, request, 42, "why")
    head, raw = kafka.open_response(frame[4:])
    assert head.correlation_id == 9
    return kafka.decode_response(api.response, version, raw)


@pytest.mark.parametrize(("api", "version"), KAFKA_APIS)
def test_every_request_can_be_refused(api: Api, version: int) -> None:
    assert first_error(refusal(api.response, example(api.request, version), 42, "why")) == 42


@pytest.mark.parametrize("version", range(11))
def test_a_fetch_is_refused_by_partition(version: int) -> None:
    """The code of the whole answer is about sessions: a client that finds NOT_LEADER there asks the
    same broker again, for ever."""
    response = sent(FETCH, version, fetch("t", (3, 0), (5, 0)))
    assert [(one.partition, one.error_code) for one in response.topics[0].partitions] == [
        (3, 42),
        (5, 42),
    ]
    assert response.error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_positions_are_refused_where_each_version_has_room(version: int) -> None:
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="t", partitions=[0])])
    response = sent(OFFSET_FETCH, version, request)
    assert response.topics[0].partitions[0].error_code == 42
    assert response.error_code == (42 if version >= 2 else 0)


def test_all_that_was_named_is_refused() -> None:
    partitions = [ListOffsetsPartition(partition=n, timestamp=-1) for n in (3, 5)]
    topics = [ListOffsetsTopic(name=name, partitions=partitions) for name in "ab"]
    response = sent(LIST_OFFSETS, 4, ListOffsetsRequest(topics=topics))
    assert [
        (topic.name, result.partition, result.error_code)
        for topic in response.topics
        for result in topic.partitions
    ] == [("a", 3, 42), ("a", 5, 42), ("b", 3, 42), ("b", 5, 42)]


@pytest.mark.parametrize("request_", [None, MetadataRequest(topics=None)])
def test_where_nothing_was_named_the_connection_is_closed(request_: Any) -> None:
    with pytest.raises(ProtocolError, match="why"):
        sent(METADATA, 7, request_)


def test_a_request_that_does_not_exist_closes_the_connection() -> None:
    with pytest.raises(ProtocolError, match="why"):
        kafka.encode_refusal(RequestHead(999, 0, 9, None), None, None, 35, "why")


def test_a_change_of_users_is_refused_by_user() -> None:
    upsertion = ScramUpsertion(
        name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
    )
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramDeletion(name="b", mechanism=1), ScramDeletion(name="a", mechanism=2)],
        upsertions=[upsertion],
    )
    refused = refusal(AlterUserScramCredentialsResponse, request, 31, "why")
    assert [(each.user, each.error_code, each.error_message) for each in refused.results] == [
        ("b", 31, "why"),
        ("a", 31, "why"),
    ]
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    refused = refusal(AlterUserScramCredentialsResponse, request, 31, "")
    assert [each.user for each in refused.results] == ["a"]
