"""What `horolog consume` reads, and a message of it as a line of output."""

from ..client.client import ReadFrom
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..client.results import ConsumerRecord
from ..values import value_class
from .broker_requests import FOLLOW_WAIT_MS, PARTITIONS_AGE_MS
from .output import (
    json_bytes,
    json_headers,
    json_line,
    json_time,
    shown_bytes,
    shown_headers,
    shown_time,
)


@value_class
class RecordReading:
    """What is read, from where, and how it is printed."""

    server: Servers
    read_from: ReadFrom
    topic: str
    partition: int | None
    """None: all partitions."""
    as_json: bool
    follow: bool
    append_time: bool
    """Whether lines have the append time."""
    read_committed: bool

    def consumer(self, *, check_units: bool = True) -> Consumer:
        """One that raises what goes wrong at once: `Connected` asks again."""
        return Consumer(
            self.server,
            max_wait_ms=FOLLOW_WAIT_MS,
            append_times=self.append_time,
            read_committed=self.read_committed,
            retry_timeout_ms=0,
            metadata_max_age_ms=PARTITIONS_AGE_MS,
            check_units=check_units,
            read_from=self.read_from,
        )

    def line(self, record: ConsumerRecord) -> str:
        """A message, as JSON or for people."""
        return self._as_json(record) if self.as_json else self._as_text(record)

    def _as_json(self, record: ConsumerRecord) -> str:
        fields: dict[str, object] = {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": json_time(record.timestamp_ms),
            "timestamp_type": record.timestamp_type,
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
        }
        if self.append_time:
            fields["append_time_ms"] = json_time(record.append_time_ms)
        if record.headers:
            fields["headers"] = json_headers(record.headers)
        return json_line(fields)

    def _as_text(self, record: ConsumerRecord) -> str:
        times = f"{shown_time(record.timestamp_ms):24}"
        if self.append_time:
            times += f"  {shown_time(record.append_time_ms):24}"
        place = f"{record.partition}:{record.offset}"
        key, value = shown_bytes(record.key), shown_bytes(record.value)
        return f"{times}  {place:>8}  {key}  {value}{shown_headers(record.headers)}"
