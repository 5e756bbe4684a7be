"""One handler for each request. No byte order and no msgpack here: messages in, messages out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ...protocol.api.alter_configs import ALTER_CONFIGS
from ...protocol.api.api_versions import API_VERSIONS
from ...protocol.api.create_topics import CREATE_TOPICS
from ...protocol.api.delete_topics import DELETE_TOPICS
from ...protocol.api.describe_configs import DESCRIBE_CONFIGS
from ...protocol.api.describe_log import DESCRIBE_LOG
from ...protocol.api.fetch import FETCH
from ...protocol.api.list_offsets import LIST_OFFSETS
from ...protocol.api.metadata import METADATA
from ...protocol.api.offset_commit import OFFSET_COMMIT
from ...protocol.api.offset_fetch import OFFSET_FETCH
from ...protocol.api.produce import PRODUCE
from . import (
    api_versions,
    describe_log,
    fetch,
    list_offsets,
    metadata,
    positions,
    produce,
    settings,
    topics,
)
from .base import Handler

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        PRODUCE.key: produce.handle,
        FETCH.key: fetch.handle,
        LIST_OFFSETS.key: list_offsets.handle,
        METADATA.key: metadata.handle,
        CREATE_TOPICS.key: topics.create,
        DELETE_TOPICS.key: topics.delete,
        DESCRIBE_CONFIGS.key: settings.describe,
        ALTER_CONFIGS.key: settings.alter,
        OFFSET_COMMIT.key: positions.commit,
        OFFSET_FETCH.key: positions.fetch,
        API_VERSIONS.key: api_versions.handle,
        DESCRIBE_LOG.key: describe_log.handle,
    }
)
"""Handlers by api key."""
