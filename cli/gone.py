"""`horolog explain gone`: what left the logs of a topic."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.administer.gone import complete_from
from ..client.cluster.servers import Servers
from ..clock import SystemClock
from ..protocol.api.log.describe_removals import (
    DescribedRemoval,
    DescribeRemovalsResponse,
    PartitionCompleteness,
)
from ..protocol.errors import UnknownTopicOrPartition
from ..values import value_class
from .broker_requests import ask, partitions_of
from .errors import CommandFailed, note
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
    Json,
    Partition,
    Server,
    TopicName,
    parse_moment,
)
from .output import emit, json_line, json_time, plural, shown_time

_WORDS = {
    "retention": "went by",
    "trim": "were trimmed by",
    "deletion": "went when the topic was deleted by",
    "truncation": "were cut off at this broker:",
    "cleaning": "were cleaned by",
}

_HIDDEN: Final = "hidden: needs the right DescribeConfigs on the topic"

_TOLD_MAX: Final = 3
"""The largest number of removals printed after the result of another command."""


def gone(
    topic: TopicName,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only what may have had messages of this time: 2016-11-14T17:24:32Z, @-1h, or "
            "epoch milliseconds.",
        ),
    ] = None,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Say what left a topic: when, by which rule or user, which offsets and times.

    A deleted topic can be named, too. Removals that follow one another by the same rule are shown
    as one. Of each, the time of the first message and the largest time are known. Messages that
    came out of order may have any earlier time, so --at leaves out only what is older than TIME.
    """
    at_ms = None if at is None else parse_moment(at, "--at", SystemClock().now_ms(), any_unit)
    found = ask(Admin, server, lambda admin: _describe(admin, topic, partition))
    if not found.topic_id and not found.removals:
        raise CommandFailed(
            f"topic {topic!r} does not exist, and nothing is known to have left it",
            "`horolog topic list` shows what there is",
        )
    removals = [
        each
        for each in found.removals
        if partition in (None, each.partition) and (at_ms is None or may_have(each, at_ms))
    ]
    if as_json:
        emit(_as_json(topic, found.topic_id, each) for each in removals)
    else:
        emit(_as_text(topic, found, removals, at_ms))


async def _describe(admin: Admin, topic: str, partition: int | None) -> DescribeRemovalsResponse:
    try:
        wanted = await partitions_of(admin, topic, partition)
    except UnknownTopicOrPartition:
        wanted = range(0)  # It may be deleted.
    return await admin.describe_removals(topic, wanted)


def may_have(removal: DescribedRemoval, at_ms: int) -> bool:
    """Whether removed messages may have had a time. An unknown largest time is no limit, and the
    time of the first message is none: later messages may have earlier times."""
    if removal.messages == 0:
        return False
    return removal.largest_timestamp_ms < 0 or at_ms <= removal.largest_timestamp_ms


def _as_json(topic: str, topic_id: str, removal: DescribedRemoval) -> str:
    return json_line(
        topic=topic,
        topic_id=removal.topic_id,
        earlier_topic=removal.topic_id != topic_id,
        **_facts(removal),
    )


