"""The table of rights: what each request asks for, in both protocols.

As Kafka has it where it has the request. `server/rights` goes by this table; a request that is not
in it cannot be served where rights are looked at.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ...values import value_class
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
from .security.acl_terms import Operation, ResourceType
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


class How(StrEnum):
    """What becomes of a request where a right is missing."""

    WHOLE = "the request is refused"
    EACH = "that one is refused, the others are answered"
    LEFT_OUT = "left out of the answer"


class When(StrEnum):
    """Where a right is asked for."""

    ALWAYS = ""
    NAMED = "named in the request"
    NOT_NAMED = "of those that are listed"
    MADE = "that does not exist and would be made (auto.create.topics.enable)"
    CONSUMER = "replica_id is -1"
    FOLLOWER = "replica_id is another"
    OF_TOPIC = "the settings of a topic"
    OF_BROKER = "the settings of the broker"


@value_class
class Right:
    """An operation on a resource. With `some`, on any resource of the type."""

    operation: Operation
    resource_type: ResourceType
    some: bool = False


@value_class
class Need:
    """One of these rights is asked for."""

    any_of: tuple[Right, ...]
    how: How
    when: When = When.ALWAYS


_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP
_CLUSTER: Final = ResourceType.CLUSTER


def _whole(operation: Operation, resource_type: ResourceType) -> Need:
    return Need((Right(operation, resource_type),), How.WHOLE)


def _each(operation: Operation, resource_type: ResourceType, when: When = When.ALWAYS) -> Need:
    return Need((Right(operation, resource_type),), How.EACH, when)


def _left_out(operation: Operation, resource_type: ResourceType) -> Need:
    return Need((Right(operation, resource_type),), How.LEFT_OUT, When.NOT_NAMED)


_MAKING: Final = (Right(Operation.CREATE, _TOPIC), Right(Operation.CREATE, _CLUSTER))
_MEMBER: Final = (_whole(Operation.READ, _GROUP),)
_CHANGES_CLUSTER: Final = (_whole(Operation.ALTER, _CLUSTER),)
_SEES_CLUSTER: Final = (_whole(Operation.DESCRIBE, _CLUSTER),)
_ALTERS_CONFIGS: Final = (
    _each(Operation.ALTER_CONFIGS, _TOPIC, When.OF_TOPIC),
    _each(Operation.ALTER_CONFIGS, _CLUSTER, When.OF_BROKER),
)
_NOTHING: Final = ()

RIGHTS: Final[Mapping[int, tuple[Need, ...]]] = MappingProxyType(
    {
        PRODUCE.key: (
            _each(Operation.WRITE, _TOPIC),
            Need(_MAKING, How.EACH, When.MADE),
        ),
        FETCH.key: (
            _each(Operation.READ, _TOPIC, When.CONSUMER),
            _each(Operation.CLUSTER_ACTION, _CLUSTER, When.FOLLOWER),
        ),
        LIST_OFFSETS.key: (_each(Operation.DESCRIBE, _TOPIC),),
        METADATA.key: (
            _each(Operation.DESCRIBE, _TOPIC, When.NAMED),
            _left_out(Operation.DESCRIBE, _TOPIC),
            Need(_MAKING, How.EACH, When.MADE),
        ),
        OFFSET_COMMIT.key: (_whole(Operation.READ, _GROUP), _each(Operation.READ, _TOPIC)),
        OFFSET_FETCH.key: (
            Need((Right(Operation.DESCRIBE, _GROUP),), How.WHOLE, When.NAMED),
            _left_out(Operation.DESCRIBE, _GROUP),
            _each(Operation.DESCRIBE, _TOPIC, When.NAMED),
            _left_out(Operation.DESCRIBE, _TOPIC),
        ),
        FIND_COORDINATOR.key: (_whole(Operation.DESCRIBE, _GROUP),),
        JOIN_GROUP.key: _MEMBER,
        HEARTBEAT.key: _MEMBER,
        LEAVE_GROUP.key: _MEMBER,
        SYNC_GROUP.key: _MEMBER,
        DESCRIBE_GROUPS.key: (_each(Operation.DESCRIBE, _GROUP),),
        LIST_GROUPS.key: (
            Need(
                (Right(Operation.DESCRIBE, _CLUSTER), Right(Operation.DESCRIBE, _GROUP)),
                How.LEFT_OUT,
                When.NOT_NAMED,
            ),
        ),
        DELETE_GROUPS.key: (_each(Operation.DELETE, _GROUP),),
        SASL_HANDSHAKE.key: _NOTHING,
        API_VERSIONS.key: _NOTHING,
        CREATE_TOPICS.key: (Need(_MAKING, How.EACH),),
        DELETE_TOPICS.key: (_each(Operation.DELETE, _TOPIC),),
        DELETE_RECORDS.key: (_each(Operation.DELETE, _TOPIC),),
        INIT_PRODUCER_ID.key: (
            Need(
                (
                    Right(Operation.IDEMPOTENT_WRITE, _CLUSTER),
                    Right(Operation.WRITE, _TOPIC, some=True),
                ),
                How.WHOLE,
            ),
        ),
        OFFSET_FOR_LEADER_EPOCH.key: (
            Need(
                (Right(Operation.DESCRIBE, _TOPIC), Right(Operation.CLUSTER_ACTION, _CLUSTER)),
                How.EACH,
            ),
        ),
        DESCRIBE_ACLS.key: _SEES_CLUSTER,
        CREATE_ACLS.key: _CHANGES_CLUSTER,
        DELETE_ACLS.key: _CHANGES_CLUSTER,
        DESCRIBE_CONFIGS.key: (
            _each(Operation.DESCRIBE_CONFIGS, _TOPIC, When.OF_TOPIC),
            _each(Operation.DESCRIBE_CONFIGS, _CLUSTER, When.OF_BROKER),
        ),
        ALTER_CONFIGS.key: _ALTERS_CONFIGS,
        DESCRIBE_LOG_DIRS.key: _SEES_CLUSTER,
        SASL_AUTHENTICATE.key: _NOTHING,
        CREATE_PARTITIONS.key: (_each(Operation.ALTER, _TOPIC),),
        INCREMENTAL_ALTER_CONFIGS.key: _ALTERS_CONFIGS,
        DESCRIBE_CLIENT_QUOTAS.key: (_whole(Operation.DESCRIBE_CONFIGS, _CLUSTER),),
        ALTER_CLIENT_QUOTAS.key: (_whole(Operation.ALTER_CONFIGS, _CLUSTER),),
        DESCRIBE_USER_SCRAM_CREDENTIALS.key: _SEES_CLUSTER,
        ALTER_USER_SCRAM_CREDENTIALS.key: _CHANGES_CLUSTER,
        ELECT_LEADERS.key: _CHANGES_CLUSTER,
        LIST_PARTITION_REASSIGNMENTS.key: _SEES_CLUSTER,
        OFFSET_DELETE.key: (_whole(Operation.DELETE, _GROUP), _each(Operation.READ, _TOPIC)),
        DESCRIBE_QUORUM.key: _SEES_CLUSTER,
        DESCRIBE_CLUSTER.key: _NOTHING,
        DESCRIBE_PRODUCERS.key: (_each(Operation.READ, _TOPIC),),
        LIST_TRANSACTIONS.key: _NOTHING,
        DESCRIBE_LOG.key: (_each(Operation.DESCRIBE, _TOPIC),),
        DESCRIBE_BROKER.key: _SEES_CLUSTER,
        COUNT_BY_TIME.key: (_whole(Operation.DESCRIBE, _TOPIC),),
        AUTHENTICATE.key: _NOTHING,
        REPLICATE.key: (_whole(Operation.CLUSTER_ACTION, _CLUSTER),),
        DESCRIBE_REPLICAS.key: _SEES_CLUSTER,
        PROMOTE.key: _CHANGES_CLUSTER,
    }
)
"""By the key of the request: all of these are needed, where they apply."""
