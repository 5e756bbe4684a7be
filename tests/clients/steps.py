"""What is proved of the clients, step by step: the rows of the table in docs/clients.md."""

from enum import Enum


class Step(Enum):
    """One row of the table: what a client does with a broker."""

    NONE = "produce and consume, not compressed"
    GZIP = "the same with gzip"
    SNAPPY = "the same with snappy"
    LZ4 = "the same with lz4"
    ZSTD = "the same with zstd"
    HEADERS = "headers come back as they were sent"
    TIMES = "timestamps come back as they were sent"
    MID_BATCH = "consume from the middle of a compressed batch"
    IDEMPOTENCE = "idempotent producer: batches are numbered"
    OFFSETS_FOR_TIMES = "the first offset at a time, exact within a compressed batch"
    GROUP = "group: join, commit, leave, resume where it was committed"
    REBALANCE = "group: two members share partitions, one leaves"
    TOPICS = "create, describe, alter and delete topics"
    TIMESTAMP_SETTINGS = "timestamp settings, under Kafka's names and our own"
    INVALID_TIMESTAMP = "a message out of the allowed time is refused as INVALID_TIMESTAMP"
    SHORT_NAMES = "five topics with names of two letters"
    SLOW_CONSUMER = "a consumer that does not poll holds up no other, and loses nothing"
    RESTART = "a broker restart under a running producer and a running group"
    OLD_FORMATS = "read what clients of Kafka 0.9, 0.10 and now wrote to one topic"


CODECS = {
    "none": Step.NONE,
    "gzip": Step.GZIP,
    "snappy": Step.SNAPPY,
    "lz4": Step.LZ4,
    "zstd": Step.ZSTD,
}
"""The step that sends with a codec."""
