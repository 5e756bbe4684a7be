"""Where the logs of each broker end, side by side: by this a person chooses whom to promote."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.api.cluster.describe_replicas import NOT_KNOWN, DescribeReplicasResponse, LogEnd
from ...storage.names import METADATA_TOPIC
from ..output import NOTHING, table

LogEnds = Mapping[tuple[str, int], Mapping[int, LogEnd]]
"""By topic and partition, and by broker that has said it."""


def ends_of(answers: Sequence[DescribeReplicasResponse]) -> LogEnds:
    """What brokers said of their own logs; a broker without a log is not in it."""
    found: dict[tuple[str, int], dict[int, LogEnd]] = {}
    for answer in sorted(answers, key=lambda one: one.broker_id):
        for one in answer.log_ends:
            found.setdefault((one.topic, one.partition), {})[answer.broker_id] = one
    return dict(sorted(found.items()))


def contested_as_text(answers: Sequence[DescribeReplicasResponse]) -> list[str]:
    """Whose messages each broker has from an epoch on that two brokers led in."""
    rows = [
        [
            f"{one.topic}-{one.partition}",
            str(answer.broker_id),
            f"{one.contested_from:,}",
            f"{one.end:,}",
            str(answer.contested_leader),
        ]
        for answer in answers
        for one in answer.log_ends
        if one.contested_from != NOT_KNOWN
    ]
    if not rows:
        return []
    epoch = next(one.contested_epoch for one in answers if one.contested_epoch != NOT_KNOWN)
    columns = ["partition", "at broker", "from offset", "until", "led by broker"]
    title = f"epoch {epoch} was led by two brokers; messages of it, and of later ones:"
    return ["", title, *table(columns, sorted(rows), right=columns[1:])]


def ends_as_objects(ends: LogEnds) -> list[dict[str, Any]]:
    """For --json: all partitions."""
    return [
        {
            "topic": topic,
            "partition": partition,
            "brokers": [
                {
                    "id": broker_id,
                    "end": one.end,
                    "epoch": one.epoch,
                    "contested_from": None
                    if one.contested_from == NOT_KNOWN
                    else one.contested_from,
                }
                for broker_id, one in by_broker.items()
            ],
        }
        for (topic, partition), by_broker in ends.items()
    ]


def ends_as_text(ends: LogEnds) -> list[str]:
    """A table of the partitions that do not end alike everywhere, and the sums of all."""
    if not ends:
        return []
    brokers = sorted({broker_id for by_broker in ends.values() for broker_id in by_broker})
    rows = []
    for (topic, partition), by_broker in ends.items():
        told = [by_broker.get(broker_id) for broker_id in brokers]
        epochs = {one.epoch for one in by_broker.values()}
        if len(epochs) == 1 and len({one and one.end for one in told}) == 1:
            continue
        rows.append([f"{topic}-{partition}", *(_shown(one, len(epochs) > 1) for one in told)])
    alike = len(ends) - len(rows)
    rows.append(["sum of all topics", *(f"{_sum(ends, broker_id):,}" for broker_id in brokers)])
    columns = ["log ends", *(f"broker {broker_id}" for broker_id in brokers)]
    lines = ["", *table(columns, rows, right=columns[1:])]
    if len(brokers) > 1:
        lines.append(f"partitions that end alike at all of them: {alike:,}")
    return lines


def _shown(one: LogEnd | None, with_epoch: bool) -> str:
    if one is None:
        return NOTHING
    return f"{one.end:,} (epoch {one.epoch})" if with_epoch else f"{one.end:,}"


def _sum(ends: LogEnds, broker_id: int) -> int:
    return sum(
        by_broker[broker_id].end
        for (topic, _), by_broker in ends.items()
        if topic != METADATA_TOPIC and broker_id in by_broker
    )
