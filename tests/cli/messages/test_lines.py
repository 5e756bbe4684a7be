"""Lines of standard input as messages."""

import pytest

from horolog.cli.lines import BadLine, json_message, plain_message
from horolog.client.json_lines import Message
from horolog.protocol.records.messages.sets import NewRecord

NOW_MS = 1479144272509


def test_a_plain_line_is_a_value_of_now() -> None:
    assert plain_message(b"\xff", NOW_MS) == Message(NewRecord(b"\xff", None, NOW_MS))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"value":"a"}', Message(NewRecord(b"a", None, NOW_MS))),
        ('{"value":null,"key":"k"}', Message(NewRecord(None, b"k", NOW_MS))),
        ('{"value":{"base64":"/w=="}}', Message(NewRecord(b"\xff", None, NOW_MS))),
        ('{"value":"\u00e9","key":null}', Message(NewRecord("\u00e9".encode(), None, NOW_MS))),
        ('{"value":"a","timestamp_ms":0}', Message(NewRecord(b"a", None, 0))),
        ('{"value":"a","timestamp_ms":null}', Message(NewRecord(b"a", None, -1))),
        ('{"value":"a","timestamp_ms":-1}', Message(NewRecord(b"a", None, -1))),
        ('{"value":"a","timestamp":null}', Message(NewRecord(b"a", None, -1))),
        (
            '{"value":"a","timestamp":"2016-11-14T18:24:32.509+01:00"}',
            Message(NewRecord(b"a", None, 1479144272509)),
        ),
        ('{"topic":"t","value":"a"}', Message(NewRecord(b"a", None, NOW_MS))),
        ('{"value":"a","partition":2}', Message(NewRecord(b"a", None, NOW_MS), 2)),
        ('{"value":"a","partition":null}', Message(NewRecord(b"a", None, NOW_MS))),
        (
            '{"value":"a","offset":5,"timestamp_type":"CreateTime","append_time_ms":7}',
            Message(NewRecord(b"a", None, NOW_MS)),
        ),
        ('{"value":"a","headers":null}', Message(NewRecord(b"a", None, NOW_MS))),
        (
            '{"value":"a","headers":[{"name":"n","value":"1"},{"name":"n","value":null},'
            '{"name":"","value":{"base64":"/w=="}}]}',
            Message(NewRecord(b"a", None, NOW_MS, (("n", b"1"), ("n", None), ("", b"\xff")))),
        ),
    ],
)
def test_a_json_line_is_what_its_fields_say(line: str, message: Message) -> None:
    assert json_message(line.encode(), 1, NOW_MS) == message


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("not json", "is not JSON"),
        ("[]", "is not an object"),
        ("{}", 'has no "value"'),
        ('{"value":1}', "value must be a string"),
        ('{"value":"a","key":[]}', "key must be a string"),
        ('{"value":{"base64":"!"}}', "not valid base64"),
        ('{"value":"\\ud800"}', "surrogate"),
        ('{"value":"a","timestamp_ms":"now"}', "timestamp_ms must be a whole number from -1"),
        ('{"value":"a","timestamp_ms":1.5}', "timestamp_ms must be a whole number"),
        ('{"value":"a","timestamp_ms":-2}', "not -2"),
        ('{"value":"a","timestamp_ms":9223372036854775808}', "9223372036854775807"),
        ('{"value":"a","partition":-1}', "partition must be a whole number from 0"),
        ('{"value":"a","partition":true}', "partition must be"),
        ('{"value":"a","timestmap_ms":1}', 'has a field "timestmap_ms"'),
        ('{"value":"a","headers":{"n":"1"}}', "headers must be a list of"),
        ('{"value":"a","headers":[["n","1"]]}', 'a header is {"name"'),
        ('{"value":"a","headers":[{"name":"n"}]}', 'a header is {"name"'),
        ('{"value":"a","headers":[{"name":null,"value":"1"}]}', "name of a header must be"),
        ('{"value":"a","headers":[{"name":"\\ud800","value":"1"}]}', "surrogate"),
        ('{"value":"a","headers":[{"name":"n","value":1}]}', "value of a header must be"),
        ('{"value":"a","timestamp":"now"}', "timestamp must be RFC 3339"),
        ('{"value":"a","timestamp":1479144272509}', "a number goes into timestamp_ms"),
        ('{"value":"a","timestamp":"2016-11-14T18:24:32"}', "has no zone"),
        ('{"value":"a","timestamp":"1969-11-14T18:24:32Z"}', "is before 1970"),
        ('{"value":"a","timestamp":null,"timestamp_ms":0}', "has both timestamp and timestamp_ms"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_line_that_is_no_message_is_named_with_its_number(line: str, text: str) -> None:
    with pytest.raises(BadLine) as caught:
        json_message(line.encode(), 17, NOW_MS)
    assert str(caught.value).startswith("line 17")
    assert text in str(caught.value)


def test_a_line_is_utf_8_and_nothing_else() -> None:
    for line in ('{"value":"a"}'.encode("utf-16le"), '{"value":"a"}'.encode("utf-16"), b"\xff"):
        with pytest.raises(BadLine, match=r"line 17 is not (UTF-8|JSON)"):
            json_message(line, 17, NOW_MS)
    marked = json_message('{"value":"a"}'.encode("utf-8-sig"), 17, NOW_MS)
    assert marked.record.value == b"a"


@pytest.mark.parametrize(
    ("timestamp_ms", "guess"),
    [
        (1479144272, "looks like seconds: epoch milliseconds are 0 or from 100000000000 to"),
        (10**11 - 1, "looks like seconds"),
        (10**14 + 1, "looks like microseconds"),
        (2**63 - 1, "looks like nanoseconds"),
    ],
)
def test_a_time_in_another_unit_is_taken_only_when_asked_to(timestamp_ms: int, guess: str) -> None:
    line = f'{{"value":"a","timestamp_ms":{timestamp_ms}}}'.encode()
    with pytest.raises(BadLine) as caught:
        json_message(line, 17, NOW_MS)
    assert str(caught.value).startswith(f"line 17: timestamp_ms {timestamp_ms} {guess}")
    assert str(caught.value).endswith("or give --any-unit to take the number as it is")
    assert json_message(line, 17, NOW_MS, any_unit=True).record.timestamp_ms == timestamp_ms


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 10**11, 10**14])
def test_milliseconds_are_taken_up_to_their_bounds(timestamp_ms: int) -> None:
    line = f'{{"value":"a","timestamp_ms":{timestamp_ms}}}'.encode()
    assert json_message(line, 17, NOW_MS).record.timestamp_ms == timestamp_ms