@value_class
class Incompleteness:
    """What a window or a search that begins at a time may miss, because it left the topic."""

    topic: str
    complete_from_ms: int | None
    """Time from which on no message has left the partitions; None if it is not known."""
    removed: tuple[DescribedRemoval, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Yield what to tell a person."""
        if self.complete_from_ms is None:
            yield f"it is not known what left {self.topic}: see `horolog explain gone {self.topic}`"
            return
        yield f"{self.topic} is complete only from {shown_time(self.complete_from_ms)} on"
        left_out = len(self.removed) - _TOLD_MAX
        for removal in self.removed[-_TOLD_MAX:]:
            yield removal_sentence(self.topic, removal.topic_id, removal)
        if left_out > 0:
            yield f"{left_out} more such entries: `horolog explain gone {self.topic}`"

    def tell(self) -> None:
        """Say it on standard error."""
        for sentence in self.sentences():
            note(sentence)


def incompleteness(
    server: Servers,
    topic: str,
    from_ms: int | None,
    complete_from_ms: int | None,
    removed: tuple[DescribedRemoval, ...],
) -> list[Incompleteness]:
    """Return what a window or a search from a time on (None: from the first message on) may miss,
    if anything. Empty for a Kafka cluster, of which nothing is known."""
    if server.kafka or (complete_from_ms is not None and complete_from_ms <= (from_ms or 0)):
        return []
    return [Incompleteness(topic, complete_from_ms, removed)]


def joined_by_topic(parts: Iterable[Incompleteness]) -> list[Incompleteness]:
    """Return what several windows or searches may miss, once for each topic."""
    topics: dict[str, list[Incompleteness]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    return [_joined(topic, own) for topic, own in topics.items()]


def _joined(topic: str, parts: Sequence[Incompleteness]) -> Incompleteness:
    removed = {
        (each.partition, each.cause, each.rule, each.first_offset, each.at_ms): each
        for part in parts
        for each in part.removed
    }
    in_order = sorted(removed.values(), key=lambda each: each.at_ms)
    return Incompleteness(
        topic, complete_from(part.complete_from_ms for part in parts), tuple(in_order)
    )


def removal_as_object(topic: str, removal: DescribedRemoval) -> dict[str, object]:
    """Return the fields of a removal from a present topic for JSON."""
    return {"topic": topic, **_facts(removal)}


def _facts(removal: DescribedRemoval) -> dict[str, object]:
    known = removal.end_offset >= 0
    return {
        "partition": removal.partition,
        "cause": removal.cause,
        "rule": removal.rule or None,
        "first_offset": removal.first_offset if known else None,
        "end_offset": removal.end_offset if known else None,
        "messages": removal.messages if removal.messages >= 0 else None,
        "first_timestamp_ms": json_time(removal.first_timestamp_ms),
        "largest_timestamp_ms": json_time(removal.largest_timestamp_ms),
        "began_ms": removal.began_ms,
        "at_ms": removal.at_ms,
        "times": removal.times,
    }


def _as_text(
    topic: str,
    found: DescribeRemovalsResponse,
    removals: Sequence[DescribedRemoval],
    at_ms: int | None,
) -> Iterator[str]:
    for removal in removals:
        yield removal_sentence(topic, found.topic_id, removal)
        if at_ms is not None and removal.first_timestamp_ms > at_ms:
            yield (
                f"  Its first message is later than {shown_time(at_ms)}; messages of that time may "
                "have followed out of order."
            )
    if not removals:
        time = "" if at_ms is None else f" with the time {shown_time(at_ms)}"
        yield f"Nothing{time} is known to have left {topic}."
    for partition in found.partitions:
        yield from _completeness(topic, partition)


def removal_sentence(topic: str, topic_id: str, removal: DescribedRemoval) -> str:
    """Return one sentence about a removal. `topic_id` is the id of the present topic."""
    place = f"{topic}-{removal.partition}"
    if removal.topic_id != topic_id:
        place += f" of the deleted topic {removal.topic_id}"
    return (
        f"{place}: {_messages(removal)} {_WORDS.get(removal.cause, removal.cause)} "
        f"{_rule(removal)}, {_when(removal)}."
    )


def _rule(removal: DescribedRemoval) -> str:
    if removal.rule:
        return removal.rule
    hidden = "a user" if removal.cause in ("trim", "deletion") else "a setting"
    return f"{hidden} ({_HIDDEN})"


def _messages(removal: DescribedRemoval) -> str:
    if removal.end_offset < 0:
        return "all messages (their offsets are not known)"
    is_cut = removal.cause == "truncation"
    if removal.end_offset == removal.first_offset:
        if not is_cut:
            return f"no messages (the log was empty at offset {removal.end_offset})"
        held = "no messages" if removal.messages == 0 else "messages and times not known"
        return f"bytes from offset {removal.first_offset} on ({held})"
    offsets = f"offsets {removal.first_offset} to {removal.end_offset - 1}"
    facts = []
    if removal.messages >= 0:
        facts.append(f"{removal.messages} {plural(removal.messages, 'message')}")
    elif is_cut:
        offsets += " at least"
        facts.append("number of messages not known")
    if removal.first_timestamp_ms >= 0:
        facts.append(f"first time {shown_time(removal.first_timestamp_ms)}")
    if removal.largest_timestamp_ms >= 0:
        facts.append(f"largest time {shown_time(removal.largest_timestamp_ms)}")
    elif is_cut:
        facts.append("times not known")
    return f"{offsets} ({', '.join(facts)})" if facts else offsets


def _when(removal: DescribedRemoval) -> str:
    if removal.times <= 1:
        return f"at {shown_time(removal.at_ms)}"
    began, ended = shown_time(removal.began_ms), shown_time(removal.at_ms)
    return f"{removal.times} times from {began} to {ended}"


def _completeness(topic: str, found: PartitionCompleteness) -> Iterator[str]:
    place = f"{topic}-{found.partition}"
    if found.error_code:
        yield f"{place}: {found.error_message}"
    elif found.complete_from_ms > 0:
        yield (
            f"{place} begins at offset {found.log_start_offset}, and is complete from "
            f"{shown_time(found.complete_from_ms)} on."
        )
    elif found.complete_from_ms < 0:
        yield (
            f"{place} begins at offset {found.log_start_offset}; "
            "it is not known from when on it is complete."
        )
