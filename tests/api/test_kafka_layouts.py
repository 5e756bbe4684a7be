"""Kafka's layouts, field by field."""

from typing import Any

import pytest

from horolog.protocol.api import registry
from horolog.protocol.api.schema import Array, fields_of

TOPIC_ERRORS = "[name string, error_code int16]"
TOPIC_ERROR_TEXTS = "[name string, error_code int16, error_message nullable string]"
CONFIGS = "[name string, value nullable string]"
RESOURCE = "resource_type int8, resource_name string"
MEMBERSHIP = "generation_id int32, member_id string"
INSTANCE = "group_instance_id nullable string"
NAMED_PARTITIONS = "[name string, partitions [int32]]"
JOINED = (
    "error_code int16, generation_id int32, protocol_name string, leader string, member_id "
    "string, members [member_id string, metadata bytes]"
)
COMMITTED = "topics [name string, partitions [partition int32, error_code int16]]"
LEVEL = "isolation_level int8, "
LOG_START = "log_start_offset int64, "
SESSION = "session_id int32, session_epoch int32, "
FORGOTTEN = ", forgotten_topics [name string, partitions [int32]]"
GROUPS = (
    "groups [error_code int16, group_id string, group_state string, protocol_type string, "
    "protocol_data string, members [member_id string, client_id string, client_host string, "
    "member_metadata bytes, member_assignment bytes]]"
)
THROTTLE = "throttle_time_ms int32"
ENTITY = "entity [entity_type string, entity_name nullable string]"
CLUSTER = "cluster_id nullable string, "
OFFLINE = ", offline_replicas [int32]"
ACL = "principal string, host string, operation int8, permission_type int8"
ACL_FILTER = "principal nullable string, host nullable string, operation int8, permission_type int8"
ERROR_TEXT = "error_code int16, error_message nullable string"
QUORUM_REPLICA = "log_end_offset int64, last_fetch_timestamp int64, last_caught_up_timestamp int64"
API_RANGES = "[api_key int16, min_version int16, max_version int16]"

