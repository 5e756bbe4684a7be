"""Extraction of results from responses. Errors in a response are raised as exceptions."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ..protocol.api.framing import ProtocolError
from ..protocol.errors import NO_ERROR, InvalidTopic, error_from_code
from ..protocol.window_topics import not_a_topic, parse_window_name


class _ResponseResult(Protocol):
    error_code: int
    error_message: str | None


class _Named(_ResponseResult, Protocol):
    name: str


class _PartitionResult(_ResponseResult, Protocol):
    partition: int


N = TypeVar("N", bound=_Named)
P = TypeVar("P", bound=_PartitionResult)
P_co = TypeVar("P_co", bound=_PartitionResult, covariant=True)


class _Partitions(Protocol[P_co]):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Iterable[P_co]: ...


def check(result: _ResponseResult) -> None:
    """Raise the error that a result reports, if any."""
    if result.error_code != NO_ERROR:
        raise error_from_code(result.error_code, result.error_message)


def check_code(error_code: int) -> None:
    """Raise the error with this code, unless the code is `NO_ERROR`; for results without a
    message."""
    if error_code != NO_ERROR:
        raise error_from_code(error_code)


def check_of(result: _ResponseResult, topic: str, partition: int | None = None) -> None:
    """Raise the error that a result for a topic, or a partition of it, reports, if any.

    Many of Kafka's answers have no place for a message. Such an error gets the place as a prefix;
    that of a window, the message of the native protocol.
    """
    if result.error_code != NO_ERROR and result.error_message is None:
        window = parse_window_name(topic) if result.error_code == InvalidTopic.code else None
        if window is not None:
            raise InvalidTopic(not_a_topic(topic, window))
        place = topic if partition is None else f"{topic}-{partition}"
        raise error_from_code(
            result.error_code, f"{place}: {error_from_code(result.error_code).message.rstrip('.')}"
        )
    check(result)


def topic_result(topics: Iterable[N], topic: str) -> N:
    """Return the result for one topic. Raises the error that the result reports, and ProtocolError
    if the response has no result for the topic."""
    for result in topics:
        if result.name == topic:
            check_of(result, topic)
            return result
    raise ProtocolError(f"a response without {topic}, which was asked for")


def partition_result(topics: Iterable[_Partitions[P]], topic: str, partition: int) -> P:
    """Return the result for one partition. Raises the error that the result reports, and
    ProtocolError if the response has no result for the partition."""
    for found in topics:
        if found.name == topic:
            for result in found.partitions:
                if result.partition == partition:
                    check_of(result, topic, partition)
                    return result
    raise ProtocolError(f"a response without {topic}-{partition}, which was asked for")
