"""Topic settings: names, bounds, refusals, and which value wins."""

from dataclasses import fields

import pytest

from horolog.config.setting import INT32_MAX, INT64_MAX, Kind, Scope, Setting
from horolog.config.topic import (
    TOPIC_SETTINGS,
    TopicSettings,
    canonical_name,
    check_defaults,
    check_overrides,
    effective,
    topic_settings,
    without_repeats,
)
from horolog.protocol.errors import InvalidConfig

WITHOUT_EFFECT = {
    "preallocate",
    "unclean.leader.election.enable",
    "message.downconversion.enable",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
}

DEFAULTS = {
    "message.timestamp.type": "CreateTime",
    "max.message.time.difference.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.format.version": "producer",
    "compression.type": "producer",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "segment.jitter.ms": "0",
    "segment.index.bytes": "10485760",
    "index.interval.bytes": "4096",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1000012",
    "max.decompressed.bytes": "16777216",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "producer.id.expiration.ms": "86400000",
    "max.producer.ids": "10000",
    "acks.all.durability": "fsync",
    "preallocate": "false",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "message.downconversion.enable": "true",
}


def test_the_defaults_are_those_of_the_specification() -> None:
    """C-4, D14."""
    assert {name: value for name, value, _ in effective({}, {})} == DEFAULTS


def test_every_field_of_the_view_is_a_setting_and_the_other_way_round() -> None:
    attributes = {s.attribute for s in TOPIC_SETTINGS.values() if s.name not in WITHOUT_EFFECT}
    assert {field.name for field in fields(TopicSettings) if field.init} == attributes


def integer_settings() -> list[Setting]:
    return [s for s in TOPIC_SETTINGS.values() if s.kind is Kind.INTEGER]


@pytest.mark.parametrize("setting", integer_settings(), ids=lambda s: s.name)
def test_both_bounds_are_allowed_and_the_next_values_are_not(setting: Setting) -> None:
    for bound in (setting.minimum, setting.maximum):
        assert check_overrides({setting.name: str(bound)}) == {setting.name: str(bound)}
    with pytest.raises(InvalidConfig) as above:
        check_overrides({setting.name: str(setting.maximum + 1)})
    assert setting.name in above.value.message
    assert str(setting.maximum) in above.value.message
    if setting.negative_is_off:
        assert check_overrides({setting.name: "-7"}) == {setting.name: "-1"}
        return
    with pytest.raises(InvalidConfig) as below:
        check_overrides({setting.name: str(setting.minimum - 1)})
    assert f"from {setting.minimum} to" in below.value.message


