"""The table of all requests, by key."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .broker.api_versions import API_VERSIONS
from .broker.describe_broker import DESCRIBE_BROKER
from .broker.describe_cluster import DESCRIBE_CLUSTER
from .broker.describe_quorum import DESCRIBE_QUORUM
from .cluster.describe_replicas import DESCRIBE_REPLICAS
from .cluster.promote import PROMOTE
from .cluster.replicate import REPLICATE
from .groups.delete_groups import DELETE_GROUPS
from .groups.describe_groups import DESCRIBE_GROUPS
from .groups.find_coordinator import FIND_COORDINATOR
from .groups.heartbeat import HEARTBEAT
from .groups.join_group import JOIN_GROUP
from .groups.leave_group import LEAVE_GROUP
from .groups.list_groups import LIST_GROUPS
from .groups.offset_commit import OFFSET_COMMIT
from .groups.offset_delete import OFFSET_DELETE
from .groups.offset_fetch import OFFSET_FETCH
from .groups.sync_group import SYNC_GROUP
from .log.count_by_time import COUNT_BY_TIME
from .log.describe_log import DESCRIBE_LOG
from .log.describe_log_dirs import DESCRIBE_LOG_DIRS
from .log.describe_producers import DESCRIBE_PRODUCERS
from .log.fetch import FETCH
from .log.init_producer_id import INIT_PRODUCER_ID
from .log.list_offsets import LIST_OFFSETS
from .log.list_transactions import LIST_TRANSACTIONS
from .log.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from .log.produce import PRODUCE
from .schema import Api
from .security.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from .security.authenticate import AUTHENTICATE
from .security.client_quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from .security.sasl_authenticate import SASL_AUTHENTICATE
from .security.sasl_handshake import SASL_HANDSHAKE
from .security.scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from .topics.alter_configs import ALTER_CONFIGS
from .topics.create_partitions import CREATE_PARTITIONS
from .topics.create_topics import CREATE_TOPICS
from .topics.delete_records import DELETE_RECORDS
from .topics.delete_topics import DELETE_TOPICS
from .topics.describe_configs import DESCRIBE_CONFIGS
from .topics.elect_leaders import ELECT_LEADERS
from .topics.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from .topics.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from .topics.metadata import METADATA

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
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            DESCRIBE_ACLS,
            CREATE_ACLS,
            DELETE_ACLS,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            DESCRIBE_LOG_DIRS,
            SASL_AUTHENTICATE,
            CREATE_PARTITIONS,
            INCREMENTAL_ALTER_CONFIGS,
            DESCRIBE_CLIENT_QUOTAS,
            ALTER_CLIENT_QUOTAS,
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            ALTER_USER_SCRAM_CREDENTIALS,
            ELECT_LEADERS,
            LIST_PARTITION_REASSIGNMENTS,
            OFFSET_DELETE,
            DESCRIBE_QUORUM,
            DESCRIBE_CLUSTER,
            DESCRIBE_PRODUCERS,
            LIST_TRANSACTIONS,
            DESCRIBE_LOG,
            DESCRIBE_BROKER,
            COUNT_BY_TIME,
            AUTHENTICATE,
            REPLICATE,
            DESCRIBE_REPLICAS,
            PROMOTE,
        )
    }
)
