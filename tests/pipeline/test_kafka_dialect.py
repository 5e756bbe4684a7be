"""The same source and sink through Kafka's protocol, as they are used with an Apache Kafka."""

import asyncio
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from horolog import blocking
from horolog.pipeline.options import write_options
from horolog.pipeline.sending import Row, Sending, producer_id
from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program

from .sources import T0_MS, read, sizes, source


def test_written_twice_and_read_once(tmp_path: Path) -> None:
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path / "data", settings) as broker:
        address = f"kafka://{broker.kafka_address}"
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("t", partitions=3)
        chosen = write_options({"bootstrap.servers": address}, overwrite=False, streaming=False)
        rows = [
            Row("t", None, b"%d" % (number % 5), b"%d" % number, T0_MS + number, (("h", b"x"),))
            for number in range(5000)
        ]
        for _ in range(2):
            assert asyncio.run(Sending(chosen, producer_id("j", 0), 0).send([iter(rows)])) == 5000
        found = read(
            source(address, subscribe="t", includeHeaders=True, startingTimestamp=T0_MS + 100)
        )
        assert sorted(int(row["value"]) for row in found) == list(range(100, 5000))
        assert found[0]["headers"] == [{"key": "h", "value": b"x"}]
        made = source(address, subscribe="t", startingOffsets="earliest", idleWaitMs=10)
        reader = made.streamReader(made.schema())
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sum(sizes(reader.partitions(start, end))) == 5000
        assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_reader_over_its_quota_reads_everything_all_the_same(tmp_path: Path) -> None:
    """A Kafka cluster answers with nothing then, not even about the partition."""
    settings = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0", "quota.window.num": 2}
    with BrokerThread(tmp_path / "data", settings) as broker:
        with blocking.Producer(broker.address) as producer:
            for number in range(15):
                producer.send("t", bytes(20_000), timestamp_ms=T0_MS + number)
        quota = "consumer_byte_rate=200000"
        Program().ok("quota", "set", "--for-user-defaults", quota, "--server", broker.address)
        address = f"kafka://{broker.kafka_address}"
        found = read(source(address, subscribe="t", startingOffsets="earliest"))
        # Of 300 KB a second's worth, and a message, come at once.
        assert broker._broker.figures.throttled["consumer_byte_rate"] > 0
        assert [row["offset"] for row in found] == list(range(15))
        with blocking.Consumer(address) as consumer:
            consumer.assign("t", offset=0)
            assert [next(consumer).offset for _ in range(15)] == list(range(15))
