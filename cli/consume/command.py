"""`horolog consume`: read the messages of a window of time, or of a range of offsets."""

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Final

import typer

from ...clock import SystemClock
from ...printable import printable
from ...protocol.window_topics import parse_window_name
from ...times import TimeError, parse_length
from ...values import value_class
from ..errors import WrongUsage, note
from ..options import (
    DEFAULT_SERVER,
    POSITION_HELP,
    AnyUnit,
    Json,
    Partition,
    ReadFrom,
    Server,
    check_read_from,
    check_text,
    complete_topic,
    parse_bounds,
    takes,
)
from .consuming import ConsumeOptions, Consumption
from .formats import JsonFormat, LineFormat, TemplateFormat, TextFormat
from .last import LAST_MAX
from .reading import RecordReading, TopicNames, WindowedBy, window_of
from .selection import parse_selection
from .sinks import parse_speed, parse_target

_SETTLE_MS: Final = 2000


class Order(StrEnum):
    """The order in which messages are printed."""

    OFFSET = "offset"
    TIME = "time"


def _last(text: str | int) -> int:
    """Parse `--last`. Raises WrongUsage."""
    with suppress(ValueError):
        return int(text)
    with suppress(TimeError):
        parse_length(str(text))
        raise WrongUsage(
            f"--last {text} is a length of time, and --last takes a number of messages: write "
            f"--from @-{text} for the messages of that time"
        )
    raise WrongUsage(f"--last {printable(str(text))}: write a number of messages, such as 10")


Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="Names of topics; or patterns in quotes: 'clicks-*', '^clicks-[0-9]+'.",
        autocompletion=complete_topic,
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POS",
        help=f"Where to begin: {POSITION_HELP}; or a range of times @A:B that sets --until "
        "too, such as @-2h:1h. When not given, the first message stored; with --follow, what "
        "arrives from now on.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="POS", help="Where to stop, before that time or offset: a POS too."),
]
OffsetsBetween = Annotated[
    bool,
    typer.Option(
        "--offsets-between",
        help="Read a range of offsets: a time stands for the first message of that time or later.",
    ),
]
By = Annotated[
    WindowedBy,
    typer.Option(
        help="A window goes by the messages' own times, or by when the broker appended them."
    ),
]
AppendTime = Annotated[
    bool,
    typer.Option(
        "--append-time",
        help="Say when the broker appended each message too; with --json as append_time_ms.",
    ),
]
ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed",
        help="Leave out messages of transactions that were aborted, and wait for those that "
        "are not decided. Only in a Kafka cluster, and in directories that Kafka wrote, there "
        "are any.",
    ),
]
Stats = Annotated[
    bool,
    typer.Option(
        "--stats",
        help="Say what a window took as a JSON object, the last line of standard error.",
    ),
]


Count = Annotated[
    int | None,
    typer.Option("-n", metavar="N", help="End after N messages."),
]
Last = Annotated[
    int | None,
    typer.Option(
        "--last",
        metavar="N",
        parser=_last,
        help="Only the last N messages of the window, or of the log.",
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")
]
Grep = Annotated[
    str | None,
    typer.Option("--grep", metavar="TEXT", help="Only messages with this text in the value."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="NAME=VALUE", help="Only messages with this header. Repeatable."
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="How to print a message: text with fields such as {time}, {key}, {value}, "
        "{value.user.id} of JSON values, {headers.NAME}, and escapes such as \\t.",
    ),
]
Ordered = Annotated[
    Order | None,
    typer.Option(
        "--order",
        help="Partition after partition in the order of offsets, or all in the order of times. "
        " [default: offset; with --speed: time]",
    ),
]
Settle = Annotated[
    str | None,
    typer.Option(
        "--settle",
        metavar="LENGTH",
        help="With --order time and --follow: how long a message is held for earlier ones that "
        "come later.  [default: 2s]",
    ),
]
Speed = Annotated[
    str | None,
    typer.Option(
        "--speed",
        metavar="X",
        help="Pace: 1 as the times of the messages say, 10 ten times as fast, max at once.  "
        "[default: max]",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="Write the messages instead of printing them: to a TOPIC, or ADDRESS/TOPIC as in "
        "kafka://HOST:PORT/TOPIC.",
    ),
]


Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")
]


@value_class
class ConsumeArguments:
    """The arguments and options of `consume`."""

    topics: Topics
    start: Start = None
    until: Until = None
    offsets_between: OffsetsBetween = False
    by: By = WindowedBy.CREATE
    follow: Follow = False
    count: Count = None
    last: Last = None
    key: Key = None
    grep: Grep = None
    header: Headers = None
    order: Ordered = None
    settle: Settle = None
    speed: Speed = None
    to: To = None
    partition: Partition = None
    template: Template = None
    append_time: AppendTime = False
    read_committed: ReadCommitted = False
    stats: Stats = False
    read_from: ReadFrom = "leader"
    server: Server = DEFAULT_SERVER
    as_json: Json = False
    any_unit: AnyUnit = False