@pytest.mark.parametrize(
    ("name", "minimum", "maximum"),
    [
        pytest.param("segment.index.bytes", 24, INT32_MAX, id="tc118-I-1A"),
        pytest.param("segment.bytes", 14, INT32_MAX, id="segment-holds-a-message"),
        pytest.param("segment.ms", 1, INT64_MAX, id="R-12-B-14"),
        pytest.param("segment.jitter.ms", 0, INT64_MAX, id="R-12"),
        pytest.param("max.message.time.difference.ms", 0, INT64_MAX, id="P-28"),
        pytest.param("max.message.bytes", 0, INT32_MAX, id="P-21"),
        pytest.param("index.interval.bytes", 0, INT32_MAX, id="I-12"),
        pytest.param("flush.messages", 0, INT64_MAX, id="flush.messages"),
        pytest.param("file.delete.delay.ms", 0, INT64_MAX, id="RT-10"),
    ],
)
def test_the_bounds_are_those_of_the_specification(name: str, minimum: int, maximum: int) -> None:
    setting = TOPIC_SETTINGS[name]
    assert (setting.minimum, setting.maximum) == (minimum, maximum)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        pytest.param("segment.index.bytes", "12", "from 24 to 2147483647", id="tc118-12"),
        pytest.param("segment.index.bytes", "23", "from 24 to 2147483647", id="tc118-23"),
        pytest.param("segment.ms", "0", "from 1 to", id="KAFKA-6637"),
        pytest.param("cleanup.policy", "keep", "any of delete, compact", id="unknown-policy"),
        pytest.param("cleanup.policy", "compact,keep", "any of delete, compact", id="one-unknown"),
        pytest.param("cleanup.policy", "compact,compact", "any of delete", id="policy-twice"),
        pytest.param("cleanup.policy", "", "any of delete, compact", id="no-policy"),
        pytest.param("cleanup.policy", "compact,", "any of delete, compact", id="empty-policy"),
        pytest.param("min.cleanable.dirty.ratio", "1.01", "from 0 to 1", id="above-1"),
        pytest.param("min.cleanable.dirty.ratio", "-0.1", "from 0 to 1", id="below-0"),
        pytest.param("min.cleanable.dirty.ratio", "nan", "from 0 to 1", id="nan"),
        pytest.param("min.cleanable.dirty.ratio", "half", "from 0 to 1", id="no-number"),
        pytest.param("max.compaction.lag.ms", "0", "from 1 to", id="lag-of-0"),
        pytest.param("message.format.version", "0.10", "0.10.2", id="tc161-MG-6"),
        pytest.param("message.format.version", "0.11", "0.11.0", id="MG-6-v2"),
        pytest.param("message.timestamp.type", "createtime", "CreateTime", id="exact-case"),
        pytest.param("message.timestamp.type", "", "LogAppendTime", id="empty"),
        pytest.param("compression.type", "GZIP", "gzip", id="lower-case-for-a-topic"),
        pytest.param("compression.type", "brotli", "lz4", id="unknown-codec"),
        pytest.param("acks.all.durability", "maybe", "fsync or written", id="durability"),
        pytest.param("retention.ms", "1.5", "whole number of ms", id="fraction"),
        pytest.param("retention.ms", "1e3", "whole number of ms", id="exponent"),
        pytest.param("retention.ms", "true", "whole number of ms", id="boolean"),
        pytest.param("retention.ms", " 5", "whole number of ms", id="space"),
        pytest.param("retention.ms", "1_000", "whole number of ms", id="underscore"),
        pytest.param("retention.ms", "\u0661", "whole number of ms", id="other-digits"),
        pytest.param("retention.ms", "", "whole number of ms", id="empty-number"),
        pytest.param("retention.ms", "9" * 5000, "(cut)", id="long-number"),
        pytest.param("preallocate", "true", "never preallocated", id="preallocate"),
        pytest.param("min.insync.replicas", "0", "from 1 to", id="replicas"),
        pytest.param("unclean.leader.election.enable", "true", "decides for all", id="election"),
        pytest.param("message.downconversion.enable", "false", "never refused", id="conversion"),
    ],
)
def test_a_refused_value_is_answered_with_name_value_and_range(
    name: str, value: str, says: str
) -> None:
    """RT-6, C-5, decision 19."""
    with pytest.raises(InvalidConfig) as refused:
        check_overrides({name: value})
    assert name in refused.value.message
    assert value[:50] in refused.value.message
    assert says in refused.value.message
    assert len(refused.value.message) < 500


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("retension.ms", "did you mean retention.ms?", id="misspelt"),
        pytest.param("max.message.byte", "did you mean max.message.bytes?", id="singular"),
        pytest.param("colour", "'colour' is not a setting", id="unknown-C-2"),
        pytest.param("", "is not a setting", id="empty"),
        pytest.param("x" * 10_000, "is not a setting", id="long"),
        pytest.param("num.partitions", "of the broker, not of a topic", id="broker-setting"),
        pytest.param(
            "leader.replication.throttled.replicas", "Kafka's replication", id="of-Kafka-alone"
        ),
    ],
)
def test_an_unknown_name_is_refused(name: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_overrides({name: "1"})
    assert says in refused.value.message
    assert len(refused.value.message) < 300


def test_names_far_from_every_setting_get_no_suggestion() -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_overrides({"colour": "1"})
    assert "did you mean" not in refused.value.message


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        pytest.param(
            {"message.timestamp.difference.max.ms": "5"},
            {"max.message.time.difference.ms": "5"},
            id="D9-topic-name",
        ),
        pytest.param(
            {"log.message.timestamp.difference.max.ms": "5"},
            {"max.message.time.difference.ms": "5"},
            id="D9-broker-name",
        ),
        pytest.param({"log.retention.hours": "2"}, {"retention.ms": "7200000"}, id="C-1-hours"),
        pytest.param(
            {"log.retention.hours": "2", "log.retention.minutes": "3"},
            {"retention.ms": "180000"},
            id="C-1-minutes-before-hours",
        ),
        pytest.param(
            {"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"},
            {"retention.ms": "4"},
            id="C-1-ms-before-all",
        ),
        pytest.param(
            {"log.retention.hours": "2", "log.retention.ms": "-1"},
            {"retention.ms": "-1"},
            id="C-1-explicit-minus-one",
        ),
        pytest.param({"log.retention.hours": "-3"}, {"retention.ms": "-1"}, id="negative-hours"),
        pytest.param({"log.roll.hours": "1"}, {"segment.ms": "3600000"}, id="roll-hours"),
        pytest.param({"message.max.bytes": "77"}, {"max.message.bytes": "77"}, id="reversed-name"),
        pytest.param({"retention.ms": "007"}, {"retention.ms": "7"}, id="canonical-text"),
        pytest.param(
            {"retention.ms": "9", "log.retention.ms": "9"}, {"retention.ms": "9"}, id="agreeing"
        ),
    ],
)
def test_other_names_mean_the_same_setting(
    given: dict[str, str], canonical: dict[str, str]
) -> None:
    """decision 27."""
    assert check_overrides(given) == canonical
    assert check_overrides(dict(reversed(given.items()))) == canonical


