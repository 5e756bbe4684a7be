"""A message that was read, as a line of output."""

from ..client.results import ConsumerRecord
from .output import (
    json_bytes,
    json_headers,
    json_line,
    json_time,
    shown_bytes,
    shown_headers,
    shown_time,
)


def record_line(record: ConsumerRecord, *, as_json: bool, append_time: bool) -> str:
    """The line, with the append time where that is asked for."""
    return _as_json(record, append_time) if as_json else _as_text(record, append_time)


def _as_json(record: ConsumerRecord, append_time: bool) -> str:
    fields: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": json_time(record.timestamp_ms),
        "timestamp_type": record.timestamp_type,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }
    if append_time:
        fields["append_time_ms"] = json_time(record.append_time_ms)
    if record.headers:
        fields["headers"] = json_headers(record.headers)
    return json_line(fields)


def _as_text(record: ConsumerRecord, append_time: bool) -> str:
    times = f"{shown_time(record.timestamp_ms):24}"
    if append_time:
        times += f"  {shown_time(record.append_time_ms):24}"
    place = f"{record.partition}:{record.offset}"
    key, value = shown_bytes(record.key), shown_bytes(record.value)
    return f"{times}  {place:>8}  {key}  {value}{shown_headers(record.headers)}"
