"""Draws docs/pictures/latency.svg again: two hours in which the network is slow for a while.

A broker with a clock of its own gets messages as late as a network would bring them, and the job
behind `horolog pipeline latency` measures them.
"""

import tempfile
from pathlib import Path
from random import Random
from typing import Final

from horolog import blocking
from horolog.pipeline import session
from horolog.pipeline.jobs.latency import latency_report
from horolog.pipeline.jobs.latency_page import report_svg
from horolog.pipeline.jobs.ranges import plan_by_append_time
from horolog.testing.broker import BrokerThread

FOLDER: Final = Path(__file__).resolve().parent
START_MS: Final = 1_479_132_000_000
MINUTES: Final = 120
SLOW: Final = range(52, 64)
"""Minutes in which messages pile up and come late."""
WRONG_CLOCK: Final = (88, 89, 90)
"""Minutes in which a producer's clock is ahead."""


def feed(broker: BrokerThread, random: Random) -> None:
    """Two hours of messages."""
    broker.clock.freeze()
    broker.clock.jump((START_MS - broker.clock.now_ms()) / 1000)
    with (
        blocking.Admin(broker.address) as admin,
        blocking.Producer(broker.address) as producer,
    ):
        admin.create_topic("clicks", partitions=2, settings={"retention.ms": "-1"})
        for minute in range(MINUTES):
            slow_ms = 1400 * (1 + minute - SLOW.start) if minute in SLOW else 0
            count = 200 + 60 * (minute % 7) + (400 if minute == SLOW.stop else 0)
            for second in range(0, 60, 10):
                now_ms = broker.clock.now_ms()
                late = [
                    random.lognormvariate(5.2, 0.6) + slow_ms * random.random()
                    for _ in range(count // 6)
                ]
                if minute in WRONG_CLOCK and second == 0:
                    late[:5] = [-700.0] * 5
                times = [now_ms - round(one) for one in late]
                producer.send_batch("clicks", [b"click"] * len(times), timestamps_ms=times)
                broker.clock.step(10)


def main() -> None:
    """Write the picture."""
    spark = session("picture", master="local[2]", conf={"spark.ui.enabled": "false"})
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerThread(Path(folder)) as broker,
    ):
        feed(broker, Random(7))
        report = latency_report(spark, [plan_by_append_time(broker.address, "clicks", None, None)])
        (FOLDER / "latency.svg").write_text(report_svg(report, "clicks"), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