def test_two_names_of_one_setting_may_not_contradict() -> None:
    with pytest.raises(InvalidConfig, match="two names of one setting"):
        check_overrides({"retention.ms": "1", "log.retention.ms": "2"})


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        pytest.param(["005", "6"], [None, "6"], id="the-first-repeats-the-topic's"),
        pytest.param(["6", "5"], ["6", None], id="the-second-repeats-the-topic's"),
        pytest.param(["5", "5"], ["5", "5"], id="both-repeat"),
        pytest.param(["6", "7"], ["6", "7"], id="both-change"),
        pytest.param(["5", None], ["5", None], id="alone"),
    ],
)
def test_a_repeated_value_gives_way_to_a_change_under_another_name(
    asked: list[str | None], kept: list[str | None]
) -> None:
    names = ["max.message.time.difference.ms", "message.timestamp.difference.max.ms"]

    def named(values: list[str | None]) -> dict[str, str]:
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    others = {"retention.ms": "1"}
    standing = {names[0]: "5", "retention.ms": "1"}
    assert without_repeats(named(asked) | others, {}, standing) == named(kept) | others
    assert without_repeats(named(asked), {names[0]: "5"}, {}) == named(kept)


@pytest.mark.parametrize("hours", ["0", "2562047788016"])
def test_the_range_of_a_scaled_name_is_in_its_own_unit(hours: str) -> None:
    with pytest.raises(InvalidConfig, match="whole number of hours from 1 to 2562047788015"):
        check_overrides({"log.roll.hours": hours})


def test_override_wins_over_broker_wins_over_default() -> None:
    defaults = {"log.retention.hours": "1", "segment.bytes": "100"}
    settings = topic_settings(defaults, {"retention.ms": "5"})
    assert (settings.retention_ms, settings.segment_bytes, settings.index_interval_bytes) == (
        5,
        100,
        4096,
    )
    sources = {
        name: (value, source) for name, value, source in effective(defaults, {"retention.ms": "5"})
    }
    assert sources["retention.ms"] == ("5", "topic")
    assert sources["segment.bytes"] == ("100", "broker")
    assert sources["index.interval.bytes"] == ("4096", "default")


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        pytest.param({}, None, id="unset"),
        pytest.param({"max.message.time.difference.ms": str(INT64_MAX)}, None, id="P-2B-Long.MAX"),
        pytest.param({"max.message.time.difference.ms": "0"}, 0, id="tc25-zero-is-a-limit"),
        pytest.param(
            {"max.message.time.difference.ms": str(INT64_MAX - 1)}, INT64_MAX - 1, id="edge"
        ),
    ],
)
def test_no_time_limit_is_seen_as_none(given: dict[str, str], seen: int | None) -> None:
    settings = topic_settings({}, given)
    assert settings.max_message_time_difference_ms == seen
    assert settings.message_timestamp_before_max_ms is None
    assert settings.message_timestamp_after_max_ms is None


