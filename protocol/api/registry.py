"""The table of all requests, by key."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .alter_configs import ALTER_CONFIGS
from .api_versions import API_VERSIONS
from .create_partitions import CREATE_PARTITIONS
from .create_topics import CREATE_TOPICS
from .delete_groups import DELETE_GROUPS
from .delete_records import DELETE_RECORDS
from .delete_topics import DELETE_TOPICS
from .describe_broker import DESCRIBE_BROKER
from .describe_configs import DESCRIBE_CONFIGS
from .describe_groups import DESCRIBE_GROUPS
from .describe_log import DESCRIBE_LOG
from .describe_log_dirs import DESCRIBE_LOG_DIRS
from .fetch import FETCH
from .find_coordinator import FIND_COORDINATOR
from .heartbeat import HEARTBEAT
from .init_producer_id import INIT_PRODUCER_ID
from .join_group import JOIN_GROUP
from .leave_group import LEAVE_GROUP
from .list_groups import LIST_GROUPS
from .list_offsets import LIST_OFFSETS
from .metadata import METADATA
from .offset_commit import OFFSET_COMMIT
from .offset_fetch import OFFSET_FETCH
from .produce import PRODUCE
from .schema import Api
from .sync_group import SYNC_GROUP

APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        api.key: api
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            OFFSET_COMMIT,
            OFFSET_FETCH,
            FIND_COORDINATOR,
            JOIN_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            SYNC_GROUP,
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            DELETE_GROUPS,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            DESCRIBE_LOG_DIRS,
            CREATE_PARTITIONS,
            DESCRIBE_LOG,
            DESCRIBE_BROKER,
        )
    }
)