# Kafka's layouts, written down from its protocol and not from our declarations.
KAFKA_LAYOUTS = [
    pytest.param(
        0,
        (0, 1, 2),
        "acks int16, timeout_ms int32, "
        "topics [name string, partitions [partition int32, records records]]",
        id="P-1-produce",
    ),
    pytest.param(
        0,
        (3, 4, 5, 6, 7),
        "transactional_id nullable string, acks int16, timeout_ms int32, "
        "topics [name string, partitions [partition int32, records records]]",
        id="produce-3",
    ),
    pytest.param(
        1,
        (0, 1, 2),
        "replica_id int32, max_wait_ms int32, min_bytes int32, topics [name string, "
        "partitions [partition int32, fetch_offset int64, partition_max_bytes int32]]",
        id="F-1-fetch",
    ),
    pytest.param(
        1,
        (3,),
        "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, topics [name "
        "string, partitions [partition int32, fetch_offset int64, partition_max_bytes int32]]",
        id="F-1-fetch-3",
    ),
    *(
        pytest.param(
            1,
            versions,
            f"replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, {level}topics "
            f"[name string, partitions [partition int32, {epoch}fetch_offset int64, {start}"
            f"partition_max_bytes int32]]{forgotten}",
            id=f"fetch-{versions[0]}",
        )
        for versions, level, epoch, start, forgotten in (
            ((4,), LEVEL, "", "", ""),
            ((5, 6), LEVEL, "", LOG_START, ""),
            ((7, 8), LEVEL + SESSION, "", LOG_START, FORGOTTEN),
            ((9, 10), LEVEL + SESSION, "current_leader_epoch int32, ", LOG_START, FORGOTTEN),
        )
    ),
    pytest.param(
        2,
        (0,),
        "replica_id int32, topics [name string, partitions [partition int32, timestamp int64, "
        "max_num_offsets int32]]",
        id="L-1-list-offsets-0",
    ),
    pytest.param(
        2,
        (1,),
        "replica_id int32, topics [name string, partitions [partition int32, timestamp int64]]",
        id="L-2-list-offsets-1",
    ),
    pytest.param(
        2,
        (2, 3),
        "replica_id int32, isolation_level int8, topics [name string, partitions [partition "
        "int32, timestamp int64]]",
        id="list-offsets-2",
    ),
    pytest.param(
        2,
        (4,),
        "replica_id int32, isolation_level int8, topics [name string, partitions [partition "
        "int32, current_leader_epoch int32, timestamp int64]]",
        id="list-offsets-4",
    ),
    pytest.param(
        2,
        (5, 6, 7),
        "replica_id int32, isolation_level int8, topics [name string, partitions [partition "
        "int32, current_leader_epoch int32, timestamp int64]]",
        id="list-offsets-5",
    ),
    # Null is for all topics from version 1 on; before, null is no list at all.
    pytest.param(3, (0, 1, 2, 3), "topics nullable [name string]", id="metadata"),
    pytest.param(
        3,
        (4, 5, 6, 7),
        "topics nullable [name string], allow_auto_topic_creation boolean",
        id="metadata-4",
    ),
    pytest.param(
        3,
        (8, 9),
        "topics nullable [name string], allow_auto_topic_creation boolean, "
        "include_cluster_authorized_operations boolean, "
        "include_topic_authorized_operations boolean",
        id="metadata-8",
    ),
    pytest.param(
        3,
        (10,),
        "topics nullable [topic_uuid_high int64, topic_uuid_low int64, name string], "
        "allow_auto_topic_creation boolean, include_cluster_authorized_operations boolean, "
        "include_topic_authorized_operations boolean",
        id="metadata-10",
    ),
    pytest.param(
        8,
        (0,),
        "group_id string, topics [name string, partitions [partition int32, "
        "committed_offset int64, committed_metadata nullable string]]",
        id="offset-commit",
    ),
    pytest.param(
        8,
        (1,),
        f"group_id string, {MEMBERSHIP}, topics [name string, partitions [partition int32, "
        "committed_offset int64, commit_timestamp int64, committed_metadata nullable string]]",
        id="offset-commit-1",
    ),
    pytest.param(
        8,
        (2, 3, 4),
        f"group_id string, {MEMBERSHIP}, retention_time_ms int64, topics [name string, partitions "
        "[partition int32, committed_offset int64, committed_metadata nullable string]]",
        id="offset-commit-2",
    ),
    pytest.param(
        8,
        (5,),
        f"group_id string, {MEMBERSHIP}, topics [name string, partitions [partition int32, "
        "committed_offset int64, committed_metadata nullable string]]",
        id="offset-commit-5",
    ),
    pytest.param(
        8,
        (6,),
        f"group_id string, {MEMBERSHIP}, topics [name string, partitions [partition int32, "
        "committed_offset int64, committed_leader_epoch int32, committed_metadata nullable "
        "string]]",
        id="offset-commit-6",
    ),
    pytest.param(
        8,
        (7,),
        f"group_id string, {MEMBERSHIP}, {INSTANCE}, topics [name string, partitions [partition "
        "int32, committed_offset int64, committed_leader_epoch int32, committed_metadata nullable "
        "string]]",
        id="offset-commit-7",
    ),
    pytest.param(
        9,
        (0, 1, 2, 3, 4, 5),
        "group_id string, topics nullable [name string, partitions [int32]]",
        id="offset-fetch",
    ),
    pytest.param(10, (0,), "key string", id="find-coordinator-0"),
    pytest.param(10, (1, 2), "key string, key_type int8", id="find-coordinator-1"),
    pytest.param(
        11,
        (0,),
        "group_id string, session_timeout_ms int32, member_id string, protocol_type string, "
        "protocols [name string, metadata bytes]",
        id="join-group-0",
    ),
    pytest.param(
        11,
        (1, 2, 3, 4),
        "group_id string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string, "
        "protocol_type string, protocols [name string, metadata bytes]",
        id="join-group-1",
    ),
    pytest.param(
        11,
        (5,),
        "group_id string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string, "
        f"{INSTANCE}, protocol_type string, protocols [name string, metadata bytes]",
        id="join-group-5",
    ),
    pytest.param(12, (0, 1, 2), f"group_id string, {MEMBERSHIP}", id="heartbeat"),
    pytest.param(12, (3,), f"group_id string, {MEMBERSHIP}, {INSTANCE}", id="heartbeat-3"),
    pytest.param(13, (0, 1, 2), "group_id string, member_id string", id="leave-group"),
    pytest.param(
        13, (3,), f"group_id string, members [member_id string, {INSTANCE}]", id="leave-group-3"
    ),
    pytest.param(
        14,
        (0, 1, 2),
        f"group_id string, {MEMBERSHIP}, assignments [member_id string, assignment bytes]",
        id="sync-group",
    ),
    pytest.param(
        14,
        (3,),
        f"group_id string, {MEMBERSHIP}, {INSTANCE}, assignments [member_id string, assignment "
        "bytes]",
        id="sync-group-3",
    ),
    pytest.param(15, (0, 1, 2), "groups [string]", id="describe-groups"),
    pytest.param(
        15,
        (3, 4),
        "groups [string], include_authorized_operations boolean",
        id="describe-groups-3",
    ),
    pytest.param(16, (0, 1, 2, 3), "", id="list-groups"),
    pytest.param(16, (4,), "states_filter [string]", id="list-groups-4"),
    pytest.param(16, (5,), "states_filter [string], types_filter [string]", id="list-groups-5"),
    pytest.param(42, (0, 1), "groups_names [string]", id="delete-groups"),
    pytest.param(18, (0, 1, 2), "", id="api-versions"),
    pytest.param(
        18,
        (3,),
        "client_software_name string, client_software_version string",
        id="api-versions-3",
    ),
    pytest.param(
        43,
        (1,),
        "election_type int8, topic_partitions nullable [topic string, partitions [int32]], "
        "timeout_ms int32",
        id="elect-leaders",
    ),
    pytest.param(
        46,
        (0,),
        "timeout_ms int32, topics nullable [name string, partition_indexes [int32]]",
        id="list-reassignments",
    ),
    pytest.param(
        47,
        (0,),
        "group_id string, topics [name string, partitions [partition int32]]",
        id="offset-delete",
    ),
    pytest.param(
        55,
        (0, 1, 2),
        "topics [topic_name string, partitions [partition_index int32]]",
        id="describe-quorum",
    ),
    pytest.param(60, (0,), "include_cluster_authorized_operations boolean", id="describe-cluster"),
    pytest.param(
        60,
        (1,),
        "include_cluster_authorized_operations boolean, endpoint_type int8",
        id="describe-cluster-1",
    ),
    pytest.param(61, (0,), f"topics {NAMED_PARTITIONS}", id="describe-producers"),
    pytest.param(
        66, (0,), "state_filters [string], producer_id_filters [int64]", id="list-transactions"
    ),
    pytest.param(
        19,
        (0,),
        "topics [name string, num_partitions int32, replication_factor int16, assignments "
        f"[partition int32, broker_ids [int32]], configs {CONFIGS}], timeout_ms int32",
        id="create-topics",
    ),
    pytest.param(
        19,
        (1, 2, 3, 4),
        "topics [name string, num_partitions int32, replication_factor int16, assignments "
        f"[partition int32, broker_ids [int32]], configs {CONFIGS}], timeout_ms int32, "
        "validate_only boolean",
        id="create-topics-1",
    ),
    pytest.param(20, (0, 1, 2, 3), "topic_names [string], timeout_ms int32", id="delete-topics"),
    pytest.param(
        21,
        (0, 1),
        "topics [name string, partitions [partition int32, offset int64]], timeout_ms int32",
        id="delete-records",
    ),
    pytest.param(
        22,
        (0, 1),
        "transactional_id nullable string, transaction_timeout_ms int32",
        id="init-producer-id",
    ),
    pytest.param(
        23,
        (0, 1),
        "topics [name string, partitions [partition int32, leader_epoch int32]]",
        id="offset-for-leader-epoch",
    ),
    pytest.param(
        23,
        (2,),
        "topics [name string, partitions [partition int32, current_leader_epoch int32, "
        "leader_epoch int32]]",
        id="offset-for-leader-epoch-2",
    ),
    pytest.param(
        23,
        (3,),
        "replica_id int32, topics [name string, partitions [partition int32, "
        "current_leader_epoch int32, leader_epoch int32]]",
        id="offset-for-leader-epoch-3",
    ),
    pytest.param(
        32,
        (0,),
        f"resources [{RESOURCE}, configuration_keys nullable [string]]",
        id="describe-configs",
    ),
    pytest.param(
        32,
        (1, 2),
        f"resources [{RESOURCE}, configuration_keys nullable [string]], include_synonyms boolean",
        id="describe-configs-1",
    ),
    pytest.param(
        35,
        (0, 1),
        "topics nullable [name string, partitions [int32]]",
        id="describe-log-dirs",
    ),
    pytest.param(
        37,
        (0, 1),
        "topics [name string, count int32, assignments nullable [broker_ids [int32]]], timeout_ms "
        "int32, validate_only boolean",
        id="create-partitions",
    ),
    pytest.param(
        33,
        (0, 1),
        f"resources [{RESOURCE}, configs {CONFIGS}], validate_only boolean",
        id="alter-configs",
    ),
    pytest.param(
        44,
        (0, 1),
        f"resources [{RESOURCE}, configs [name string, config_operation int8, value nullable "
        "string]], validate_only boolean",
        id="incremental-alter-configs",
    ),
    pytest.param(17, (0, 1), "mechanism string", id="sasl-handshake"),
    pytest.param(36, (0, 1), "auth_bytes bytes", id="sasl-authenticate"),
    pytest.param(
        48,
        (0, 1),
        "components [entity_type string, match_type int8, match nullable string], strict boolean",
        id="describe-quotas",
    ),
    pytest.param(
        49,
        (0, 1),
        f"entries [{ENTITY}, ops [key string, value float64, remove boolean]], "
        "validate_only boolean",
        id="alter-quotas",
    ),
    pytest.param(50, (0,), "users nullable [name string]", id="describe-scram"),
    pytest.param(
        51,
        (0,),
        "deletions [name string, mechanism int8], upsertions [name string, mechanism int8, "
        "iterations int32, salt bytes, salted_password bytes]",
        id="alter-scram",
    ),
    *(
        pytest.param(key, (version,), text.format(pattern), id=f"{name}-{version}")
        for version, pattern in ((0, ""), (1, "pattern_type int8, "))
        for key, name, text in (
            (
                29,
                "describe-acls",
                "resource_type int8, resource_name nullable string, {}" + ACL_FILTER,
            ),
            (
                30,
                "create-acls",
                "creations [resource_type int8, resource_name string, {}" + ACL + "]",
            ),
            (
                31,
                "delete-acls",
                "filters [resource_type int8, resource_name nullable string, {}" + ACL_FILTER + "]",
            ),
        )
    ),
]

