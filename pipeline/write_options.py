"""The options of a write, checked before anything is sent. Nothing here needs Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..protocol.records.layout import Codec
from .option_values import OptionError
from .options import COMMON_NAMES, BrokerOptions, OptionValues

WRITE_NAMES: Final = (
    *COMMON_NAMES,
    "topic",
    "timestampColumn",
    "includeHeaders",
    "acks",
    "compression",
    "idempotent",
    "partitioner",
    "jobId",
    # Spark's own, which it hands on.
    "checkpointLocation",
    "queryName",
    "outputMode",
)
_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_CODECS: Final = {codec.label: codec for codec in Codec}


class Partitioner(StrEnum):
    """Which partition a row without a column `partition` goes to, by its key."""

    MURMUR2 = "murmur2"
    """As Kafka's Java client chooses."""
    CRC32 = "crc32"
    """As librdkafka chooses without a setting."""
    NONE = "none"
    """Keys do not matter: partitions get rows in turn."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write, of a batch or of a stream."""

    broker: BrokerOptions
    topic: str | None = None
    """None takes the column `topic`."""
    timestamp_column: str | None = None
    """None takes the column `timestamp` if there is one, else the time of the write."""
    headers: bool = True
    """Whether a column `headers` is written."""
    acks: int = -1
    codec: Codec = Codec.NONE
    idempotent: bool = True
    job_id: str | None = None
    """In a batch: what makes a second run of the same job write nothing twice."""
    partitioner: Partitioner = Partitioner.MURMUR2


def write_options(options: Mapping[str, str], *, overwrite: bool, streaming: bool) -> WriteOptions:
    """The options of a write. Raises OptionError."""
    given = OptionValues(options)
    given.check(WRITE_NAMES, "a write")
    if overwrite and not streaming:
        raise OptionError('a topic can only be appended to: use mode("append")')
    topic = given.text("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty: name one, or leave it out and have a column topic")
    job_id = given.text("jobId")
    idempotent = given.flag("idempotent", True)
    if job_id is not None and (streaming or not idempotent):
        raise OptionError(
            "jobId is for batches that are idempotent; a stream is known by its checkpoint"
        )
    return WriteOptions(
        given.broker(),
        topic,
        given.text("timestampColumn"),
        given.flag("includeHeaders", True),
        _ACKS[given.choice("acks", "all", tuple(_ACKS))],
        _CODECS[given.choice("compression", "none", tuple(_CODECS))],
        idempotent,
        job_id,
        Partitioner(given.choice("partitioner", "murmur2", tuple(Partitioner))),
    )
