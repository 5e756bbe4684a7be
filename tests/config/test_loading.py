"""Broker settings: defaults, and the three places they come from."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from horolog.config.address import (
    is_loopback,
    join_address,
    listen_addresses,
    split_address,
    without_login,
)
from horolog.config.broker import (
    BROKER_SETTINGS,
    NAMES,
    BrokerSettings,
    broker_settings,
    environment_name,
    ignored_variables,
    load,
)
from horolog.config.setting import Kind, Setting
from horolog.protocol.errors import InvalidConfig


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "horolog.toml"


def test_the_defaults_are_those_of_the_interface() -> None:
    settings = load(None, {}, [])
    assert settings == broker_settings()
    assert (settings.listen, settings.http_listen, settings.kafka_listen) == (
        "127.0.0.1:7070",
        "127.0.0.1:7071",
        "127.0.0.1:9092",
    )
    assert settings.auto_create_topics_enable
    assert settings.num_partitions == 1
    assert settings.log_retention_check_interval_ms == 300_000
    assert settings.log_initial_task_delay_ms == 30_000
    assert settings.checkpoint_interval_ms == 60_000
    assert settings.recovery_point_checkpoint_interval_ms == 1000
    assert settings.max_frame_bytes == 104_857_600
    assert settings.topic_defaults == {}


def test_every_field_of_the_view_is_a_setting_and_the_other_way_round() -> None:
    attributes = {setting.attribute for setting in BROKER_SETTINGS.values()}
    others = {"topic_defaults", "kafka_listen_given"}
    assert {field.name for field in fields(BrokerSettings)} == attributes | others


def integer_settings() -> list[Setting]:
    return [s for s in BROKER_SETTINGS.values() if s.kind is Kind.INTEGER]


@pytest.mark.parametrize("setting", integer_settings(), ids=lambda s: s.name)
def test_both_bounds_are_allowed_and_the_next_values_are_not(setting: Setting) -> None:
    for bound in (setting.minimum, setting.maximum):
        assert getattr(broker_settings({setting.name: str(bound)}), setting.attribute) == bound
    for beyond in (setting.minimum - 1, setting.maximum + 1):
        with pytest.raises(InvalidConfig) as refused:
            broker_settings({setting.name: str(beyond)})
        assert f"{setting.name} = {beyond} is refused" in refused.value.message
        assert f"from {setting.minimum} to {setting.maximum}" in refused.value.message


def test_later_sources_win(toml: Path) -> None:
    toml.write_text('"num.partitions" = 2\n"max.topics" = 2\nlisten = "127.0.0.1:1"\n')
    environ = {"HOROLOG_NUM_PARTITIONS": "3", "HOROLOG_MAX_TOPICS": "3", "PATH": "/bin"}
    settings = load(toml, environ, ["num.partitions=4"])
    assert (settings.num_partitions, settings.max_topics, settings.listen) == (4, 3, "127.0.0.1:1")


def test_a_later_source_wins_by_any_name(toml: Path) -> None:
    toml.write_text('"retention.ms" = 1000\n')
    settings = load(toml, {}, ["log.retention.hours=1"])
    assert settings.topic_defaults == {"retention.ms": "3600000"}


def test_nested_tables_and_quoted_names_are_the_same(toml: Path) -> None:
    toml.write_text(
        '"segment.bytes" = 5000\n[retention]\nms = 7\nbytes = -1\n[log.roll]\nhours = 1\n'
    )
    assert load(toml, {}, []).topic_defaults == {
        "segment.bytes": "5000",
        "segment.ms": "3600000",
        "retention.ms": "7",
        "retention.bytes": "-1",
    }


def test_a_setting_may_not_be_given_twice_in_the_file(toml: Path) -> None:
    toml.write_text('"retention.ms" = 5\n[retention]\nms = 7\n')
    with pytest.raises(InvalidConfig, match="contradicts"):
        load(toml, {}, [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("num.partitions = true", "num.partitions = true is refused", id="boolean"),
        pytest.param("num.partitions = 1.0", "num.partitions = 1.0 is refused", id="float"),
        pytest.param('num.partitions = "1"', "num.partitions = '1' is refused", id="text"),
        pytest.param("num.partitions = [1]", "num.partitions = [1] is refused", id="array"),
        pytest.param("num.partitions = 1979-05-27", "is refused", id="date"),
        pytest.param("auto.create.topics.enable = 1", "true or false", id="number-for-boolean"),
        pytest.param('auto.create.topics.enable = "true"', "true or false", id="text-for-boolean"),
        pytest.param("listen = 7070", "HOST:PORT", id="number-for-address"),
        pytest.param("[listen]\nport = 7070", "'listen.port' is not a setting", id="table"),
        pytest.param("num.partition = 1", "did you mean num.partitions?", id="misspelt"),
        pytest.param("num.partitions = ", "is not TOML", id="not-toml"),
        pytest.param("\udcff", "is not TOML", id="not-utf-8"),
    ],
)
def test_a_wrong_file_is_refused_by_path(toml: Path, text: str, says: str) -> None:
    toml.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidConfig) as refused:
        load(toml, {}, [])
    assert str(toml) in refused.value.message
    assert says in refused.value.message


def test_a_missing_file_is_refused_by_path(toml: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"horolog\.toml: No such file"):
        load(toml, {}, [])
    with pytest.raises(InvalidConfig, match="Is a directory"):
        load(toml.parent, {}, [])


@pytest.mark.parametrize("name", list(NAMES))
def test_every_name_is_an_environment_variable(name: str) -> None:
    setting = NAMES.find(name)
    allowed = setting.format(setting.default)
    if setting.kind is Kind.INTEGER:
        allowed = "1" if setting.factor(name) > 1 else str(max(setting.minimum, 1))
    settings = load(None, {environment_name(name): allowed}, [])
    if setting.name in BROKER_SETTINGS:
        assert str(getattr(settings, setting.attribute)).lower() == allowed.lower()
    else:
        expected = setting.format(setting.parse(allowed, name=name))
        assert settings.topic_defaults == {setting.name: expected}


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        pytest.param("HOROLOG_RETENTON_MS", "did you mean HOROLOG_RETENTION_MS?", id="letter"),
        pytest.param("HOROLOG_LISTENS", "did you mean HOROLOG_LISTEN?", id="plural"),
        pytest.param("HOROLOG_DATADIR", "did you mean HOROLOG_DATA_DIR?", id="underscore"),
        pytest.param("HOROLOG_SERVERS", "did you mean HOROLOG_SERVER?", id="client-variable"),
    ],
)
def test_a_misspelt_variable_is_refused(variable: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(None, {variable: "1"}, [])
    assert f"{variable} is not a setting; {says}" == refused.value.message


@pytest.mark.parametrize(
    "variable",
    [
        "HOROLOG_SERVER",
        "HOROLOG_TZ",
        "HOROLOG_KERNEL",
        "HOROLOG_REQUIRE",
        "HOROLOG_PORT",
        "HOROLOG_SERVICE_HOST",
        "HOROLOG_SERVICE_PORT",
        "HOROLOG_PORT_7070_TCP",
        "HOROLOG_PORT_7070_TCP_ADDR",
        "HOROLOG_",
        "HOROLOGE_LISTEN",
        "horolog_listen",
    ],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load(None, {variable: "tcp://10.0.0.1:7070"}, []) == broker_settings()


def test_variables_that_nobody_explains_are_told() -> None:
    ours = ["HOROLOG_SERVER", "HOROLOG_REQUIRE", "HOROLOG_KERNEL", "HOROLOG_RETENTION_MS"]
    kubernetes = ["HOROLOG_PORT", "HOROLOG_SERVICE_PORT_NATIVE", "HOROLOG_PORT_7070_TCP_ADDR"]
    others = ["HOROLOG_PORTS", "HOROLOG_COLOUR"]
    environ = dict.fromkeys([*others, *ours, *kubernetes, "HOROLOGE_LISTEN", "PATH"], "x")
    assert ignored_variables(environ) == ["HOROLOG_COLOUR", "HOROLOG_PORTS"]


def test_a_refusal_names_the_variable_or_the_option() -> None:
    with pytest.raises(
        InvalidConfig, match=r"^INVALID_CONFIG: HOROLOG_NUM_PARTITIONS: num\.partitions = 0 is"
    ):
        load(None, {"HOROLOG_NUM_PARTITIONS": "0"}, [])
    with pytest.raises(
        InvalidConfig, match=r"^INVALID_CONFIG: --set num\.partitions=x: num\.partitions = 'x' is"
    ):
        load(None, {}, ["num.partitions=x"])
    with pytest.raises(
        InvalidConfig, match=r"^INVALID_CONFIG: --set num\.partitions: write NAME=VALUE"
    ):
        load(None, {}, ["num.partitions"])


def test_the_last_of_equal_options_counts_and_values_keep_their_equals_signs() -> None:
    settings = load(None, {}, ["data.dir=/a", "data.dir=/b=c"])
    assert settings.data_dir == Path("/b=c")


def test_a_broker_is_found_at_one_address() -> None:
    assert load(None, {}, ["cluster.address=tls://a:1"]).cluster_address == "tls://a:1"
    with pytest.raises(InvalidConfig, match=r"cluster\.address.*a:1,b:2.*must be one HOST:PORT"):
        load(None, {}, ["cluster.address=a:1,b:2"])


def test_it_is_known_whether_the_kafka_listener_was_asked_for() -> None:
    assert not load(None, {}, []).kafka_listen_given
    assert load(None, {}, ["kafka.listen=127.0.0.1:9092"]).kafka_listen_given
    off = load(None, {}, ["kafka.listen=off"])
    assert (off.kafka_listen, off.advertised_listeners) == ("off", "as-reached")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("broker.example:19092", "broker.example:19092"),
        ("PLAINTEXT://broker.example:19092", "broker.example:19092"),
        ("plaintext://[::1]:19092", "[::1]:19092"),
        ("as-reached", "as-reached"),
    ],
)
def test_an_advertised_address_is_one(given: str, address: str) -> None:
    assert load(None, {}, [f"advertised.listeners={given}"]).advertised_listeners == address


@pytest.mark.parametrize(
    "given",
    [
        "broker.example",
        "PLAINTEXT://broker.example",
        "PLAINTEXT://as-reached",
        "HTTP://broker.example:19092",
        "a:1,b",
        "",
    ],
)
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("advertised.listeners", "as-reached"),
        ("kafka.listen", "off"),
        ("http.listen", "off"),
    ],
)
def test_what_is_no_address_of_this_protocol_is_refused(given: str, name: str, word: str) -> None:
    says = (
        "must be HOST:PORT, or several separated by commas, each perhaps behind tls://, "
        f"PLAINTEXT://, SSL://, SASL_PLAINTEXT://, SASL_SSL:// or {word}"
    )
    with pytest.raises(InvalidConfig, match=says):
        load(None, {}, [f"{name}={given}"])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("TLS://[::]:1,127.0.0.1:1", "tls://[::]:1,127.0.0.1:1"),
        ("sasl_ssl://a:1,Ssl://a:2,SASL_PLAINTEXT://a:3", None),
        ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        ("127.0.0.1:0,127.0.0.1:0", "127.0.0.1:0,127.0.0.1:0"),
    ],
)
def test_addresses_to_listen_at(given: str, found: str | None) -> None:
    loaded = load(None, {}, [f"kafka.listen={given}", f"listen={given}"])
    assert (
        loaded.kafka_listen
        == loaded.listen
        == (found or "SASL_SSL://a:1,SSL://a:2,SASL_PLAINTEXT://a:3")
    )


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("127.0.0.256", False),
        ("127.0.0.01", False),
        ("127.0.0.1.example", False),
        ("128.0.0.1", False),
        ("::", False),
        ("localhost", False),
    ],
)
def test_addresses_that_never_leave_the_machine(host: str, found: bool) -> None:
    assert is_loopback(host) == found


def test_an_address_is_named_once() -> None:
    with pytest.raises(ValueError, match="tls://a:1 is named twice"):
        listen_addresses("tls://a:1,TLS://a:1")


def test_a_flush_schedule_sets_the_default_of_the_flush_time() -> None:
    assert "flush.ms" not in broker_settings().topic_defaults
    scheduled = broker_settings({"log.flush.scheduler.interval.ms": "500"})
    assert scheduled.topic_defaults == {"flush.ms": "500"}
    both = broker_settings({"log.flush.scheduler.interval.ms": "500", "flush.ms": "9"})
    assert both.topic_defaults == {"flush.ms": "9"}


def test_settings_do_not_change() -> None:
    settings = broker_settings()
    with pytest.raises(FrozenInstanceError):
        settings.listen = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.topic_defaults["retention.ms"] = "1"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("broker.example:1", "broker.example", 1),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert join_address(host, port) == text


@pytest.mark.parametrize(
    "text",
    ["", "off", "7070", ":7070", "host", "host:", "host:x", "host:65536", "::1:7070", "a b:1",
     "h:-1", "http://host:1", "h:1 ", "h:\u0661"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|ports end at"):
        split_address(text)
    with pytest.raises(InvalidConfig, match="listen"):
        broker_settings({"listen": text})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alice:correct-horse@h:1", "...@h:1"),
        ("correct-horse@h:1", "...@h:1"),
        ("alice:correct@horse@h:1", "...@h:1"),
        ("tls://alice:correct-horse@h:1", "tls://...@h:1"),
        ("h:1,alice:correct,horse@h:2", "...@h:2"),
        ("http://etcd:2379,http://root:correct/horse@h:2379", "http://...@h:2379"),
    ],
)
def test_a_login_in_an_address_is_refused_and_not_shown(text: str, shown: str) -> None:
    assert without_login(text) == shown
    with pytest.raises(ValueError, match="before the @") as refused:
        split_address(text)
    assert "horse" not in str(refused.value)
    urls = ("cluster.etcd", "sasl.oauthbearer.jwks.endpoint.url") if "://" in text else ()
    for name in ("listen", "kafka.listen", "cluster.follow", "cluster.address", *urls):
        with pytest.raises(InvalidConfig, match=name) as told:
            broker_settings({name: text})
        assert "horse" not in str(told.value)
        assert repr(shown) in str(told.value)


@pytest.mark.parametrize("text", ["", "h:1", "tls://h:1", "a:1,b:2"])
def test_an_address_without_a_login_is_shown_as_it_is(text: str) -> None:
    assert without_login(text) == text
