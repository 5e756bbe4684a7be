"""The immutable view of a topic's settings that a log uses, and checks of overrides."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from typing import Any, Final

from ..protocol.errors import InvalidConfig
from ..values import frozen_class
from .broker_table import BROKER_SETTINGS
from .setting import Names, OptionValue, Scope, UnitError, Value
from .topic_table import TOPIC_NAMES_NOT_OFFERED, TOPIC_SETTINGS, magic_of

__all__ = [
    "TOPIC_SETTINGS",
    "TopicSettings",
    "canonical_name",
    "check_defaults",
    "check_overrides",
    "effective",
    "in_numbers",
    "places",
    "shown_value",
    "topic_settings",
    "without_repeats",
]


_FORMATS: Final = 0b111
"""A bit for each message format. v0, the first one, has no place for an append time."""


@frozen_class
class TopicSettings:
    """The settings in force for one topic: its own override, else the broker's value, else the
    default.

    The fields have the settings' names with underscores; `TOPIC_SETTINGS` describes each. Time
    differences are `None` if there is no limit. -1 turns a retention limit off; both are off if
    `cleanup_policy` does not delete.
    """

    _: KW_ONLY

    message_timestamp_type: str
    max_message_time_difference_ms: int | None
    message_timestamp_before_max_ms: int | None
    message_timestamp_after_max_ms: int | None
    message_format_version: str
    compression_type: str
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    cleanup_policy: str
    max_message_bytes: int
    max_decompressed_bytes: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    producer_id_expiration_ms: int
    max_producer_ids: int
    acks_all_durability: str
    min_insync_replicas: int

    format_magic: int | None = field(init=False)
    """The stored message format: 0, 1 or 2; `None` if messages are stored as sent."""
    stamps_append_time: bool = field(init=False)
    """Whether the broker gives each message the time of its append.

    True for LogAppendTime topics, unless they store format v0, which has no timestamp.
    """
    kept_formats: int = field(init=False)
    """Formats in which an uncompressed set is stored as sent, apart from offsets and append times:
    a bit, `1 << magic`, for each."""
    limits_times: bool = field(init=False)
    """Whether any message timestamp is too early or too late."""
    compacts: bool = field(init=False)
    """Whether the topic is compacted, so that each message needs a key."""
    deletes: bool = field(init=False)
    """Whether old segments are deleted, by `retention_ms` and `retention_bytes`."""

    def __post_init__(self) -> None:
        magic = magic_of(self.message_format_version)
        stamps = self.message_timestamp_type == "LogAppendTime" and magic != 0
        formats = _FORMATS - stamps if magic is None else 1 << magic
        limits = (
            self.max_message_time_difference_ms,
            self.message_timestamp_before_max_ms,
            self.message_timestamp_after_max_ms,
        )
        policies = self.cleanup_policy.split(",")
        deletes = "delete" in policies
        kept = formats if self.compression_type in ("producer", "uncompressed") else 0
        for name, value in (
            ("format_magic", magic),
            ("stamps_append_time", stamps),
            ("kept_formats", kept),
            ("limits_times", not stamps and any(limit is not None for limit in limits)),
            ("compacts", "compact" in policies),
            ("deletes", deletes),
            ("retention_ms", self.retention_ms if deletes else -1),
            ("retention_bytes", self.retention_bytes if deletes else -1),
        ):
            object.__setattr__(self, name, value)


_MIN_LAG: Final = "min.compaction.lag.ms"
_MAX_LAG: Final = "max.compaction.lag.ms"

_OF_THE_BROKER: Final = "is a setting of the broker, not of a topic"

_NAMES: Final = Names(
    TOPIC_SETTINGS.values(),
    {
        **{
            name: _OF_THE_BROKER for setting in BROKER_SETTINGS.values() for name in setting.names()
        },
        **TOPIC_NAMES_NOT_OFFERED,
    },
)


def topic_settings(defaults: Mapping[str, str], overrides: Mapping[str, str]) -> TopicSettings:
    """Return the settings of one topic. `defaults` are the broker's values, `overrides` the topic's
    own; both by any name, values as text. Raises `InvalidConfig`."""
    values = _resolve(defaults, Scope.BROKER) | _resolve(overrides, Scope.TOPIC)
    seen: dict[str, Any] = {}
    for setting in TOPIC_SETTINGS.values():
        if setting.attribute in TopicSettings.__dataclass_fields__:
            value = values.get(setting.name, setting.default)
            limited = setting.no_limit is None or value != setting.no_limit
            seen[setting.attribute] = value if limited else None
    return TopicSettings(**seen)


def canonical_name(name: str) -> str:
    """Return the canonical name of a topic setting. Raises `InvalidConfig`."""
    return _NAMES.find(name).name


def check_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides of a topic by canonical name, values in canonical text.

    Raises `InvalidConfig` for an unknown name, a value out of bounds, two names that contradict
    each other, and a `min.compaction.lag.ms` above `max.compaction.lag.ms`.
    """
    return _as_text(_check_lags(_resolve(overrides, Scope.TOPIC)))