KAFKA_RESPONSE_LAYOUTS = [
    pytest.param(
        0,
        (0,),
        "topics [name string, partitions [partition int32, error_code int16, base_offset int64]]",
        id="P-2-produce-0",
    ),
    pytest.param(
        0,
        (1,),
        "topics [name string, partitions [partition int32, error_code int16, base_offset int64]], "
        "throttle_time_ms int32",
        id="P-2-produce-1",
    ),
    pytest.param(
        0,
        (2,),
        "topics [name string, partitions [partition int32, error_code int16, base_offset int64, "
        "log_append_time_ms int64]], throttle_time_ms int32",
        id="P-2-produce-2",
    ),
    pytest.param(
        0,
        (3, 4),
        "topics [name string, partitions [partition int32, error_code int16, base_offset int64, "
        "log_append_time_ms int64]], throttle_time_ms int32",
        id="produce-3",
    ),
    pytest.param(
        0,
        (5, 6, 7),
        "topics [name string, partitions [partition int32, error_code int16, base_offset int64, "
        "log_append_time_ms int64, log_start_offset int64]], throttle_time_ms int32",
        id="produce-5",
    ),
    pytest.param(
        1,
        (0,),
        "topics [name string, partitions [partition int32, error_code int16, high_watermark "
        "int64, records records]]",
        id="F-2-fetch-0",
    ),
    pytest.param(
        1,
        (1, 2, 3),
        "throttle_time_ms int32, topics [name string, partitions [partition int32, error_code "
        "int16, high_watermark int64, records records]]",
        id="F-2-fetch",
    ),
    *(
        pytest.param(
            1,
            versions,
            f"throttle_time_ms int32, {session}topics [name string, partitions [partition int32, "
            f"error_code int16, high_watermark int64, last_stable_offset int64, {start}"
            "aborted_transactions nullable [producer_id int64, first_offset int64], records "
            "records]]",
            id=f"fetch-{versions[0]}",
        )
        for versions, session, start in (
            ((4,), "", ""),
            ((5, 6), "", LOG_START),
            ((7, 8, 9, 10), "error_code int16, session_id int32, ", LOG_START),
        )
    ),
    pytest.param(
        2,
        (0,),
        "topics [name string, partitions [partition int32, error_code int16, "
        "old_style_offsets [int64]]]",
        id="L-1-list-offsets-0",
    ),
    pytest.param(
        2,
        (1,),
        "topics [name string, partitions [partition int32, error_code int16, timestamp int64, "
        "offset int64]]",
        id="L-2-list-offsets-1",
    ),
    pytest.param(
        2,
        (2, 3),
        f"{THROTTLE}, topics [name string, partitions [partition int32, error_code int16, "
        "timestamp int64, offset int64]]",
        id="list-offsets-2",
    ),
    pytest.param(
        2,
        (4, 5, 6, 7),
        f"{THROTTLE}, topics [name string, partitions [partition int32, error_code int16, "
        "timestamp int64, offset int64, leader_epoch int32]]",
        id="list-offsets-4",
    ),
    pytest.param(
        3,
        (0,),
        "brokers [node_id int32, host string, port int32], topics [error_code int16, name string, "
        "partitions [error_code int16, partition int32, leader_id int32, replica_nodes [int32], "
        "isr_nodes [int32]]]",
        id="metadata",
    ),
    *(
        pytest.param(
            3,
            versions,
            f"{throttle}brokers [node_id int32, host string, port int32, rack nullable string], "
            f"{cluster}controller_id int32, topics [error_code int16, name string, {uuid}"
            f"is_internal boolean, partitions [error_code int16, partition int32, leader_id int32, "
            f"{epoch}"
            f"replica_nodes [int32], isr_nodes [int32]{offline}]{of_topic}]{of_cluster}",
            id=f"metadata-{versions[0]}",
        )
        for versions, throttle, cluster, uuid, epoch, offline, of_topic, of_cluster in (
            ((1,), "", "", "", "", "", "", ""),
            ((2,), "", CLUSTER, "", "", "", "", ""),
            ((3, 4), f"{THROTTLE}, ", CLUSTER, "", "", "", "", ""),
            ((5, 6), f"{THROTTLE}, ", CLUSTER, "", "", OFFLINE, "", ""),
            ((7,), f"{THROTTLE}, ", CLUSTER, "", "leader_epoch int32, ", OFFLINE, "", ""),
            *(
                (
                    versions,
                    f"{THROTTLE}, ",
                    CLUSTER,
                    uuid,
                    "leader_epoch int32, ",
                    OFFLINE,
                    ", topic_authorized_operations int32",
                    ", cluster_authorized_operations int32",
                )
                for versions, uuid in (
                    ((8, 9), ""),
                    ((10,), "topic_uuid_high int64, topic_uuid_low int64, "),
                )
            ),
        )
    ),
    pytest.param(8, (0, 1, 2), COMMITTED, id="offset-commit"),
    pytest.param(8, (3, 4, 5, 6, 7), f"{THROTTLE}, {COMMITTED}", id="offset-commit-3"),
    pytest.param(
        9,
        (0, 1),
        "topics [name string, partitions [partition int32, committed_offset int64, metadata "
        "nullable string, error_code int16]]",
        id="offset-fetch",
    ),
    pytest.param(
        9,
        (2,),
        "topics [name string, partitions [partition int32, committed_offset int64, metadata "
        "nullable string, error_code int16]], error_code int16",
        id="offset-fetch-2",
    ),
    pytest.param(
        9,
        (3, 4),
        f"{THROTTLE}, topics [name string, partitions [partition int32, committed_offset int64, "
        "metadata nullable string, error_code int16]], error_code int16",
        id="offset-fetch-3",
    ),
    pytest.param(
        9,
        (5,),
        f"{THROTTLE}, topics [name string, partitions [partition int32, committed_offset int64, "
        "committed_leader_epoch int32, metadata nullable string, error_code int16]], error_code "
        "int16",
        id="offset-fetch-5",
    ),
    pytest.param(
        10, (0,), "error_code int16, node_id int32, host string, port int32", id="coordinator-0"
    ),
    pytest.param(
        10,
        (1, 2),
        f"{THROTTLE}, error_code int16, error_message nullable string, node_id int32, host "
        "string, port int32",
        id="coordinator-1",
    ),
    pytest.param(11, (0, 1), JOINED, id="join-group"),
    pytest.param(11, (2, 3, 4), f"{THROTTLE}, {JOINED}", id="join-group-2"),
    pytest.param(
        11,
        (5,),
        f"{THROTTLE}, {JOINED.replace('metadata', f'{INSTANCE}, metadata')}",
        id="join-group-5",
    ),
    pytest.param(12, (0,), "error_code int16", id="heartbeat"),
    pytest.param(12, (1, 2, 3), f"{THROTTLE}, error_code int16", id="heartbeat-1"),
    pytest.param(13, (0,), "error_code int16", id="leave-group"),
    pytest.param(13, (1, 2), f"{THROTTLE}, error_code int16", id="leave-group-1"),
    pytest.param(
        13,
        (3,),
        f"{THROTTLE}, error_code int16, members [member_id string, {INSTANCE}, error_code int16]",
        id="leave-group-3",
    ),
    pytest.param(14, (0,), "error_code int16, assignment bytes", id="sync-group"),
    pytest.param(
        14, (1, 2, 3), f"{THROTTLE}, error_code int16, assignment bytes", id="sync-group-1"
    ),
    pytest.param(15, (0,), GROUPS, id="describe-groups"),
    pytest.param(15, (1, 2), f"{THROTTLE}, {GROUPS}", id="describe-groups-1"),
    *(
        pytest.param(
            15,
            (version,),
            f"{THROTTLE}, {GROUPS.replace('client_id', member).removesuffix(']')}, "
            "authorized_operations int32]",
            id=f"describe-groups-{version}",
        )
        for version, member in ((3, "client_id"), (4, f"{INSTANCE}, client_id"))
    ),
    pytest.param(
        16, (0,), "error_code int16, groups [group_id string, protocol_type string]", id="list-0"
    ),
    pytest.param(
        16,
        (1, 2, 3),
        f"{THROTTLE}, error_code int16, groups [group_id string, protocol_type string]",
        id="list-1",
    ),
    *(
        pytest.param(
            16,
            (version,),
            f"{THROTTLE}, error_code int16, groups [group_id string, protocol_type string, "
            f"group_state string{group_type}]",
            id=f"list-{version}",
        )
        for version, group_type in ((4, ""), (5, ", group_type string"))
    ),
    pytest.param(
        42,
        (0, 1),
        f"{THROTTLE}, results [group_id string, error_code int16]",
        id="delete-groups",
    ),
    pytest.param(18, (0,), f"error_code int16, api_keys {API_RANGES}", id="api-versions"),
    pytest.param(
        18,
        (1, 2, 3),
        f"error_code int16, api_keys {API_RANGES}, {THROTTLE}",
        id="api-versions-1",
    ),
    pytest.param(
        43,
        (1,),
        f"{THROTTLE}, error_code int16, topics [topic string, partitions [partition int32, "
        f"{ERROR_TEXT}]]",
        id="elect-leaders",
    ),
    pytest.param(
        46,
        (0,),
        f"{THROTTLE}, {ERROR_TEXT}, topics [name string, partitions [partition_index int32, "
        "replicas [int32], adding_replicas [int32], removing_replicas [int32]]]",
        id="list-reassignments",
    ),
    pytest.param(
        47,
        (0,),
        f"error_code int16, {THROTTLE}, topics [name string, partitions [partition int32, "
        "error_code int16]]",
        id="offset-delete",
    ),
    *(
        pytest.param(
            55,
            (version,),
            f"error_code int16, {text}topics [topic_name string, partitions [partition_index "
            f"int32, error_code int16, {text}leader_id int32, leader_epoch int32, high_watermark "
            f"int64, current_voters [{voter}], observers [{voter}]]]{nodes}",
            id=f"describe-quorum-{version}",
        )
        for version, text, voter, nodes in (
            (0, "", "replica_id int32, log_end_offset int64", ""),
            (1, "", f"replica_id int32, {QUORUM_REPLICA}", ""),
            (
                2,
                "error_message nullable string, ",
                "replica_id int32, replica_directory_high int64, replica_directory_low int64, "
                f"{QUORUM_REPLICA}",
                ", nodes [node_id int32, listeners [name string, host string, port int16]]",
            ),
        )
    ),
    *(
        pytest.param(
            60,
            (version,),
            f"{THROTTLE}, {ERROR_TEXT}, {endpoint}cluster_id string, controller_id int32, brokers "
            "[broker_id int32, host string, port int32, rack nullable string], "
            "cluster_authorized_operations int32",
            id=f"describe-cluster-{version}",
        )
        for version, endpoint in ((0, ""), (1, "endpoint_type int8, "))
    ),
    pytest.param(
        61,
        (0,),
        f"{THROTTLE}, topics [name string, partitions [partition int32, {ERROR_TEXT}, "
        "active_producers [producer_id int64, producer_epoch int32, last_sequence int32, "
        "last_timestamp int64, coordinator_epoch int32, current_txn_start_offset int64]]]",
        id="describe-producers",
    ),
    pytest.param(
        66,
        (0,),
        f"{THROTTLE}, error_code int16, unknown_state_filters [string], transaction_states "
        "[transactional_id string, producer_id int64, transaction_state string]",
        id="list-transactions",
    ),
    pytest.param(19, (0,), f"topics {TOPIC_ERRORS}", id="create-topics"),
    pytest.param(19, (1,), f"topics {TOPIC_ERROR_TEXTS}", id="create-topics-1"),
    pytest.param(19, (2, 3, 4), f"{THROTTLE}, topics {TOPIC_ERROR_TEXTS}", id="create-topics-2"),
    pytest.param(20, (0,), f"responses {TOPIC_ERRORS}", id="delete-topics"),
    pytest.param(20, (1, 2, 3), f"{THROTTLE}, responses {TOPIC_ERRORS}", id="delete-topics-1"),
    pytest.param(
        21,
        (0, 1),
        f"{THROTTLE}, topics [name string, partitions [partition int32, low_watermark int64, "
        "error_code int16]]",
        id="delete-records",
    ),
    pytest.param(
        22,
        (0, 1),
        f"{THROTTLE}, error_code int16, producer_id int64, producer_epoch int16",
        id="init-producer-id",
    ),
    pytest.param(
        23,
        (0,),
        "topics [name string, partitions [error_code int16, partition int32, end_offset int64]]",
        id="offset-for-leader-epoch",
    ),
    pytest.param(
        23,
        (1,),
        "topics [name string, partitions [error_code int16, partition int32, leader_epoch int32, "
        "end_offset int64]]",
        id="offset-for-leader-epoch-1",
    ),
    pytest.param(
        23,
        (2, 3),
        f"{THROTTLE}, topics [name string, partitions [error_code int16, partition int32, "
        "leader_epoch int32, end_offset int64]]",
        id="offset-for-leader-epoch-2",
    ),
    pytest.param(
        35,
        (0, 1),
        f"{THROTTLE}, results [error_code int16, log_dir string, topics [name string, partitions "
        "[partition int32, size_bytes int64, offset_lag int64, is_future_key boolean]]]",
        id="describe-log-dirs",
    ),
    pytest.param(37, (0, 1), f"{THROTTLE}, results {TOPIC_ERROR_TEXTS}", id="create-partitions"),
    pytest.param(
        32,
        (1, 2),
        f"{THROTTLE}, results [error_code int16, error_message nullable string, {RESOURCE}, "
        "configs [name string, value nullable string, read_only boolean, config_source int8, "
        "is_sensitive boolean, synonyms [name string, value nullable string, source int8]]]",
        id="describe-configs-1",
    ),
    pytest.param(
        32,
        (0,),
        f"throttle_time_ms int32, results [error_code int16, error_message nullable string, "
        f"{RESOURCE}, configs [name string, value nullable string, read_only boolean, is_default "
        "boolean, is_sensitive boolean]]",
        id="describe-configs",
    ),
    pytest.param(
        33,
        (0, 1),
        "throttle_time_ms int32, responses [error_code int16, error_message nullable string, "
        f"{RESOURCE}]",
        id="alter-configs",
    ),
    pytest.param(
        44,
        (0, 1),
        "throttle_time_ms int32, responses [error_code int16, error_message nullable string, "
        f"{RESOURCE}]",
        id="incremental-alter-configs",
    ),
    pytest.param(17, (0, 1), "error_code int16, mechanisms [string]", id="sasl-handshake"),
    pytest.param(
        36,
        (0,),
        "error_code int16, error_message nullable string, auth_bytes bytes",
        id="sasl-authenticate",
    ),
    pytest.param(
        36,
        (1,),
        "error_code int16, error_message nullable string, auth_bytes bytes, "
        "session_lifetime_ms int64",
        id="sasl-authenticate-1",
    ),
    pytest.param(
        48,
        (0, 1),
        f"{THROTTLE}, {ERROR_TEXT}, entries nullable [{ENTITY}, values [key string, value "
        "float64]]",
        id="describe-quotas",
    ),
    pytest.param(
        49,
        (0, 1),
        f"{THROTTLE}, entries [{ERROR_TEXT}, {ENTITY}]",
        id="alter-quotas",
    ),
    pytest.param(
        50,
        (0,),
        f"{THROTTLE}, error_code int16, error_message nullable string, results [user string, "
        "error_code int16, error_message nullable string, credential_infos [mechanism int8, "
        "iterations int32]]",
        id="describe-scram",
    ),
    pytest.param(
        51,
        (0,),
        f"{THROTTLE}, results [user string, error_code int16, error_message nullable string]",
        id="alter-scram",
    ),
    *(
        pytest.param(
            key, (version,), f"{THROTTLE}, " + text.format(pattern), id=f"{name}-{version}"
        )
        for version, pattern in ((0, ""), (1, "pattern_type int8, "))
        for key, name, text in (
            (
                29,
                "describe-acls",
                ERROR_TEXT
                + ", resources [resource_type int8, resource_name string, {}acls ["
                + ACL
                + "]]",
            ),
            (30, "create-acls", f"results [{ERROR_TEXT}]"),
            (
                31,
                "delete-acls",
                f"filter_results [{ERROR_TEXT}, matching_acls [{ERROR_TEXT}, resource_type int8, "
                "resource_name string, {}" + ACL + "]]",
            ),
        )
    ),
]


