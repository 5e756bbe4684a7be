"""What a program gives, checked before anything is sent and refused with the argument's name.
Points in time are an aware datetime, or epoch milliseconds."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from ..times import EPOCH, EPOCH_MS_MAXIMUM, EPOCH_MS_MINIMUM, INT64_MAX, TimeError

_MILLISECOND: Final = timedelta(milliseconds=1)
_NOTHING: Final = timedelta(0)

PARTITION_MAX: Final = 2**31 - 1


def check_place(topic: str, partition: int | None) -> None:
    """Check a topic name and, unless None, a partition number. Raises TypeError, ValueError."""
    check_topic(topic)
    if partition is not None:
        check_partition(partition)


def check_topic(topic: str, name: str = "topic") -> None:
    """Raise TypeError unless the argument `name` is a str."""
    if not isinstance(topic, str):
        raise TypeError(f"{name} is a str, not {type(topic).__name__}")


def check_partition(partition: int) -> None:
    """Raise TypeError, ValueError unless the argument is an int from 0 to `PARTITION_MAX`."""
    check_int(partition, "partition")
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition is from 0 to {PARTITION_MAX}, not {partition}")


def check_int(number: int, name: str) -> None:
    """Raise TypeError unless the argument `name` is an int; a bool is refused."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")


SettingValue = str | int | timedelta | datetime
"""Value of a setting as a program gives it."""


def setting_texts(settings: Mapping[str, SettingValue | None]) -> dict[str, str | None]:
    """Return settings as a request carries them: a timedelta in milliseconds, a datetime in epoch
    milliseconds, a bool as true or false.

    Raises TypeError unless the settings map names to values, or to None; and for a timedelta or a
    datetime of a setting whose name does not end in `.ms`. Raises ValueError for a timedelta with a
    part of a millisecond, `TimeError` for a datetime without a zone or before 1970.
    """
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings is a mapping, not {type(settings).__name__}")
    found: dict[str, str | None] = {}
    for name, value in settings.items():
        if not isinstance(name, str):
            raise TypeError(f"settings: the name of a setting is a str, not {type(name).__name__}")
        found[name] = None if value is None else _setting_text(name, value)
    return found


def _setting_text(name: str, value: SettingValue) -> str:
    if isinstance(value, timedelta | datetime) and not name.endswith(".ms"):
        raise TypeError(
            f"settings: {name} is not in milliseconds, so its value is a str or an int, not "
            f"{type(value).__name__}"
        )
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case timedelta():
            milliseconds, rest = divmod(value, _MILLISECOND)
            if rest:
                raise ValueError(f"settings: {name} is in whole milliseconds, not {value}")
            return str(milliseconds)
        case datetime():
            return str(_of_datetime(value, up=False))
    raise TypeError(
        f"settings: the value of {name} is a str, int, timedelta or datetime, not "
        f"{type(value).__name__}"
    )


def epoch_ms(
    when: datetime | None, timestamp_ms: int | None, *, check_units: bool, is_bound: bool = False
) -> int | None:
    """Return whichever time is given in milliseconds since the epoch; None when neither is given.

    A datetime with microseconds is rounded down to its millisecond. With `is_bound`, for a time
    that messages are compared with, it is rounded up, to the first millisecond that is not before
    it.

    Raises TypeError when both are given or one has the wrong type. Raises `TimeError` for a time
    without a zone, for a time before 1970 and, unless `check_units` is False, for a number that
    looks like seconds, microseconds or nanoseconds.
    """
    if when is not None and timestamp_ms is not None:
        raise TypeError("give a datetime or milliseconds, not both")
    if when is not None:
        return _of_datetime(when, up=is_bound)
    if timestamp_ms is not None:
        return _of_number(timestamp_ms, check_units)
    return None


def moment_ms(moment: datetime | int | None, name: str, *, check_units: bool) -> int | None:
    """Return a bound, the argument `name`, in milliseconds since the epoch; a datetime is rounded
    up.

    Raises TypeError, `TimeError` as `epoch_ms` does.
    """
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return _of_datetime(moment, up=True)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise TypeError(
            f"{name} is a datetime or epoch milliseconds as an int, not {type(moment).__name__}"
        )
    return _of_number(moment, check_units, name)


def _of_datetime(when: datetime, *, up: bool) -> int:
    if not isinstance(when, datetime):
        raise TypeError(
            f"a time is a datetime, not {type(when).__name__}; numbers go into timestamp_ms"
        )
    if when.utcoffset() is None:
        raise TimeError(
            f"{when!r} has no time zone, so it could be any of a day's worth of times: add one, "
            "for example tzinfo=datetime.UTC"
        )
    since = when - EPOCH
    milliseconds = since // _MILLISECOND
    if milliseconds < 0:
        raise TimeError(f"{when!r} is before 1970-01-01T00:00:00Z, the earliest time there is")
    return milliseconds + (up and since % _MILLISECOND > _NOTHING)


def _of_number(timestamp_ms: int, check_units: bool, name: str = "timestamp_ms") -> int:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise TypeError(f"{name} is an int, not {type(timestamp_ms).__name__}")
    if not 0 <= timestamp_ms <= INT64_MAX:
        raise TimeError(f"{name} is from 0 to {INT64_MAX}, not {timestamp_ms}")
    if not check_units or timestamp_ms == 0:
        return timestamp_ms
    if EPOCH_MS_MINIMUM <= timestamp_ms <= EPOCH_MS_MAXIMUM:
        return timestamp_ms
    if timestamp_ms < EPOCH_MS_MINIMUM:
        guess = f"seconds; in milliseconds it is {timestamp_ms * 1000}"
    elif timestamp_ms < EPOCH_MS_MAXIMUM * 1000:
        guess = f"microseconds; in milliseconds it is {timestamp_ms // 1000}"
    else:
        guess = f"nanoseconds; in milliseconds it is {timestamp_ms // 1_000_000}"
    raise TimeError(
        f"{name}={timestamp_ms} looks like {guess}. Allowed are 0 and {EPOCH_MS_MINIMUM} "
        f"to {EPOCH_MS_MAXIMUM}; check_units=False takes any number"
    )
