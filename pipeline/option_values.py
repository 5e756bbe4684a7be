"""Texts of options into values. Every refusal names the option, the text, and what is allowed."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from ..client.client import ReadFrom
from ..client.cluster.servers import Servers
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import HorologError
from ..times import OtherUnit, TimeError, parse_time
from .logs import KEY, TopicLogs, logs_from_json

ByPartition = Mapping[str, Mapping[int, int]]
"""A number for partitions, by topic."""

_UNIT_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_BY_PARTITION: Final = 'it is JSON such as {"clicks": {"0": 17, "1": 4}}'
_DURATION: Final = re.compile(r"(\d{1,12})\s*([a-z]+)", re.ASCII)
_LARGEST: Final = 2**62
_REPLACED: Final = {
    "sasl.jaas.": "sasl.username with sasl.password.file, or sasl.oauthbearer.token.file, "
    "replaces it",
    "ssl.truststore.": "ssl.ca.location, a PEM file, replaces it",
    "ssl.keystore.": "ssl.certificate.location and ssl.key.location, PEM files, replace it",
}
"""Options of Kafka's Java client, by how they begin, and what there is instead."""


class OptionError(HorologError, ValueError):
    """An option that is missing, unknown, or has a value it cannot have."""


def check_names(given: Iterable[str], known: Iterable[str], purpose: str) -> None:
    """Raise OptionError for the first name that is not known, with the one that may be meant.

    `given` are in lower case, `known` as people write them.
    """
    spelled = {name.lower(): name for name in known}
    for name in given:
        if name in spelled:
            continue
        close = get_close_matches(name, spelled, n=1)
        replaced = replaced_by(name)
        if replaced is not None:
            hint = replaced
        elif close:
            hint = f"did you mean {spelled[close[0]]!r}?"
        elif name.startswith("kafka."):
            hint = (
                "options of Kafka's client have no meaning here; there are retryBudgetMs and "
                "requestTimeoutMs"
            )
        else:
            hint = f"there are {', '.join(sorted(spelled.values()))}"
        raise OptionError(f"unknown option {name!r} for {purpose}: {hint}")


def replaced_by(name: str) -> str | None:
    """Which options replace one of Kafka's Java client, if `name` is such a one, in lower case."""
    bare = name.removeprefix("kafka.")
    return next((hint for start, hint in _REPLACED.items() if bare.startswith(start)), None)


def whole(name: str, text: str, *, least: int = 0, most: int = _LARGEST) -> int:
    """An integer from `least` to `most`."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise OptionError(f"{name}={text!r}: it is an integer from {least} to {most}")
    return number


def yes_or_no(name: str, text: str) -> bool:
    """`true` or `false`."""
    return one_of(name, text, ("true", "false")) == "true"


def one_of(name: str, text: str, choices: tuple[str, ...]) -> str:
    """One of the words, whatever its case."""
    for choice in choices:
        if text.strip().lower() == choice.lower():
            return choice
    raise OptionError(f"{name}={text!r}: it is {' or '.join(choices)}")


def duration_ms(name: str, text: str, *, least: int = 0) -> int:
    """A length of time in ms: `10 minutes`, `90s`, `1 hour`, or a number of milliseconds."""
    wanted = "it is a length of time such as '10 minutes', '90s' or '1h'"
    words = text.strip().lower()
    if words.isascii() and words.isdigit():
        found = int(words)
    else:
        match = _DURATION.fullmatch(words)
        unit = match[2] if match else ""
        unit_ms = _UNIT_MS.get(unit) or _UNIT_MS.get(unit.removesuffix("s"))
        if match is None or unit_ms is None:
            raise OptionError(f"{name}={text!r}: {wanted}")
        found = int(match[1]) * unit_ms
    if not least <= found <= _LARGEST:
        raise OptionError(f"{name}={text!r}: {wanted}, from {least} ms on")
    return found


def time_ms(name: str, text: str, now_ms: int, *, any_unit: bool) -> int:
    """A time as people write it: RFC 3339 with a zone, `@-1h`, or epoch milliseconds.

    `any_unit` takes a number as it is, even where it looks like seconds or microseconds.
    """
    try:
        return parse_time(text.strip(), now_ms, any_unit)
    except OtherUnit as error:
        raise OptionError(f"{name}: {error}; anyUnit=true takes any number") from None
    except TimeError as error:
        raise OptionError(f"{name}: {error}") from None


def times_by_partition(name: str, text: str, *, any_unit: bool) -> ByPartition:
    """JSON `{"topic": {"0": 1479144272509}}`, epoch milliseconds; `any_unit` as in `time_ms`."""
    found = _numbers(name, _json_object(name, text), 0)
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            time_ms(f"{name}: {topic}-{partition}", str(number), 0, any_unit=any_unit)
    return found


def offsets(name: str, text: str) -> tuple[ByPartition, TopicLogs]:
    """JSON `{"topic": {"0": 17, "1": 4}}`, -2 the beginning and -1 the end, and the logs that the
    offsets are of where the offsets of a stream name them."""
    found = _json_object(name, text)
    try:
        logs = logs_from_json(found)
    except ValueError as error:
        raise OptionError(f"{name}: {error}, which no stream has written; leave it out") from None
    found.pop(KEY, None)
    return _numbers(name, found, -2), logs


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}={text!r}: {_BY_PARTITION} ({error})") from None
    if not isinstance(found, dict):
        raise OptionError(f"{name}={text!r}: {_BY_PARTITION}")
    return found


def _numbers(name: str, found: Mapping[str, Any], least: int) -> ByPartition:
    result: dict[str, dict[int, int]] = {}
    for topic, numbers in found.items():
        if not isinstance(numbers, dict) or not numbers:
            raise OptionError(f"{name}: for topic {topic!r}, {_BY_PARTITION}")
        for partition, number in numbers.items():
            if type(number) is not int or number < least:
                raise OptionError(
                    f"{name}: {topic}-{partition} has {number!r}; it is an integer from {least} on"
                )
            where = whole(f"{name}: a partition of {topic}", partition, most=2**31 - 1)
            result.setdefault(topic, {})[where] = number
    return result


def assignment(name: str, text: str) -> Mapping[str, tuple[int, ...]]:
    """JSON `{"topic": [0, 2]}`: partitions by topic."""
    wanted = 'it is JSON such as {"clicks": [0, 2]}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}={text!r}: {wanted} ({error})") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{name}={text!r}: {wanted}")
    for numbers in found.values():
        right = isinstance(numbers, list) and numbers
        if not right or not all(type(number) is int and number >= 0 for number in numbers):
            raise OptionError(f"{name}={text!r}: {wanted}")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}


SENTINELS: Final = {"earliest": EARLIEST, "latest": LATEST}


def read_from(name: str, text: str | None, servers: Servers) -> ReadFrom:
    """Where messages are read: at the leader, or with `any` at any broker that has them."""
    if text is None or one_of(name, text, ("leader", "any")) == "leader":
        return "leader"
    if servers.kafka:
        raise OptionError(
            f"{name}=any is for Horolog's own protocol; at {servers} messages are read from the "
            "brokers that lead"
        )
    return "any"
