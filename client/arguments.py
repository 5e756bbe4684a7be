"""Checks of what a program gives: before anything is sent, and with the argument's name."""

from collections.abc import Mapping
from typing import Final

PARTITION_MAX: Final = 2**31 - 1


def check_place(topic: str, partition: int | None) -> None:
    """Raises TypeError, ValueError."""
    check_topic(topic)
    if partition is not None:
        check_partition(partition)


def check_topic(topic: str, name: str = "topic") -> None:
    """Raises TypeError."""
    if not isinstance(topic, str):
        raise TypeError(f"{name} is a str, not {type(topic).__name__}")


def check_partition(partition: int) -> None:
    """Raises TypeError, ValueError."""
    check_int(partition, "partition")
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition is from 0 to {PARTITION_MAX}, not {partition}")


def check_int(number: int, name: str) -> None:
    """Raises TypeError."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")


def check_settings(settings: Mapping[str, str | None] | Mapping[str, str]) -> None:
    """Raises TypeError."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings is a mapping, not {type(settings).__name__}")
    for name, value in settings.items():
        if not isinstance(name, str):
            raise TypeError(f"settings: the name of a setting is a str, not {type(name).__name__}")
        if not (value is None or isinstance(value, str)):
            raise TypeError(f"settings: the value of {name} is a str, not {type(value).__name__}")
