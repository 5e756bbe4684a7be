"""Searches by time on topics of every format: error 43 goes by the setting, answers by the data."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from horolog.protocol.errors import InvalidRequest, UnsupportedForMessageFormat
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, list_offsets, message_set, produce, result
from horolog.testing.wire import Wire, wire

from .wishes import set_format

NOW = ManualClock().now_ms()
GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-0.10.2"


async def find(client: Wire, target: int, version: int = 1, count: int = 5) -> Any:
    request = list_offsets("a", (0, target), max_num_offsets=count)
    return result(await client.call(request, version))


@pytest.mark.parametrize("setting", ["0.8.2", "0.9.0", "0.9.0.1"])
async def test_a_topic_of_v0_tc82(client: Wire, setting: str) -> None:
    """L-22: sentinels still work."""
    await client.call(create_topic("a", message_format_version=setting))
    await client.call(produce("a", message_set(NOW, NOW + 1)))
    for target in (0, 5, NOW):
        got = await find(client, target)
        assert (got.error_code, got.offset, got.timestamp) == (
            UnsupportedForMessageFormat.code,
            -1,
            -1,
        )
        assert f"message.format.version = {setting}" in got.error_message
    for target, offset in ((LATEST, 2), (EARLIEST, 0), (LARGEST, -1)):
        got = await find(client, target)
        assert (got.error_code, got.offset, got.timestamp) == (0, offset, -1)
    assert (await find(client, -6)).error_code == InvalidRequest.code


async def test_the_setting_decides_not_the_data_l22(client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW + 1)))
    assert (await find(client, NOW + 1)).offset == 1
    await set_format(client, "a", "0.9.0")
    assert (await find(client, NOW + 1)).error_code == UnsupportedForMessageFormat.code
    got = await find(client, LARGEST)
    assert (got.error_code, got.offset, got.timestamp) == (0, 1, NOW + 1)
    for setting in ("0.10.0", "producer"):
        await set_format(client, "a", setting)
        assert (await find(client, NOW + 1)).offset == 1


@pytest.mark.parametrize("setting", ["producer", "0.10.0"])
async def test_v0_data_simply_has_no_time_decision_25(client: Wire, setting: str) -> None:
    await client.call(produce("a", message_set(-1, magic=0)))
    await set_format(client, "a", setting)
    got = await find(client, 0)
    assert (got.error_code, got.offset, got.timestamp) == (0, -1, -1)
    await client.call(produce("a", message_set(NOW)))
    assert (await find(client, 0)).offset == 1


async def test_version_0_works_with_any_format_l15(client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW + 1)))
    before = await find(client, NOW + 1, version=0)
    await set_format(client, "a", "0.9.0")
    got = await find(client, NOW + 1, version=0)
    assert (got.error_code, got.old_style_offsets) == (0, before.old_style_offsets)


@pytest.mark.parametrize("topic", ["v0-plain", "v0-gzip", "v0-snappy", "v0-lz4"])
async def test_what_kafka_answered_for_topics_of_v0(topic: str, tmp_path: Path) -> None:
    """Kafka kept them with format 0.9.0, and so does this broker."""
    shutil.copytree(GOLDEN / topic / "clean", tmp_path / f"{topic}-0")
    expected = json.loads((GOLDEN / topic / "expected.json").read_text())
    async with (
        running_broker(
            tmp_path, http_listen="off", retention_ms=-1, message_format_version="0.9.0"
        ) as broker,
        wire(broker.addresses.native) as client,
    ):
        for target, code, timestamp, offset in expected["list_offsets_v1"]:
            got = result(await client.call(list_offsets(topic, (0, target))))
            assert (got.error_code, got.timestamp, got.offset) == (code, timestamp, offset)
