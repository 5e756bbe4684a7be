"""Options of reads: what they mean, and what is told of those that mean nothing."""

import pickle
import re
from pathlib import Path

import pytest

from horolog import SecretFile, Security
from horolog.client.cluster.servers import parse_servers, with_security
from horolog.pipeline.connecting import connection_options
from horolog.pipeline.option_values import OptionError, duration_ms
from horolog.pipeline.options import (
    READ_NAMES,
    SECURITY,
    WRITE_NAMES,
    BrokerOptions,
    ReadBound,
    ReadOptions,
    read_options,
    write_options,
)
from horolog.pipeline.planning import Window

NOW_MS = 1_700_000_000_000


def parse(options: dict[str, str] | None = None, *, streaming: bool = False) -> ReadOptions:
    given = {"bootstrap.servers": "127.0.0.1:7070", "subscribe": "t"}
    given |= options or {}
    given = {name: text for name, text in given.items() if text}
    return read_options(given, streaming=streaming, now_ms=NOW_MS)


def test_the_defaults() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.start, batch.end) == (ReadBound("earliest"), ReadBound("latest"))
    assert stream.start == ReadBound("latest")
    assert batch.broker == BrokerOptions(parse_servers("127.0.0.1:7070"))
    assert batch.fail_on_data_loss
    assert batch.window is None


def test_names_in_any_case_and_of_kafka() -> None:
    found = parse({"bootstrap.servers": "", "kafka.bootstrap.servers": "h:1", "MINPARTITIONS": "3"})
    assert (found.broker.address, found.min_partitions) == ("h:1", 3)


def test_a_time_wins_over_offsets() -> None:
    found = parse(
        {"startingTimestamp": "@-1h", "startingOffsets": "earliest", "endingTimestamp": "now"}
    )
    assert found.start.time_ms == NOW_MS - 3_600_000
    assert found.end.time_ms == NOW_MS
    found = parse({"startingOffsetsByTimestamp": f'{{"t": {{"1": {NOW_MS}, "2": 0}}}}'})
    assert found.start.times_ms == {"t": {1: NOW_MS, 2: 0}}


def test_any_unit_takes_times_that_look_like_seconds() -> None:
    found = parse({"startingTimestamp": "5", "endingTimestamp": "1479144272", "anyUnit": "true"})
    assert found.window == Window(5, 1_479_144_272)
    by_partition = {
        "startingOffsetsByTimestamp": '{"t": {"0": 1479144272}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 1479144272509000}}',
    }
    found = parse({**by_partition, "anyUnit": "true"})
    assert found.start.times_ms == {"t": {0: 1_479_144_272}}
    assert found.end.times_ms == {"t": {0: 1_479_144_272_509_000}}


def test_times_bound_a_batch_exactly() -> None:
    found = parse({"endingTimestamp": str(NOW_MS), "maxOutOfOrderness": "5m"})
    assert found.window == Window(0, NOW_MS)
    assert found.max_out_of_order_ms == 300_000
    assert parse({"startingTimestamp": str(NOW_MS)}).window == Window(NOW_MS, None)
    assert parse({"startingTimestamp": "@-1h", "endingOffsets": "latest"}).window is not None
    assert parse({"timeRange": "exact"}).window is None


@pytest.mark.parametrize(
    "options",
    [
        {"timeRange": "offsets"},
        {"endingOffsets": '{"t": {"0": 3}}'},
        {"endingOffsetsByTimestamp": f'{{"t": {{"0": {NOW_MS}}}}}'},
    ],
)
def test_offsets_bound_a_batch_by_offsets(options: dict[str, str]) -> None:
    found = parse({"startingTimestamp": str(NOW_MS), **options})
    assert (found.exact, found.window) == (False, None)


def test_a_stream_is_exact_where_it_is_told() -> None:
    bounds = {"startingTimestamp": str(NOW_MS)}
    assert parse(bounds, streaming=True).window is None
    told = parse({**bounds, "timeRange": "exact"}, streaming=True)
    assert told.window == Window(NOW_MS)


def test_files_have_no_range_of_offsets() -> None:
    with pytest.raises(OptionError, match="timeRange=offsets needs a broker"):
        read_options({"segments.path": "t-0", "timeRange": "offsets"}, streaming=False, now_ms=1)


def test_several_addresses_are_kafkas() -> None:
    found = parse({"bootstrap.servers": "kafka://a:1,b:2"})
    assert found.broker.address == "kafka://a:1,b:2"


@pytest.mark.parametrize(
    ("text", "found"),
    [("10 minutes", 600_000), ("90s", 90_000), ("1 hour", 3_600_000), ("250", 250), ("2 ms", 2)],
)
def test_lengths_of_time(text: str, found: int) -> None:
    assert duration_ms("x", text) == found


