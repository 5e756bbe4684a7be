"""Hints: what to write instead of plurals and of words of other tools (kcat, Kafka's scripts, rpk,
nats, redis-cli). No hint names a command that deletes, moves or repairs something."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_LIST: Final = "`horolog topic list` lists topics"
_READ: Final = "`horolog consume TOPIC` reads messages; with --follow it waits for new ones"
_SEND: Final = "`horolog produce TOPIC VALUE` sends a message"
_GROUPS: Final = "`horolog group list` lists consumer groups"
_BROKER: Final = (
    "`horolog doctor` checks the broker, `horolog cluster status` shows who leads, "
    "`horolog topic list` lists topics"
)
_START: Final = "`horolog serve` starts a broker"
_SEEK: Final = (
    "`horolog consume TOPIC --from TIME` reads from there, `horolog offsets TOPIC --at TIME` finds "
    "the offset; `horolog group --help` is about the positions of groups"
)
_TOPIC: Final = "`horolog topic describe TOPIC` shows a topic with its settings"
_CREATE: Final = "`horolog topic create TOPIC` creates a topic"
_LOAD: Final = "`horolog load` measures a broker"
_COPY: Final = "`horolog consume TOPIC --to TARGET` copies messages to another topic"


def _table(*rows: tuple[str, str]) -> dict[str, str]:
    """Return the hint of each word; a row has words, separated by spaces, and their hint."""
    return {word: hint for words, hint in rows for word in words.split()}


_COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "": _table(
        ("ls list topics stream streams keys xlen", _LIST),
        ("groups consumer consumers", _GROUPS),
        ("users", "`horolog user list` lists users"),
        ("acls", "`horolog acl list` lists the rules"),
        ("quotas", "`horolog quota list` lists quotas"),
        ("profiles context contexts", "`horolog profile list` lists profiles"),
        ("brokers nodes info status metadata health ping", _BROKER),
        ("tail watch sub subscribe read cat get fetch xread xrange head follow", _READ),
        ("pub publish send write push put xadd", _SEND),
        ("seek offset rewind", _SEEK),
        ("describe show config", _TOPIC),
        ("create new", _CREATE),
        ("start run server broker up redpanda", _START),
        ("count counts hist", "`horolog histogram TOPIC --from TIME --every 1h` counts messages"),
        ("lags", "`horolog lag` shows how far readers are behind"),
        ("bench perf benchmark", _LOAD),
        ("replay mirror copy", _COPY),
        ("version", "`horolog --version` prints the version"),
        ("help", "`horolog --help` shows the commands"),
    ),
    "topic": _table(
        ("info get show inspect config configs", _TOPIC),
        ("add new make", _CREATE),
        ("consume tail read cat sub", _READ),
        ("produce pub publish send write", _SEND),
    ),
    "group": _table(
        ("info show get members", "`horolog group describe GROUP` shows a group"),
        ("lag", "`horolog lag GROUP` shows how far a group is behind"),
    ),
    "cluster": _table(("info describe health metadata list ls", _BROKER)),
    "user": _table(("create new", "`horolog user add NAME` adds a user")),
    "acl": _table(("create new", "`horolog acl add --help` shows how a rule is added")),
}
"""Hints by the group of commands in which a word was looked for."""

_FROM: Final = "write --from TIME, such as --from @-1h"
_UNTIL: Final = "write --until TIME, such as --until @-5m"
_SERVER: Final = "write --server HOST:PORT, or kafka://HOST:PORT for a Kafka cluster"
_POSITION: Final = "write --from earliest, --from latest, --from offset:N or --from TIME"
_PARTITION: Final = "write --partition N"
_NAME: Final = "write the topic without an option: `horolog {} TOPIC`"
_READER: Final = "write the name without an option: `horolog lag NAME`"
_SETTING: Final = "write --set NAME=VALUE"

_WINDOW: Final = _table(
    ("--since --after --start --begin --from-time --start-time", _FROM),
    ("--before --end --stop --to-time --end-time", _UNTIL),
)

_EVERY_COMMAND: Final = _table(
    ("--broker --brokers --bootstrap-server --bootstrap-servers --broker-list", _SERVER),
    ("--bootstrap --host --url -b", _SERVER),
    ("-J", "write --json"),
)

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "": _table(
        ("-L --list", _LIST),
        ("-C", _READ),
        ("-P", _SEND),
        ("-b", f"name a command first: {_BROKER}"),
        ("-Q", "`horolog offsets TOPIC --at TIME` finds the offset of a time"),
        ("-v -V", "`horolog --version` prints the version"),
    ),
    "consume": _WINDOW
    | _table(
        ("--tail", "write --last N for the last N messages, or --follow for new ones"),
        ("--limit --count --num --max-messages --head -c", "write -n N to end after N messages"),
        ("-o --offset --offsets", _POSITION),
        ("--from-beginning --all --beginning", "write --from earliest"),
        ("-t --topic --topics", _NAME.format("consume")),
        ("-p --partitions", _PARTITION),
        ("-e --exit", "leave it out: `horolog consume` ends at the log end, unless with --follow"),
        (
            "-g -G --group --consumer-group",
            "leave it out: `horolog consume` reads without a group. "
            "`horolog group describe GROUP` shows one",
        ),
        ("--output --template", "write --format TEMPLATE, or --json"),
        ("--filter --match --search", "write --grep TEXT, --key KEY or --header NAME=VALUE"),
        ("--speed-up --rate", "write --speed X"),
    ),
    "produce": _table(
        ("-t --topic", _NAME.format("produce")),
        ("-p --partitions", _PARTITION),
        ("--timestamp --time --ts", "write --at TIME"),
        ("-z --codec --compress --compression-codec", "write --compression gzip"),
        ("--key-delimiter --delimiter -D", "write --key-separator S"),
        ("--headers", "write --header NAME=VALUE"),
        ("-m --message --value", "write the value after the topic: `horolog produce TOPIC VALUE`"),
    ),
    "histogram": _WINDOW
    | _table(
        ("--interval --bucket --step --by-time", "write --every DURATION, such as --every 1h"),
        ("-t --topic", _NAME.format("histogram")),
        ("-p", _PARTITION),
    ),
    "record": _WINDOW | _table(("-t --topic", _NAME.format("record")), ("-p", _PARTITION)),
    "export": _WINDOW | _table(("-t --topic", _NAME.format("export")), ("-p", _PARTITION)),
    "offsets": _table(
        ("--time --timestamp --from --since -o --offset", "write --at TIME, earliest or latest"),
        ("-t --topic", _NAME.format("offsets")),
        ("-p", _PARTITION),
    ),
    "lag": _table(
        (
            "-g --group --consumer-group --name",
            "write the name without an option: `horolog lag NAME`",
        ),
        ("--describe --all-groups --all", "leave it out: `horolog lag` shows all names"),
    ),
    "topic create": _table(
        ("-p", "write --partitions N"),
        ("-c --config --topic-config", _SETTING),
        ("-r --replicas", "write --replication-factor N, for a Kafka cluster"),
        ("-t --topic", "write the name without an option: `horolog topic create NAME`"),
    ),
    "topic alter": _table(("-c --config --add-config", _SETTING)),
    "topic describe": _table(
        ("-t --topic", "write the name without an option: `horolog topic describe NAME`")
    ),
    "group describe": _table(
        ("-g --group", "write the name without an option: `horolog group describe GROUP`")
    ),
    "top": _table(("--interval", "write --every DURATION, such as --every 5s")),
}
"""Hints by the command to which an option was given."""


def command_hint(path: str, word: str) -> str | None:
    """Return what to write instead of `word`, which is no command of the group `path` (such as
    `topic`; empty for the program)."""
    return _COMMANDS.get(path, {}).get(word.lower())


def option_hint(path: str, option: str, options: Iterable[Any]) -> str | None:
    """Return what to write instead of an option that the command `path` does not have. `options`
    are those that it has."""
    hint = _OPTIONS.get(path, {}).get(option)
    if hint is not None or not any("--server" in one.opts for one in options):
        return hint
    return _EVERY_COMMAND.get(option)


def all_hints() -> list[tuple[str, str]]:
    """Return each hint, with the command whose options it names outside of a command line."""
    found = {("", hint) for table in _COMMANDS.values() for hint in table.values()}
    found |= {(path, hint) for path, table in _OPTIONS.items() for hint in table.values()}
    found |= {("topic list", hint) for hint in _EVERY_COMMAND.values()}
    return sorted(found)