@takes(ConsumeArguments)
def consume(given: ConsumeArguments) -> None:
    """Read the messages of a window of time, or of a range of offsets.

    With one or two times, a window is read: exactly the messages whose time is at or after --from
    and before --until, in whatever order they are in the log. Messages without a time are in no
    window. The last line on standard error says how many messages there were, and how much of the
    log was read and skipped.

    With offset:N on either side, or with --offsets-between, a range of offsets is read. A time then
    stands for the offset of the first message with that time or a later one. If messages are out
    of order, older and newer messages may lie between the two offsets, and messages of the wanted
    times outside of them. If --until gives a lower offset than --from, nothing is read, and a note
    on standard error says so.

    Without --follow, reading stops at the log end as it was at the start. With --follow and without
    --from, everything is printed that arrives from now on, whatever its time; with --from, also
    what is stored. Partitions that are added are read too, and topics that match a pattern later,
    unless --from is a time. --follow ends at the offset of --until, or when its time has passed by
    the broker's clock. A window that had ended before is followed until Ctrl-C, for late messages;
    a range of offsets up to the first message of the time of --until or later.

    Messages are printed in the order of their offsets, one partition and topic after the other;
    with --follow as they come. --order time merges all of them by time, topic, partition and
    offset. Many messages are sorted in a temporary folder (TMPDIR). With --follow, a message that
    comes after its place was printed is printed at once, and counted in the last line.

    --key, --grep and --header select messages; -n and --last count those. --last takes, of several
    partitions, those whose ends are the latest. With --json a message with headers has a field
    "headers", a list of {"name", "value"}; of several topics, the field "topic" comes first.

    --to writes keys, values, headers and times as they are. A message keeps its partition if the
    target has at least as many as its topic; otherwise its key chooses. The target is written
    without a login unless it is at --server.
    """
    check_read_from(given.server, given.read_from)
    for name in given.topics:
        check_text(name)
    reading, options = _reading_and_options(given)
    try:
        asyncio.run(Consumption(reading, options, SystemClock()).run())
    except KeyboardInterrupt:
        if not given.follow:
            raise


def _reading_and_options(given: ConsumeArguments) -> tuple[RecordReading, ConsumeOptions]:
    """Return what the arguments ask for. Raises WrongUsage for those that do not go together."""
    bounds = parse_bounds(given.start, given.until, SystemClock().now_ms(), given.any_unit)
    window = None if given.offsets_between else window_of(bounds, given.by)
    names = TopicNames(given.topics)
    pace = parse_speed(given.speed)
    in_time_order = given.order is Order.TIME or (given.order is None and pace is not None)
    _check_counts(given.count, given.last, follow=given.follow, in_time_order=in_time_order)
    _check_target(given)
    named = [found for found in map(parse_window_name, given.topics) if found is not None]
    if window is None and not named:
        _check_no_window(given.by, given.stats)
    line_format = _line_format(given, names)
    if given.follow and given.start in ("now", "@now"):
        note(
            "--from now leaves out messages with earlier times that arrive from now on; without "
            "--from they are there"
        )
    by_create = given.by is WindowedBy.CREATE
    options = ConsumeOptions(
        names=names,
        bounds=bounds,
        window=window,
        only_named=bounds == (None, None) and not given.offsets_between and by_create,
        by=given.by.value,
        selection=parse_selection(given.key, given.grep, given.header),
        first=given.count,
        last=given.last,
        in_time_order=in_time_order,
        settle_s=_settle_s(given.settle, follow=given.follow, in_time_order=in_time_order),
        speed=pace,
        target=None if given.to is None else parse_target(given.to, given.server),
        line_format=line_format,
        stats=given.stats,
    )
    append_times = (
        line_format.needs_append_time or not by_create or any(one.by_append for one in named)
    )
    reading = RecordReading(
        *(given.server, given.read_from, given.partition, given.follow),
        append_times=append_times,
        read_committed=given.read_committed,
    )
    return reading, options


def _check_counts(
    count: int | None, last: int | None, *, follow: bool, in_time_order: bool
) -> None:
    """Raise WrongUsage for `-n` and `--last` that make no sense."""
    if count is not None and count < 1:
        raise WrongUsage(f"-n {count}: nothing would be read: give a number from 1 on")
    if last is None:
        return
    if last < 1:
        raise WrongUsage(f"--last {last}: nothing would be read: give a number from 1 on")
    if follow:
        raise WrongUsage(
            "--last with --follow: what is followed has no last message: leave one of them out, or "
            "give --from a position"
        )
    if last > LAST_MAX and not in_time_order:
        raise WrongUsage(
            f"--last {last}: up to {LAST_MAX} messages are found in the order of offsets: give a "
            "lower number, --order time, or --from"
        )


def _check_target(given: ConsumeArguments) -> None:
    """Raise WrongUsage for options about printing beside `--to`, and beside each other."""
    about_printing = {
        "--json": given.as_json,
        "--format": given.template is not None,
        "--append-time": given.append_time,
    }
    if given.to is not None:
        for flag, is_given in about_printing.items():
            if is_given:
                raise WrongUsage(f"{flag} is about printing, and --to prints no messages")
    if given.template is None:
        return
    for flag in ("--json", "--append-time"):
        if about_printing[flag]:
            cure = "leave one of them out" if flag == "--json" else "write {append_time} there"
            raise WrongUsage(f"{flag} with --format: the template says what a line has: {cure}")


def _line_format(given: ConsumeArguments, names: TopicNames) -> LineFormat:
    if given.template is not None:
        return TemplateFormat(given.template)
    kind = JsonFormat if given.as_json else TextFormat
    return kind(given.append_time, names.are_several)


def _settle_s(settle: str | None, *, follow: bool, in_time_order: bool) -> float:
    """Parse `--settle`. Raises WrongUsage."""
    if settle is None:
        return _SETTLE_MS / 1000
    if not (follow and in_time_order):
        raise WrongUsage(
            "--settle is about messages that are still to come: it goes with --follow and --order "
            "time"
        )
    try:
        return parse_length(settle) / 1000
    except TimeError as error:
        raise WrongUsage(f"--settle: {error}") from None


def _check_no_window(by: WindowedBy, stats: bool) -> None:
    """Raise WrongUsage for an option that only windows have."""
    asked = "--stats" if stats else "--by append" if by is WindowedBy.APPEND else None
    if asked is not None:
        raise WrongUsage(
            f"{asked} is about a window of time: give --from or --until a time, neither of them "
            "an offset, and no --offsets-between"
        )
