"""A stream that is begun again with other topics than its checkpoint has."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from horolog import blocking
from horolog.pipeline.planning import DataLoss
from horolog.pipeline.source import StreamReader
from horolog.testing.broker import BrokerThread

from .sources import carried, plain, sizes, source

MakeTopic = Callable[..., str]

LEFT = "is in the checkpoint and is not subscribed to"


def stream(broker: BrokerThread, **options: object) -> StreamReader:
    given = {"startingOffsets": "earliest", "idleWaitMs": 0, **options}
    made = source(broker.address, **given)
    reader: StreamReader = carried(made.streamReader(made.schema()))
    return reader


def checkpoint(broker: BrokerThread, producer: blocking.Producer, *topics: str) -> Any:
    """Offsets behind 5 messages in each partition 0."""
    for topic in topics:
        producer.send_batch(topic, [b"v"] * 5, partition=0)
    reader = stream(broker, subscribe=",".join(topics))
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize("with_ids", [True, False], ids=["ids", "no ids"])
@pytest.mark.parametrize("by", ["subscribe", "assign", "subscribePattern"])
def test_a_topic_that_is_left_out_is_not_read(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    by: str,
    with_ids: bool,
) -> None:
    kept, left = make_topic(), make_topic(2)
    start = checkpoint(broker, producer, kept, left)
    if not with_ids:
        start = plain(start)
    producer.send_batch(left, [b"more"] * 9, partition=0)
    reader = stream(broker, **{by: json.dumps({kept: [0]}) if by == "assign" else kept})
    with caplog.at_level(logging.WARNING):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        producer.send_batch(kept, [b"more"] * 3)
        end = reader.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {kept: {"0": 8}}
    assert left not in json.dumps(end)
    assert sizes(reader.partitions(start, end)) == [3]
    told = [text for text in caplog.messages if LEFT in text]
    assert [text.split()[0] for text in told] == [f"{left}-0", f"{left}-1"]


def test_a_partition_that_is_left_out_is_not_read(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    start = checkpoint(broker, producer, topic)
    for partition in range(3):
        producer.send_batch(topic, [b"more"] * 2, partition=partition)
    reader = stream(broker, assign=json.dumps({topic: [0, 2]}))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {topic: {"0": 7, "2": 2}}
    assert sizes(reader.partitions(start, end)) == [2, 2]
    everything = stream(broker, subscribe=topic)
    later = everything.latestOffset(end, ReadAllAvailable())
    assert plain(later) == {topic: {"0": 7, "1": 2, "2": 2}}
    assert sizes(everything.partitions(end, later)) == [2]


def test_what_is_available_now_ends_without_a_topic(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    kept, left = make_topic(), make_topic()
    start = checkpoint(broker, producer, kept, left)
    reader = stream(broker, subscribe=kept)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert plain(end) == {kept: {"0": 5}}
    assert list(reader.partitions(start, end)) == []
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


@pytest.mark.parametrize("with_ids", [True, False], ids=["ids", "no ids"])
def test_a_topic_that_is_left_out_and_gone_is_data_loss(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    with_ids: bool,
) -> None:
    kept, left = make_topic(), make_topic()
    start = checkpoint(broker, producer, kept, left)
    if not with_ids:
        start = plain(start)
    admin.delete_topic(left)
    text = f"{left}-0 was to be read from offset 5 on, and is not there"
    with pytest.raises(DataLoss, match=text):
        stream(broker, subscribe=kept).latestOffset(start, ReadAllAvailable())
    lenient = stream(broker, subscribe=kept, failOnDataLoss=False)
    assert lenient.latestOffset(start, ReadAllAvailable()) == start


def test_a_topic_that_is_left_out_and_made_again_is_data_loss(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    kept, left = make_topic(), make_topic()
    start = checkpoint(broker, producer, kept, left)
    admin.delete_topic(left)
    admin.create_topic(left)
    with pytest.raises(DataLoss, match=f"topic {left} was deleted and made again"):
        stream(broker, subscribe=kept).latestOffset(start, ReadAllAvailable())
    producer.send_batch(kept, [b"more"] * 3)
    lenient = stream(broker, subscribe=kept, failOnDataLoss=False)
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {kept: {"0": 8}}
    assert sizes(lenient.partitions(start, end)) == [3]