def in_numbers(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a topic as every server reads them: amounts with a unit (`7d`) as plain
    numbers of the setting's unit. Other values, and names that are not known here, are returned
    unchanged: the server checks them. Raises `InvalidConfig` for an amount that is not a whole
    number of the setting's unit."""
    return {name: _in_numbers(name, text) for name, text in given.items()}


def _in_numbers(name: str, text: str) -> str:
    try:
        setting = _NAMES.find(name)
    except InvalidConfig:
        return text
    try:
        number = setting.amount(text, name)
    except UnitError:
        setting.parse(text, name=name)  # raises the refusal, with the allowed values
        raise
    return text if number is None else str(number)


def shown_value(name: str, text: str) -> str:
    """Return the value of a topic setting as a person reads it: `7d`, `1GiB`."""
    setting = TOPIC_SETTINGS.get(name)
    return text if setting is None else setting.shown(text)


def without_repeats(
    asked: Mapping[str, str], defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return `asked` without names that only repeat the present value while another name of the
    same setting asks for a change.

    A client that can only replace all settings of a topic sends those it has read together with
    those it changes. It does not know which names mean the same setting. Raises `InvalidConfig`.
    """
    standing = {name: value for name, value, _ in effective(defaults, overrides)}
    wanted = {
        name: next(iter(check_overrides({name: text}).items())) for name, text in asked.items()
    }
    changed = {name for name, value in wanted.values() if value != standing[name]}
    return {
        given: text
        for given, text in asked.items()
        if (setting := wanted[given])[0] not in changed or setting[1] != standing[setting[0]]
    }


def check_defaults(defaults: Mapping[str, str]) -> dict[str, str]:
    """Like `check_overrides`, for values of the whole broker."""
    return _as_text(_check_lags(_resolve(defaults, Scope.BROKER)))


def _check_lags(values: dict[str, Value]) -> dict[str, Value]:
    """Return `values`. Raises `InvalidConfig` if the minimum compaction lag is above the maximum. A
    topic's value and the broker's are not compared, because the broker's may change."""
    least, most = values.get(_MIN_LAG), values.get(_MAX_LAG)
    if least is not None and most is not None and int(least) > int(most):
        raise InvalidConfig(
            f"{_MIN_LAG} = {least} is refused: it must be at most {_MAX_LAG}, which is {most}"
        )
    return values


def effective(
    defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return (name, value, source: "topic", "broker" or "default") of every setting."""
    return [(name, *found[0]) for name, found in places(defaults, overrides).items()]


def places(
    defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, list[tuple[str, str]]]:
    """Return (value, source) of every setting for each source that has a value, the one in force
    first."""
    levels = (("topic", check_overrides(overrides)), ("broker", check_defaults(defaults)))
    found: dict[str, list[tuple[str, str]]] = {}
    for name, setting in TOPIC_SETTINGS.items():
        found[name] = [(values[name], place) for place, values in levels if name in values]
        found[name].append((setting.format(setting.default), "default"))
    return found


def _resolve(given: Mapping[str, str], at: Scope) -> dict[str, Value]:
    return _NAMES.resolve([OptionValue(name, text) for name, text in given.items()], at)


def _as_text(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: TOPIC_SETTINGS[name].format(value) for name, value in values.items()}
