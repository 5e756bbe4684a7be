"""Quotas of users who have logged in, in both protocols."""

import asyncio
from pathlib import Path

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.quotas.rules import Entity, Quota, QuotaChange
from horolog.testing.access import change_access, log_in, log_in_to_kafka
from horolog.testing.program import Program
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import wire

from .conftest import USERS, Authority, Guarded

SET = message_set(5, value=bytes(50_000))


@pytest.mark.parametrize(
    "encoding", [pytest.param(native, id="native"), pytest.param(kafka, id="kafka")]
)
async def test_a_user_at_the_quota_and_another(
    guarded: Guarded, authority: Authority, encoding: Encoding
) -> None:
    async with guarded() as broker:
        change = QuotaChange(Entity("alice"), {Quota.PRODUCER_BYTE_RATE: 4_900.0})
        quotas = broker.security.quotas
        change_access(broker, lambda: quotas.planned([change]))
        address = broker.addresses.native if encoding is native else broker.addresses.kafka
        told = {}
        for name in ("alice", "bob"):
            connection = wire(str(address), encoding, tls=authority.trusting())
            async with connection as client:
                enter = log_in if encoding is native else log_in_to_kafka
                await enter(client, name, USERS[name])
                await client.call(create_topic("t"))
                answer = await client.call(produce("t", SET))
                assert result(answer).error_code == 0
                told[name] = answer.throttle_time_ms
                await client.call(MetadataRequest(topics=[]))
        assert told["bob"] == 0
        assert 100 < told["alice"] < 400


async def test_the_command_of_who_has_to_log_in(
    guarded: Guarded, authority: Authority, tmp_path: Path
) -> None:
    """The user of the quota and the user that logs in are different options."""
    async with guarded() as broker:
        (tmp_path / "password").write_text(USERS["alice"])
        program = Program(f"tls://{broker.addresses.native}")
        login = (
            "--ca",
            authority.cert,
            "--user",
            "alice",
            "--password-file",
            tmp_path / "password",
        )
        for asked in (("set", "--for-user", "bob", "producer_byte_rate=4900"), ("list",)):
            said = await asyncio.to_thread(program.ok, "quota", *asked, *login)
            assert "bob" in said.out
        quotas = broker.security.quotas.table.quotas
        assert quotas[Entity("bob")] == {Quota.PRODUCER_BYTE_RATE: 4900.0}
        assert list(broker.figures.logins) == [("SCRAM-SHA-512", "done")]
