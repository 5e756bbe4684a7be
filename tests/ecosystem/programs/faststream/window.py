"""Reads a topic until it is told to stop: ADDRESS TOPIC. Writes `PARTITION OFFSET` for each
message."""

import asyncio
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaMessage


def main(address: str, topic: str) -> None:
    broker = KafkaBroker(address)

    @broker.subscriber(  # type: ignore[untyped-decorator]
        topic, group_id="by-faststream", auto_offset_reset="earliest"
    )
    async def note(message: KafkaMessage) -> None:
        read = message.raw_message
        sys.stdout.write(f"{read.partition} {read.offset}\n")
        sys.stdout.flush()

    asyncio.run(FastStream(broker).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
