"""All figures by name. Names and units are fixed, so that versions can be compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from .beside import fast_beside_bulk, fast_beside_slow
from .brokers import MIB
from .client import client_arrow, client_columns, client_send, client_send_batch
from .disk import durable_acks, growth
from .figure import Figure
from .guard.costs import acl_cost, quota_held, tls_cost
from .longest_turn import longest_turn
from .requests import (
    batch_rate,
    echo,
    fetch_rate,
    find_time,
    latency_count_cost,
    produce_one,
    produce_one_pipelined,
    produce_rate,
)
from .starting import empty, index_memory, of_3500, recovery
from .window_topics import produce_beside_window, window_topic
from .windows import time_map_cost, window_hour

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures that are measured together."""

    names: tuple[str, ...]
    measure: Callable[[], Iterator[Figure]]


def _produced(
    name: str,
    value_bytes: int,
    set_bytes: int,
    rate: Callable[..., Iterator[Figure]] = produce_rate,
) -> Measurement:
    return Measurement((name,), partial(rate, name, value_bytes, set_bytes))


def _fetched(name: str, fetch_bytes: int, in_flight: int) -> Measurement:
    return Measurement((name,), partial(fetch_rate, name, fetch_bytes, in_flight))


MEASUREMENTS: Final = (
    Measurement(("echo_p50",), echo),
    _produced("produce_100B_16KiB", 100, 16 * _KIB),
    _produced("produce_100B_64KiB", 100, 64 * _KIB),
    _produced("produce_100B_64KiB_v2", 100, 64 * _KIB, batch_rate),
    _produced("produce_100B_900KiB", 100, 900 * _KIB),
    # The largest that is allowed by default: 1,000,012 bytes.
    _produced("produce_100B_1MiB", 100, 1_000_000),
    _produced("produce_1KiB_64KiB", _KIB, 64 * _KIB),
    _produced("produce_1KiB_900KiB", _KIB, 900 * _KIB),
    Measurement(
        ("produce_100B_growing", "produce_1KiB_growing", "socket_to_file", "file_write_new"), growth
    ),
    Measurement(("produce_one",), produce_one),
    Measurement(("produce_one_pipelined",), produce_one_pipelined),
    Measurement(
        ("durable_acks", "durable_acks_p99", "disk_syncs_32", "disk_syncs_32_p99"), durable_acks
    ),
    _fetched("fetch_64KiB", 64 * _KIB, 1),
    _fetched("fetch_1MiB", MIB, 4),
    _fetched("fetch_8MiB", 8 * MIB, 4),
    Measurement(("find_time_1", "find_time_1000", "find_time_10000"), find_time),
    Measurement(("latency_count_cost",), latency_count_cost),
    Measurement(("recovery",), recovery),
    Measurement(("start_empty", "rss_idle"), empty),
    Measurement(("start_3500", "rss_3500"), of_3500),
    Measurement(("fast_beside_slow",), fast_beside_slow),
    Measurement(("fast_beside_bulk",), fast_beside_bulk),
    Measurement(("quota_held", "quota_beside"), quota_held),
    Measurement(("window_hour", "window_hour_first", "count_by_time"), window_hour),
    Measurement(("window_topic", "window_topic_cpu"), window_topic),
    Measurement(("produce_beside_window",), produce_beside_window),
    Measurement(("time_map_cost", "time_map_cost_jitter"), time_map_cost),
    Measurement(("index_memory",), index_memory),
    Measurement(("produce_tls", "fetch_1MiB_tls", "produce_one_tls"), tls_cost),
    Measurement(("produce_acls", "produce_one_acls", "acl_check_cost"), acl_cost),
    Measurement(("longest_turn",), longest_turn),
    Measurement(("client_send",), client_send),
    Measurement(("client_send_batch",), client_send_batch),
    Measurement(("client_columns",), client_columns),
    Measurement(("client_arrow",), client_arrow),
)

NAMES: Final = tuple(name for measurement in MEASUREMENTS for name in measurement.names)