def layout(struct: type[Any], version: int) -> str:
    """The fields that Kafka's encoding of this version has, in words."""
    return ", ".join(
        f"{spec.name} {in_words(spec.type, version)}"
        for spec in fields_of(struct, version, native=False)
    )


def in_words(wire_type: Any, version: int) -> str:
    if not isinstance(wire_type, Array):
        return str(wire_type)
    inner = wire_type.of
    words = layout(inner, version) if isinstance(inner, type) else str(inner)
    return f"nullable [{words}]" if wire_type.nullable else f"[{words}]"


@pytest.mark.parametrize(("key", "versions", "expected"), KAFKA_LAYOUTS)
def test_requests_have_kafkas_fields(key: int, versions: tuple[int, ...], expected: str) -> None:
    for version in versions:
        assert layout(registry.APIS[key].request, version) == expected


@pytest.mark.parametrize(("key", "versions", "expected"), KAFKA_RESPONSE_LAYOUTS)
def test_responses_have_kafkas_fields(key: int, versions: tuple[int, ...], expected: str) -> None:
    for version in versions:
        assert layout(registry.APIS[key].response, version) == expected


@pytest.mark.parametrize("layouts", [KAFKA_LAYOUTS, KAFKA_RESPONSE_LAYOUTS])
def test_every_version_of_every_kafka_request_is_in_the_table(layouts: list[Any]) -> None:
    listed = {(row.values[0], version) for row in layouts for version in row.values[1]}
    declared = {
        (api.key, version)
        for api in registry.APIS.values()
        if not api.native
        for version in api.versions(native=False)
    }
    assert listed == declared