@pytest.mark.parametrize("text", ["", "minutes", "-1 s", "1.5 h", "10 fortnights", "1h30m"])
def test_no_lengths_of_time(text: str) -> None:
    with pytest.raises(OptionError, match="10 minutes"):
        duration_ms("x", text)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingTimestamps": "1"}, "did you mean 'startingTimestamp'"),
        ({"kafka.fetch.min.bytes": "1"}, "options of Kafka's client have no meaning here"),
        ({"bootstrap.servers": ""}, 'the option "bootstrap.servers" is missing'),
        ({"bootstrap.servers": "here"}, "bootstrap.servers: 'here' is not HOST:PORT"),
        ({"bootstrap.servers": "a:1,b"}, "bootstrap.servers: 'b' is not HOST:PORT"),
        ({"bootstrapServers": "127.0.0.1:1"}, "contradict each other"),
        ({"assign": '{"t": [0]}'}, "there are subscribe and assign"),
        ({"subscribe": ""}, "there is none"),
        ({"subscribe": ","}, "separated by commas"),
        ({"subscribe": "", "subscribePattern": "("}, "no regular expression"),
        ({"subscribe": "", "assign": "[0]"}, '{"clicks": [0, 2]}'),
        ({"subscribe": "", "assign": '{"t": []}'}, '{"clicks": [0, 2]}'),
        ({"startingTimestamp": "1479144272"}, "looks like seconds"),
        ({"startingTimestamp": "1479144272"}, "anyUnit=true takes any number"),
        ({"endingTimestamp": "1479144272"}, "endingTimestamp: 1479144272 looks like seconds"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 1479144272509, "1": 1479144272}}'},
            "startingOffsetsByTimestamp: t-1: 1479144272 looks like seconds",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 1479144272}}', "anyUnit": "false"},
            "write 1479144272000 if it is seconds; anyUnit=true takes any number",
        ),
        (
            {"endingOffsetsByTimestamp": '{"t": {"0": 1479144272509000}}'},
            "endingOffsetsByTimestamp: t-0: 1479144272509000 looks like microseconds",
        ),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "t-0 has -1; it is an integer from 0"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 9223372036854775808}}', "anyUnit": "true"},
            "does not fit in 64 bits",
        ),
        ({"anyUnit": "yes"}, "anyUnit='yes': it is true or false"),
        ({"startingTimestamp": "2016-11-14"}, "zone"),
        ({"startingOffsets": "first"}, "earliest, latest, or JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "from -2 on"),
        ({"startingOffsets": '{"t": {"x": 3}}'}, "a partition of t"),
        ({"startingOffsets": '{"t"'}, "it is JSON"),
        ({"startingOffsets": "latest"}, "would read nothing in a batch"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        (
            {"startingOffsets": '{"t": {"1": 3}}', "endingOffsets": '{"t": {"1": 1}}'},
            "endingOffsets of t-1 (1) is before its startingOffsets (3)",
        ),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': it is true or false"),
        ({"minPartitions": "0"}, "from 1 to"),
        ({"maxOutOfOrderness": "1 h", "timeRange": "offsets"}, "needs timeRange=exact"),
        ({"maxOutOfOrderness": "1 h"}, "behind endingTimestamp"),
        ({"fetchOffset.numRetries": "abc"}, "fetchOffset.numRetries='abc'"),
        ({"timeRange": "exact", "startingOffsets": '{"t": {"0": 3}}'}, "not with offsets"),
        ({"timeRange": "exakt"}, "it is exact or offsets"),
        ({"maxTimePerTrigger": "an hour"}, "10 minutes"),
        ({"idleWaitMs": "501"}, "from 0 to 500"),
        ({"groupId": "billing"}, "groupId is for streams"),
        (
            {"startingTimestamp": str(NOW_MS), "endingTimestamp": str(NOW_MS - 1)},
            "is before startingTimestamp",
        ),
    ],
)
def test_options_that_mean_nothing(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(options)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "options", [{"endingOffsets": '{"t": {"0": 3}}'}, {"segments.path": "t-0", "subscribe": ""}]
)
def test_what_only_a_batch_can_have(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse(options, streaming=True)


def test_the_name_of_a_stream() -> None:
    assert parse(streaming=True).group_id is None
    assert parse({"groupId": " billing "}, streaming=True).group_id == "billing"
    with pytest.raises(OptionError, match="groupId=' ': it is the name"):
        parse({"groupId": " "}, streaming=True)


@pytest.mark.parametrize(
    ("options", "retry_ms", "request_ms"),
    [
        ({}, 60_000, 30_000),
        ({"fetchOffset.numRetries": "5"}, 60_000, 30_000),
        ({"fetchOffset.numRetries": "5000", "fetchOffset.retryIntervalMs": "20"}, 100_000, 30_000),
        ({"fetchOffset.retryIntervalMs": "30000"}, 90_000, 30_000),
        ({"fetchOffset.numRetries": "9000", "retryBudgetMs": "7"}, 7, 30_000),
        ({"kafkaConsumer.pollTimeoutMs": "512"}, 60_000, 30_000),
        ({"kafkaConsumer.pollTimeoutMs": "120000"}, 60_000, 120_000),
        ({"kafkaConsumer.pollTimeoutMs": "120000", "requestTimeoutMs": "9"}, 60_000, 9),
    ],
)
def test_patience_by_kafkas_names(options: dict[str, str], retry_ms: int, request_ms: int) -> None:
    broker = parse(options).broker
    assert (broker.retry_budget_ms, broker.request_timeout_ms) == (retry_ms, request_ms)


@pytest.mark.parametrize("name", ["fetchOffset.numRetries", "retryBudgetMs", "requestTimeoutMs"])
def test_patience_is_checked_where_files_are_read_too(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}='abc'"):
        read_options({"segments.path": "t-0", name: "abc"}, streaming=False, now_ms=NOW_MS)


def test_every_option_is_in_the_guide() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = (docs / "spark.md", docs / "security" / "clients.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    silent = {
        # Other spellings, Kafka's, what Spark adds.
        *("bootstrapServers", "kafka.bootstrap.servers", "path"),
        *("queryName", "outputMode"),
        # "The same behind `kafka.`", ".env, or without", librdkafka's other word.
        *(name for name in SECURITY if name.startswith("kafka.")),
        *("sasl.mechanisms", "sasl.oauthbearer.token.env", "ssl.key.password.env"),
    }
    names = {*READ_NAMES, *WRITE_NAMES} - silent
    assert [name for name in sorted(names) if name not in text] == []


GUARDED = {
    "bootstrap.servers": "kafka+tls://a:9092,b:9092",
    "subscribe": "t",
    "kafka.sasl.username": "alice",
    "sasl.password": "correct-horse-7213",
    "ssl.ca.location": "ca.pem",
}


def test_how_to_be_let_in() -> None:
    read = read_options(GUARDED, streaming=False, now_ms=0)
    channel = read.broker.servers.channel
    assert channel is not None
    assert (channel.tls, channel.ca, channel.user) == (True, "ca.pem", "alice")
    assert channel.mechanism == "SCRAM-SHA-512"
    given = {name: value for name, value in GUARDED.items() if name != "subscribe"}
    written = write_options({**given, "topic": "t"}, overwrite=False, streaming=False)
    assert written.broker == read.broker
    for shown in (repr(read), repr(written)):
        assert "correct-horse" not in shown
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"bootstrap.servers": "kafka://a:9092"}, "ca is for TLS"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": None}, "an address of TLS"),
        ({"sasl.password": None}, "the user alice has no password"),
        ({"sasl.username": "bob"}, "sasl.username and kafka.sasl.username contradict each other"),
        ({"sasl.mechanism": "GSSAPI"}, "'GSSAPI' is no mechanism"),
        (
            {"kafka.sasl.jaas.config": 'ScramLoginModule required password="correct-horse-7213";'},
            "unknown option 'kafka.sasl.jaas.config' for a read: sasl.username with "
            "sasl.password.file, or sasl.oauthbearer.token.file, replaces it",
        ),
        ({"sasl.jaas.config": "correct-horse-7213"}, "sasl.username with sasl.password.file"),
        ({"kafka.ssl.truststore.location": "a.jks"}, "ssl.ca.location, a PEM file, replaces it"),
        (
            {"kafka.ssl.keystore.password": "correct-horse-7213"},
            "ssl.certificate.location and ssl.key.location, PEM files, replace it",
        ),
        ({"sasl.pasword": "x"}, "did you mean 'sasl.password'"),
    ],
)
def test_what_keeps_everybody_out(changes: dict[str, str | None], wrong: str) -> None:
    options = {name: value for name, value in {**GUARDED, **changes}.items() if value is not None}
    with pytest.raises(OptionError, match=re.escape(wrong)) as caught:
        read_options(options, streaming=False, now_ms=0)
    assert "correct-horse" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("alice:correct-horse-7213@a:9092", "'...@a:9092'"),
        ("kafka://alice:correct-horse-7213@a:9092,b:9092", "'kafka://...@a:9092,b:9092'"),
        ("a:9092,alice:correct-horse,7213@b:9092", "'...@b:9092'"),
        ("correct-horse-7213@a", "'...@a'"),
    ],
)
@pytest.mark.parametrize("name", ["bootstrap.servers", "kafka.bootstrap.servers"])
def test_a_login_in_an_address_is_refused_and_not_shown(
    name: str, address: str, shown: str
) -> None:
    with pytest.raises(OptionError, match="a login before the @") as refused:
        read_options({name: address, "subscribe": "t"}, streaming=False, now_ms=0)
    assert str(refused.value).startswith(f"{name}: {shown} has a login before the @")
    assert "sasl.username" in str(refused.value)
    assert "horse" not in str(refused.value)
    with pytest.raises(OptionError, match="a login before the @") as refused:
        write_options({name: address, "topic": "t"}, overwrite=False, streaming=True)
    assert "horse" not in str(refused.value)


def test_an_address_with_how_to_be_let_in_becomes_options() -> None:
    security = Security(ca="ca.pem", user="alice", password=SecretFile("password"))
    options = connection_options(with_security("kafka+tls://a:9092,b:9092", security))
    read = read_options({**options, "subscribe": "t"}, streaming=False, now_ms=0)
    assert read.broker.servers == with_security("kafka+tls://a:9092,b:9092", security)
    assert connection_options("a:1") == {"bootstrap.servers": "a:1"}