@pytest.mark.parametrize("name", ["retention.ms", "flush.messages"])
def test_zero_is_allowed_for_a_topic_and_refused_for_the_broker(name: str) -> None:
    assert check_overrides({name: "0"}) == {name: "0"}
    with pytest.raises(InvalidConfig, match="from 1 to"):
        check_defaults({name: "0"})


def test_codec_names_are_taken_in_any_case_from_the_broker() -> None:
    assert check_defaults({"compression.type": "Snappy"}) == {"compression.type": "snappy"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("retention.ms", True, id="true-is-not-1"),
        pytest.param("retention.ms", 1.0, id="1.0-is-not-1"),
        pytest.param("retention.ms", "1", id="text-is-not-1"),
        pytest.param("retention.ms", None, id="none"),
        pytest.param("retention.ms", [1], id="list"),
        pytest.param("preallocate", "false", id="text-is-not-false"),
        pytest.param("preallocate", 0, id="0-is-not-false"),
        pytest.param("compression.type", 1, id="number-is-no-choice"),
        pytest.param("compression.type", ["gzip"], id="list-is-no-choice"),
    ],
)
def test_a_typed_value_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=name):
        TOPIC_SETTINGS[name].check(value, at=Scope.TOPIC)


def test_every_name_leads_to_its_setting() -> None:
    for setting in TOPIC_SETTINGS.values():
        assert {canonical_name(name) for name in setting.names()} == {setting.name}
    with pytest.raises(InvalidConfig, match="not a setting"):
        canonical_name("colour")


def test_names_are_declared_once() -> None:
    names = [name for setting in TOPIC_SETTINGS.values() for name in setting.names()]
    assert len(names) == len(set(names))


def test_append_time_follows_the_timestamp_type() -> None:
    assert not topic_settings({}, {}).stamps_append_time
    assert topic_settings({}, {"message.timestamp.type": "LogAppendTime"}).stamps_append_time


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", "delete,compact"])
@pytest.mark.parametrize("name", ["cleanup.policy", "log.cleanup.policy"])
def test_the_three_cleanup_policies(policy: str, name: str) -> None:
    """Decision 43."""
    for view in (topic_settings({}, {name: policy}), topic_settings({name: policy}, {})):
        assert view.cleanup_policy == policy
        assert view.compacts == ("compact" in policy)
        assert view.deletes == ("delete" in policy)


def test_where_nothing_is_deleted_both_limits_are_off() -> None:
    limits = {"retention.ms": "5", "retention.bytes": "6"}
    off = topic_settings(limits, {"cleanup.policy": "compact"})
    assert (off.retention_ms, off.retention_bytes) == (-1, -1)
    on = topic_settings(limits, {"cleanup.policy": "compact,delete"})
    assert (on.retention_ms, on.retention_bytes) == (5, 6)


@pytest.mark.parametrize(
    ("given", "value"), [("0", "0.0"), ("1", "1.0"), ("0.25", "0.25"), (".5", "0.5"), ("1.", "1.0")]
)
def test_the_ratio_of_a_dirty_log(given: str, value: str) -> None:
    assert check_overrides({"log.cleaner.min.cleanable.ratio": given}) == {
        "min.cleanable.dirty.ratio": value
    }


def test_a_message_cannot_have_to_wait_longer_for_a_cleaner_than_it_may() -> None:
    lags = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    for check in (check_overrides, check_defaults):
        with pytest.raises(InvalidConfig, match=r"at most max\.compaction\.lag\.ms, which is 5"):
            check(lags)
        assert check({**lags, "min.compaction.lag.ms": "5"})
