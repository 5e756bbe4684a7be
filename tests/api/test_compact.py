"""Kafka's compact encoding, beside bytes that were written by hand from its description."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.security.scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    CredentialInfo,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
    UserName,
)
from horolog.protocol.errors import InvalidRequest

HEAD = "0032 0000 00000007 0002 6d65"  # describe, version 0, correlation id 7, client id "me"

REQUEST = AlterUserScramCredentialsRequest(
    deletions=[ScramDeletion(name="a", mechanism=1)],
    upsertions=[
        ScramUpsertion(
            name="b" * 200, mechanism=2, iterations=8192, salt=b"\1\2", salted_password=b"\3"
        )
    ],
)


def described(body: str) -> DescribeUserScramCredentialsRequest:
    frame = bytes.fromhex(HEAD + body)
    _, raw = kafka.open_request(frame)
    return kafka.decode_body(DescribeUserScramCredentialsRequest, 0, raw)


def refused(body: str) -> str:
    with pytest.raises(InvalidRequest) as error:
        described(body)
    return error.value.message


def test_a_request() -> None:
    assert described("00 03 0261 00 03 c3a9 00 00") == DescribeUserScramCredentialsRequest(
        users=[UserName(name="a"), UserName(name="é")]
    )
    assert described("00 00 00").users is None
    assert described("00 01 00").users == []


def test_tagged_fields_are_skipped() -> None:
    # One in the head, one in a user, two in the body, of 2, 0, 1 and 3 bytes.
    tagged = described("01 00 02 ffff 02 0261 01 05 00 02 00 01 aa 8101 03 010203")
    assert tagged == DescribeUserScramCredentialsRequest(users=[UserName(name="a")])


def test_what_is_written() -> None:
    written = kafka.encode_request(ALTER_USER_SCRAM_CREDENTIALS, 0, 7, "me", REQUEST)
    body = "00 02 0261 01 00 02 c901" + "62" * 200 + "02 00002000 03 0102 02 03 00 00"
    frame = bytes.fromhex("0033 0000 00000007 0002 6d65" + body)
    assert written == len(frame).to_bytes(4, "big") + frame
    _, raw = kafka.open_request(frame)
    assert kafka.decode_body(AlterUserScramCredentialsRequest, 0, raw) == REQUEST


def test_a_response() -> None:
    response = DescribeUserScramCredentialsResponse(
        results=[
            DescribedUser(user="a", credential_infos=[CredentialInfo(mechanism=2, iterations=4096)])
        ]
    )
    written = kafka.encode_response(7, DESCRIBE_USER_SCRAM_CREDENTIALS, 0, response)
    body = "00 00000000 0000 00 02 0261 0000 00 02 02 00001000 00 00 00"
    assert written[4:] == bytes.fromhex("00000007" + body)
    _, raw = kafka.open_response(written[4:])
    assert kafka.decode_response(DescribeUserScramCredentialsResponse, 0, raw) == response


def test_what_follows_is_passed_over_as_in_kafka() -> None:
    """librdkafka ends these requests with a byte more."""
    assert described("00 00 00 00").users is None


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("", "it ends in the middle of `the head`"),
        ("00 02 00 00 00", "`users[0].name` must not be null"),
        ("00 02 0961 00 00", "it ends in the middle of `users[0].name`"),
        ("00 02 02ff 00 00", "`users[0].name` is not UTF-8"),
        ("00 02 ffff7f 61", "`users[0].name` must be at most 32767 bytes long, not 2097150"),
        ("00 ffffffff0f 00", "`users` says that it has 4294967294 items, and 1 bytes are left"),
        ("00 ffffffff7f 00", "a number in `users` has more than 32 bits"),
        ("00 808080808000", "a number in `users` is longer than 5 bytes"),
        ("00 00 ffffffff0f 00", "it ends in the middle of `the body`"),
    ],
)
def test_what_is_wrong_is_named(body: str, fault: str) -> None:
    assert refused(body) == fault


def test_too_many_items_are_refused_before_they_are_read() -> None:
    assert "at most 10000 items, not 10001" in refused("00 924e" + "0161" * 10_002)


@given(st.binary(max_size=100))
def test_any_bytes_give_a_message_or_a_typed_error(body: bytes) -> None:
    _, raw = kafka.open_request(bytes.fromhex(HEAD) + body)
    with contextlib.suppress(InvalidRequest):
        kafka.decode_body(DescribeUserScramCredentialsRequest, 0, raw)
    _, raw = kafka.open_response(bytes(4) + body)
    with contextlib.suppress(ProtocolError):
        kafka.decode_response(DescribeUserScramCredentialsResponse, 0, raw)
