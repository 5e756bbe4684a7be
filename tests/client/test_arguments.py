"""Wrong arguments are refused before anything is sent, and the error names the argument."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horolog import Admin, Consumer, NewRecord, Producer, TimeError
from horolog.client.arguments import SettingValue, setting_texts

Sending = Callable[[Producer, Any], Awaitable[Any]]

SENDINGS: dict[str, Sending] = {
    "send": lambda producer, partition: producer.send("clicks", b"v", partition=partition),
    "enqueue": lambda producer, partition: producer.enqueue("clicks", b"v", partition=partition),
    "send_batch": lambda producer, partition: producer.send_batch(
        "clicks", [b"v"], partition=partition
    ),
    "send_many": lambda producer, partition: producer.send_many(
        "clicks", [NewRecord(b"v")], partition=partition
    ),
}


@pytest.mark.parametrize("name", SENDINGS)
@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        (0.5, TypeError),
        (0.0, TypeError),
        ("0", TypeError),
        (False, TypeError),
        (-1, ValueError),
        (2**31, ValueError),
        (2**40, ValueError),
    ],
)
async def test_a_partition_is_a_number_of_31_bits(
    address: str, name: str, partition: Any, kind: type[Exception]
) -> None:
    async with Producer(address, idempotent=True, linger_ms=10_000) as producer:
        # A set is open, into which the message would go without being looked at.
        waiting = await producer.enqueue("clicks", b"before", partition=0)
        with pytest.raises(kind, match=r"^partition is "):
            await SENDINGS[name](producer, partition)
        await producer.flush()
        assert (await waiting).offset == 0
        behind = await producer.enqueue("clicks", b"behind", partition=0)
        await producer.flush()
        assert (await behind).offset == 1


@pytest.mark.parametrize("name", ["send", "enqueue", "send_batch", "send_many", "partition_for"])
async def test_a_topic_is_text(address: str, name: str) -> None:
    given: dict[str, Any] = {"send_batch": [b"v"], "send_many": [NewRecord(b"v")]}
    async with Producer(address) as producer:
        with pytest.raises(TypeError, match="topic is a str, not bytes"):
            await getattr(producer, name)(b"clicks", given.get(name, b"v"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"settings": {"retention.ms": 5.0}},
            "settings: the value of retention.ms is a str, int, timedelta or datetime, not float",
        ),
        (
            {"settings": {"retention.bytes": timedelta(days=1)}},
            "settings: retention.bytes is not in milliseconds, so its value is a str or an int, "
            "not timedelta",
        ),
        ({"settings": {5: "5"}}, "settings: the name of a setting is a str, not int"),
        ({"settings": "retention.ms"}, "settings is a mapping, not str"),
        ({"partitions": "2"}, "partitions is an int, not str"),
        ({"replication_factor": 1.0}, "replication_factor is an int, not float"),
    ],
)
async def test_what_a_topic_is_made_with(address: str, options: Any, message: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(TypeError, match=message):
            await admin.create_topic("t", **options)
        assert "t" not in await admin.list_topics()


async def test_settings_are_numbers_lengths_and_moments_too(address: str) -> None:
    async def values(admin: Admin) -> dict[str, str | None]:
        settings = (await admin.describe_topic("typed")).settings
        return {one.name: one.value for one in settings if one.source == "topic"}

    async with Admin(address) as admin:
        given: dict[str, SettingValue] = {
            "retention.ms": timedelta(days=7),
            "segment.bytes": 1_048_576,
            "cleanup.policy": "delete",
        }
        await admin.create_topic("typed", settings=given)
        assert await values(admin) == {
            "retention.ms": "604800000",
            "segment.bytes": "1048576",
            "cleanup.policy": "delete",
        }
        await admin.alter_topic("typed", {"retention.ms": -1, "segment.bytes": None})
        assert await values(admin) == {"retention.ms": "-1", "cleanup.policy": "delete"}
    moment = datetime(2016, 11, 14, 17, 24, 32, 509_000, tzinfo=UTC)
    assert setting_texts({"a.ms": moment, "b": True}) == {"a.ms": "1479144272509", "b": "true"}
    with pytest.raises(TimeError, match="no time zone"):
        setting_texts({"a.ms": moment.replace(tzinfo=None)})
    with pytest.raises(ValueError, match="whole milliseconds"):
        setting_texts({"a.ms": timedelta(microseconds=1)})


async def test_what_a_topic_is_changed_with(address: str) -> None:
    settings: Any = {"retention.ms": 5.0}
    partitions: Any = "2"
    async with Admin(address) as admin:
        with pytest.raises(TypeError, match=r"settings: the value of retention\.ms is a str"):
            await admin.alter_topic("clicks", settings)
        with pytest.raises(TypeError, match="partitions is an int, not str"):
            await admin.create_partitions("clicks", partitions)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_whom_a_client_talks_to(client: Any) -> None:
    with pytest.raises(TypeError, match="address is a str, not NoneType"):
        client(None)
    with pytest.raises(TypeError, match="security is a Security, not int"):
        client("127.0.0.1:1", security=5)


async def test_only_none_deletes_every_message(address: str) -> None:
    text: Any = "1"
    async with Producer(address) as producer, Admin(address) as admin:
        await producer.send("clicks", b"v", partition=0)
        for offset in (-1, -2, -(2**63)):
            with pytest.raises(ValueError, match="before is an offset from 0 on"):
                await admin.delete_records("clicks", 0, offset)
        with pytest.raises(TypeError, match="before is an int, not str"):
            await admin.delete_records("clicks", 0, text)
        assert await admin.delete_records("clicks", 0, 0) == 0
        assert await admin.delete_records("clicks", 0, None) == 1
