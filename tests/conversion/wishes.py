"""What the tests of conversion ask a broker for."""

from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.records.messages.sets import Record, entries, records
from horolog.testing.requests import fetch, result
from horolog.testing.wire import Wire

OLD = [0, 1]
"""Versions of fetch that know format v0 only."""
NEW = [2, 3]
MAX_DECOMPRESSED_BYTES = 1 << 26


def read(data: bytes) -> list[Record]:
    """The messages of a fetched set."""
    return list(records(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))


def magics(data: bytes) -> set[int]:
    """The formats of the entries of a fetched set."""
    return {entry.magic for entry in entries(data)}


async def set_topic(client: Wire, topic: str, **settings: object) -> None:
    """Change settings of a topic, named with underscores."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), value=str(value))
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_name=topic, configs=configs)
    response = await client.call(AlterConfigsRequest(resources=[resource], incremental=True))
    assert response.responses[0].error_code == 0, response


async def set_format(client: Wire, topic: str, version: str) -> None:
    """Change the message format of a topic."""
    await set_topic(client, topic, message_format_version=version)


async def read_all(client: Wire, topic: str, version: int, limit: int = 1 << 20) -> list[bytes]:
    """Slice after slice, as a consumer goes on behind the last offset it got."""
    slices: list[bytes] = []
    offset = 0
    while True:
        request = fetch(topic, (0, offset), partition_max_bytes=limit)
        got = result(await client.call(request, version))
        assert got.error_code == 0, got.error_message
        if not got.records:
            return slices
        found = [record for record in read(got.records) if record.offset >= offset]
        assert found, "a slice without a complete message"
        slices.append(got.records)
        offset = found[-1].offset + 1
