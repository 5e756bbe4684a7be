"""describe-client-quotas and alter-client-quotas, in both encodings and all versions."""

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.kafka.refusals import refusal
from horolog.protocol.api.security.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlteration,
    QuotaComponent,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.protocol.errors import CodedError, InvalidRequest
from horolog.server.quotas.rules import DEFAULT, Entity, QuotaFilter
from horolog.testing.wire import Wire

from .conftest import ENCODINGS, Parts, Serving, alteration, connection, set_quota

NAN, INFINITE = float("nan"), float("inf")
RATE = "producer_byte_rate"


def asked(*entries: QuotaAlteration, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def component(kind: str, match_type: int, name: str | None = None) -> QuotaComponent:
    return QuotaComponent(entity_type=kind, match_type=match_type, match=name)


def told(response: DescribeClientQuotasResponse) -> dict[str, dict[str, float]]:
    return {
        "/".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


async def describe(
    client: Wire, *components: QuotaComponent, strict: bool = False, version: int = 1
) -> dict[str, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = await client.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    return told(response)


USER_A: Parts = {"user": "a"}
PAIR: Parts = {"client-id": None, "user": "a"}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("version", [0, 1])
async def test_there_and_back(serving: Serving, encoding: Encoding, version: int) -> None:
    async with serving() as broker, connection(broker, encoding) as client:
        assert await describe(client, version=version) == {}
        answer = await client.call(
            asked(
                alteration(USER_A, producer_byte_rate=1e6, request_percentage=0.1),
                alteration(PAIR, controller_mutation_rate=2.5),
                alteration({"client-id": "é"}, consumer_byte_rate=2.0**62),
            ),
            version,
        )
        assert [each.error_code for each in answer.entries] == [0, 0, 0]
        assert [part.entity_type for part in answer.entries[1].entity] == ["client-id", "user"]
        everything = {
            "user=a": {RATE: 1e6, "request_percentage": 0.1},
            "user=a/client-id=None": {"controller_mutation_rate": 2.5},
            "client-id=é": {"consumer_byte_rate": 2.0**62},
        }
        assert await describe(client, version=version) == everything
        users = await describe(client, component("user", 2), version=version)
        assert users.keys() == {"user=a", "user=a/client-id=None"}
        only = await describe(client, component("user", 2), strict=True, version=version)
        assert only.keys() == {"user=a"}
        await client.call(asked(alteration(USER_A, producer_byte_rate=None)), version)
        left = await describe(client, component("user", 0, "a"), strict=True, version=version)
        assert left == {"user=a": {"request_percentage": 0.1}}


NAMES = st.sampled_from([None, DEFAULT, "a", "b"])
MATCHES = st.sampled_from([(0, "a"), (0, "b"), (1, None), (2, None)])


@given(
    st.builds(Entity, NAMES, NAMES),
    st.dictionaries(st.sampled_from(["user", "client-id"]), MATCHES),
    st.booleans(),
)
def test_what_a_filter_means(
    entity: Entity, wanted: dict[str, tuple[int, str | None]], strict: bool
) -> None:
    """KIP-546: every component has to be matched; strict, and there may be no other part."""
    request = DescribeClientQuotasRequest(
        components=[component(kind, *match) for kind, match in wanted.items()], strict=strict
    )
    parts = {"user": entity.user, "client-id": entity.client_id}
    named = {kind: name for kind, name in parts.items() if name is not None}
    fits = all(
        kind in named and {0: named[kind] == name, 1: named[kind] == "", 2: True}[number]
        for kind, (number, name) in wanted.items()
    )
    assert QuotaFilter(request).means(entity) == (
        fits and not (strict and named.keys() - wanted.keys())
    )


@pytest.mark.parametrize(
    ("components", "says"),
    [
        ([component("ip", 2)], "no quotas of 'ip'"),
        ([component("x" * 9999, 2)], "no quotas of 'xxx"),
        ([component("user", 2), component("user", 2)], "user is named twice"),
        ([component("user", 0)], "match_type of user is 0, with no name"),
        ([component("user", 2, "a")], "match_type of user is 2, with a name"),
        ([component("user", 3)], "match_type of user is 3"),
        ([component("user", -1)], "match_type of user is -1"),
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_filters_that_make_no_sense(
    serving: Serving, encoding: Encoding, components: list[QuotaComponent], says: str
) -> None:
    async with serving() as broker, connection(broker, encoding) as client:
        request = DescribeClientQuotasRequest(components=components)
        try:
            response = await client.call(request)
            code, message = response.error_code, response.error_message
        except CodedError as error:
            code, message = error.code, error.message
        assert (code, says in message) == (InvalidRequest.code, True)
        assert len(message) < 400


def entry(parts: Any, *ops: tuple[str, float, bool]) -> QuotaAlteration:
    return QuotaAlteration(
        entity=[QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[QuotaOp(key=key, value=value, remove=remove) for key, value, remove in ops],
    )


A = [("user", "a")]
HOSTILE = [
    *((entry(A, (RATE, value, False)), "above 0 and below 2^63") for value in (-1.0, 0.0, NAN)),
    *((entry(A, (RATE, value, False)), "2^63") for value in (INFINITE, -INFINITE, 2.0**63)),
    (entry(A, (RATE, 0.5, False)), "whole number"),
    (entry(A, ("juggling_rate", 1.0, False)), "no quota 'juggling_rate'"),
    (entry(A, ("x" * 30_000, 1.0, False)), "no quota 'xxx"),
    (entry(A, (RATE, 1.0, False), (RATE, 2.0, False)), "named twice"),
    (entry([], (RATE, 1.0, False)), "not said whose"),
    (entry([("ip", "1.2.3.4")], ("connection_creation_rate", 1.0, False)), "no quotas of 'ip'"),
    (entry([("user", "a"), ("user", "b")], (RATE, 1.0, False)), "user is named twice"),
    (entry([("user", "")], (RATE, 1.0, False)), "0 bytes"),
    (entry([("user", "x" * 30_000)], (RATE, 1.0, False)), "30000 bytes; allowed are 1 to 255"),
    (entry([("client-id", "a\x1b[2J")], (RATE, 1.0, False)), "printable"),
]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_what_no_quota_can_be_is_refused_and_the_others_are_set(
    serving: Serving, encoding: Encoding
) -> None:
    fine = [alteration({"user": "b"}, producer_byte_rate=number) for number in (1.0, 7.0)]
    async with serving() as broker, connection(broker, encoding) as client:
        request = asked(fine[0], *(each for each, _ in HOSTILE), fine[1])
        first, *results, last = (await client.call(request)).entries
        assert (first.error_code, last.error_code) == (0, 0)
        for (wrong, says), result in zip(HOSTILE, results, strict=True):
            assert result.error_code == InvalidRequest.code, wrong
            assert says in result.error_message
            assert len(result.error_message) < 400
            assert [part.entity_type for part in result.entity] == [
                part.entity_type for part in wrong.entity
            ]
        assert await describe(client) == {"user=b": {RATE: 7.0}}


async def test_only_validated(serving: Serving) -> None:
    async with serving() as broker, connection(broker) as client:
        good, bad = alteration(USER_A, producer_byte_rate=5), entry(A, (RATE, -1.0, False))
        answer = await client.call(asked(good, bad, validate_only=True))
        assert [each.error_code for each in answer.entries] == [0, InvalidRequest.code]
        assert await describe(client) == {}
        assert broker.dispatcher.meter is None
        assert broker.directory.metadata.log.log_end_offset == 0


async def test_changes_are_told_to_the_audit(serving: Serving) -> None:
    stream = StringIO()
    start = serving(log_stream=stream, log_format="json")
    async with start as broker, connection(broker) as client:
        await set_quota(client, PAIR, producer_byte_rate=5, request_percentage=2.5)
        await set_quota(client, PAIR, producer_byte_rate=None)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    changes = [line for line in lines if line["event"] == "quota_changed"]
    assert [line["change"] for line in changes] == [
        "producer_byte_rate=5, request_percentage=2.5",
        "producer_byte_rate removed",
    ]
    for line in changes:
        assert line["logger"] == "audit"
        assert line["what"] == "user a, client-id the default"
        assert (line["by"], line["outcome"]) == ("User:ANONYMOUS", "done")


def test_a_refusal_as_a_whole_names_every_entity() -> None:
    """Kafka's client looks for its entities in the answer."""
    request = asked(alteration(USER_A, producer_byte_rate=5), alteration(PAIR, **{RATE: None}))
    refused = refusal(AlterClientQuotasResponse, request, 31, "no")
    assert [(each.error_code, each.error_message) for each in refused.entries] == [(31, "no")] * 2
    assert [each.entity for each in refused.entries] == [each.entity for each in request.entries]
    frame = kafka.encode_response(5, ALTER_CLIENT_QUOTAS, 1, refused)
    _, raw = kafka.open_response(frame[4:])
    assert kafka.decode_response(AlterClientQuotasResponse, 1, raw) == refused
