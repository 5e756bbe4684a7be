"""One handler for each request. No byte order and no msgpack here: messages in, messages out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ...protocol.api.broker.api_versions import API_VERSIONS
from ...protocol.api.broker.describe_broker import DESCRIBE_BROKER
from ...protocol.api.broker.describe_cluster import DESCRIBE_CLUSTER
from ...protocol.api.broker.describe_quorum import DESCRIBE_QUORUM
from ...protocol.api.cluster.describe_replicas import DESCRIBE_REPLICAS
from ...protocol.api.cluster.promote import PROMOTE
from ...protocol.api.cluster.replicate import REPLICATE
from ...protocol.api.groups.delete_groups import DELETE_GROUPS
from ...protocol.api.groups.describe_groups import DESCRIBE_GROUPS
from ...protocol.api.groups.find_coordinator import FIND_COORDINATOR
from ...protocol.api.groups.heartbeat import HEARTBEAT
from ...protocol.api.groups.join_group import JOIN_GROUP
from ...protocol.api.groups.leave_group import LEAVE_GROUP
from ...protocol.api.groups.list_groups import LIST_GROUPS
from ...protocol.api.groups.offset_commit import OFFSET_COMMIT
from ...protocol.api.groups.offset_delete import OFFSET_DELETE
from ...protocol.api.groups.offset_fetch import OFFSET_FETCH
from ...protocol.api.groups.sync_group import SYNC_GROUP
from ...protocol.api.log.count_by_time import COUNT_BY_TIME
from ...protocol.api.log.describe_log import DESCRIBE_LOG
from ...protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS
from ...protocol.api.log.describe_producers import DESCRIBE_PRODUCERS
from ...protocol.api.log.fetch import FETCH
from ...protocol.api.log.init_producer_id import INIT_PRODUCER_ID
from ...protocol.api.log.list_offsets import LIST_OFFSETS
from ...protocol.api.log.list_transactions import LIST_TRANSACTIONS
from ...protocol.api.log.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.security.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from ...protocol.api.security.authenticate import AUTHENTICATE
from ...protocol.api.security.client_quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from ...protocol.api.security.sasl_authenticate import SASL_AUTHENTICATE
from ...protocol.api.security.sasl_handshake import SASL_HANDSHAKE
from ...protocol.api.security.scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from ...protocol.api.topics.alter_configs import ALTER_CONFIGS
from ...protocol.api.topics.create_partitions import CREATE_PARTITIONS
from ...protocol.api.topics.create_topics import CREATE_TOPICS
from ...protocol.api.topics.delete_records import DELETE_RECORDS
from ...protocol.api.topics.delete_topics import DELETE_TOPICS
from ...protocol.api.topics.describe_configs import DESCRIBE_CONFIGS
from ...protocol.api.topics.elect_leaders import ELECT_LEADERS
from ...protocol.api.topics.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ...protocol.api.topics.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from ...protocol.api.topics.metadata import METADATA
from .acls import create as create_acls
from .acls import delete as delete_acls
from .acls import describe as describe_acls
from .api_versions import handle as answer_api_versions
from .base import Handler, HandlerOfMany, list_of_one
from .counting import handle as count_by_time
from .describe_broker import handle as describe_broker
from .describe_log import handle as describe_log
from .describe_producers import handle as describe_producers
from .epochs import handle as offset_for_leader_epoch
from .fetch import handle_many as fetch_many
from .groups import find_coordinator, heartbeat
from .groups import join as join_group
from .groups import leave as leave_group
from .groups import sync as sync_group
from .groups_admin import delete as delete_groups
from .groups_admin import describe as describe_groups
from .groups_admin import list_all as list_groups
from .kafka_admin import describe_cluster, list_reassignments, list_transactions
from .list_offsets import handle_many as list_offsets_many
from .log_dirs import handle as describe_log_dirs
from .logins import authenticate, handshake, sasl_authenticate
from .metadata import handle as metadata
from .positions import commit as commit_positions
from .positions import delete as delete_positions
from .positions import fetch as fetch_positions
from .produce import handle_many as produce_many
from .producer_ids import handle as init_producer_id
from .quotas import alter as alter_quotas
from .quotas import describe as describe_quotas
from .refused import describe_quorum, elect_leaders
from .repeats import answering_once, refusing_repeats
from .replicas import describe as describe_replicas
from .replicas import promote, replicate
from .settings import alter as alter_settings
from .settings import alter_some as alter_some_settings
from .settings import describe as describe_settings
from .topics import create as create_topics
from .topics import create_partitions
from .topics import delete as delete_topics
from .trimming import handle as delete_records
from .users import alter as alter_users
from .users import describe as describe_users

HANDLERS_OF_MANY: Final[Mapping[int, HandlerOfMany]] = MappingProxyType(
    {PRODUCE.key: produce_many, FETCH.key: fetch_many, LIST_OFFSETS.key: list_offsets_many}
)
"""For requests that are answered in bulk if one comes right behind the other."""

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        SASL_HANDSHAKE.key: handshake,
        SASL_AUTHENTICATE.key: sasl_authenticate,
        AUTHENTICATE.key: authenticate,
        DESCRIBE_ACLS.key: describe_acls,
        CREATE_ACLS.key: create_acls,
        DELETE_ACLS.key: delete_acls,
        DESCRIBE_CLIENT_QUOTAS.key: describe_quotas,
        ALTER_CLIENT_QUOTAS.key: alter_quotas,
        DESCRIBE_USER_SCRAM_CREDENTIALS.key: describe_users,
        ALTER_USER_SCRAM_CREDENTIALS.key: alter_users,
        **{key: list_of_one(handle) for key, handle in HANDLERS_OF_MANY.items()},
        METADATA.key: metadata,
        CREATE_TOPICS.key: create_topics,
        DELETE_TOPICS.key: delete_topics,
        DELETE_RECORDS.key: delete_records,
        CREATE_PARTITIONS.key: create_partitions,
        INIT_PRODUCER_ID.key: init_producer_id,
        OFFSET_FOR_LEADER_EPOCH.key: refusing_repeats(
            OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch
        ),
        DESCRIBE_LOG_DIRS.key: describe_log_dirs,
        DESCRIBE_CONFIGS.key: describe_settings,
        ALTER_CONFIGS.key: alter_settings,
        INCREMENTAL_ALTER_CONFIGS.key: alter_some_settings,
        OFFSET_COMMIT.key: commit_positions,
        OFFSET_FETCH.key: answering_once(fetch_positions),
        FIND_COORDINATOR.key: find_coordinator,
        JOIN_GROUP.key: join_group,
        SYNC_GROUP.key: sync_group,
        HEARTBEAT.key: heartbeat,
        LEAVE_GROUP.key: leave_group,
        DESCRIBE_GROUPS.key: describe_groups,
        LIST_GROUPS.key: list_groups,
        DELETE_GROUPS.key: delete_groups,
        OFFSET_DELETE.key: delete_positions,
        API_VERSIONS.key: answer_api_versions,
        ELECT_LEADERS.key: elect_leaders,
        LIST_PARTITION_REASSIGNMENTS.key: list_reassignments,
        DESCRIBE_QUORUM.key: describe_quorum,
        DESCRIBE_CLUSTER.key: describe_cluster,
        DESCRIBE_PRODUCERS.key: refusing_repeats(DESCRIBE_PRODUCERS, describe_producers),
        LIST_TRANSACTIONS.key: list_transactions,
        DESCRIBE_LOG.key: refusing_repeats(DESCRIBE_LOG, describe_log),
        DESCRIBE_BROKER.key: describe_broker,
        COUNT_BY_TIME.key: count_by_time,
        REPLICATE.key: replicate,
        DESCRIBE_REPLICAS.key: describe_replicas,
        PROMOTE.key: promote,
    }
)
"""Handlers by api key."""

MOST_AT_A_TIME: Final[Mapping[int, int]] = MappingProxyType({FETCH.key: 1, LIST_OFFSETS.key: 64})
"""Of these a list has so many at most. A fetch is alone: before the next is answered it is seen
whether the answer to this one leaves room for that. A search may take a turn of the loop."""
