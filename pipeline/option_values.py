"""Parses the texts of options. Every error names the option, the text, and what is allowed."""

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
"""A number (offset or time) for each partition of each topic."""

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
"""Options of Kafka's Java client, by prefix, and the options of Horolog that replace them."""


class OptionError(HorologError, ValueError):
    """An option is missing, unknown, or has a value that is not allowed."""


def check_names(given: Iterable[str], known: Iterable[str], purpose: str) -> None:
    """Raise OptionError for the first name of `given` that is not in `known`, with a suggestion.

    `given` are in lower case, `known` in their documented spelling.
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
    """Return the hint on what replaces an option of Kafka's Java client; None for other names.
    `name` is in lower case."""
    bare = name.removeprefix("kafka.")
    return next((hint for start, hint in _REPLACED.items() if bare.startswith(start)), None)


def whole(name: str, text: str, *, least: int = 0, most: int = _LARGEST) -> int:
    """Parse an integer from `least` to `most`. Raises OptionError."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise OptionError(f"{name}={text!r}: it is an integer from {least} to {most}")
    return number


def yes_or_no(name: str, text: str) -> bool:
    """Parse `true` or `false`. Raises OptionError."""
    return one_of(name, text, ("true", "false")) == "true"


def one_of(name: str, text: str, choices: tuple[str, ...]) -> str:
    """Return the choice that `text` names, in upper or lower case. Raises OptionError."""
    for choice in choices:
        if text.strip().lower() == choice.lower():
            return choice
    raise OptionError(f"{name}={text!r}: it is {' or '.join(choices)}")


def duration_ms(name: str, text: str, *, least: int = 0) -> int:
    """Parse a duration into milliseconds: `10 minutes`, `90s`, `1 hour`, or a number of
    milliseconds. Raises OptionError."""
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
    """Parse a time into epoch milliseconds: RFC 3339 with a zone, `@-1h`, or epoch milliseconds.

    `any_unit` accepts a number unchanged, even if it looks like seconds or microseconds. Raises
    OptionError.
    """
    try:
        return parse_time(text.strip(), now_ms, any_unit)
    except OtherUnit as error:
        raise OptionError(f"{name}: {error}; anyUnit=true takes any number") from None
    except TimeError as error:
        raise OptionError(f"{name}: {error}") from None


def times_by_partition(name: str, text: str, *, any_unit: bool) -> ByPartition:
    """Parse the JSON `{"topic": {"0": 1479144272509}}` with times in epoch milliseconds;
    `any_unit` as in `time_ms`. Raises OptionError."""
    found = _numbers(name, _json_object(name, text), 0)
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            time_ms(f"{name}: {topic}-{partition}", str(number), 0, any_unit=any_unit)
    return found


def offsets(name: str, text: str) -> tuple[ByPartition, TopicLogs]:
    """Parse the JSON `{"topic": {"0": 17, "1": 4}}`; -2 is the log start, -1 the log end. Also
    return the ids of the logs, which the stored offsets of a stream contain. Raises OptionError."""
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
    """Parse the JSON `{"topic": [0, 2]}`, partitions by topic. Raises OptionError."""
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
    """Parse where messages are read: at the leader (the default), or with `any` at any broker that
    has them. Raises OptionError for `any` with Kafka's protocol."""
    if text is None or one_of(name, text, ("leader", "any")) == "leader":
        return "leader"
    if servers.kafka:
        raise OptionError(
            f"{name}=any is for Horolog's own protocol; at {servers} messages are read from the "
            "brokers that lead"
        )
    return "any"
