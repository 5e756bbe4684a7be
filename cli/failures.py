"""Reports why a command failed, and what to do about it, in the words of the command line: as one
line, or with --json as one JSON object.
"""

import errno
import json
import re
from collections.abc import Sequence
from typing import Final

from ..client.errors import ConnectionFailed, Remedy, SecurityError, TlsFailed
from ..protocol.errors import (
    ClusterAuthorizationFailed,
    CodedError,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    HorologError,
    InvalidConfig,
    InvalidPartitions,
    NotEnoughReplicas,
    OffsetOutOfRange,
    SaslAuthenticationFailed,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ..times import TimeError
from .errors import CommandFailed, OutputFailed, WrongUsage, note, print_error

_REMEDIES: Final = {
    Remedy.CA: "Give the file of the CA's certificate: --ca FILE or HOROLOG_CA",
    Remedy.CERTIFICATE: "Give a certificate that is signed by its CA: --client-cert FILE and "
    "--client-key FILE",
    Remedy.PLAIN_ADDRESS: "If it is a plaintext port, write --server HOST:PORT without tls",
    Remedy.TLS_ADDRESS: "Write --server tls://HOST:PORT, or kafka+tls://HOST:PORT for a Kafka "
    "cluster",
}

_SETTINGS: Final = {"ca": "--ca", "certificate": "--client-cert", "key": "--client-key"}
_SETTING: Final = re.compile(rf"({'|'.join(_SETTINGS)}): ")
"""The setting of `Security` at the start of an error's text."""

_RIGHTS: Final = "`horolog acl test` shows the rule that decides, `horolog acl add` makes another"

_CURES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownTopicOrPartition, "`horolog topic list` shows what there is"),
    (TopicAlreadyExists, "`horolog topic describe` shows it, `horolog topic alter` changes it"),
    (TopicAuthorizationFailed, _RIGHTS),
    (GroupAuthorizationFailed, _RIGHTS),
    (ClusterAuthorizationFailed, _RIGHTS),
    (SaslAuthenticationFailed, "Name the user with --user and --password-file, or a --profile"),
    (NotEnoughReplicas, "`horolog cluster status` shows who is in sync"),
    (GroupIdNotFound, "`horolog group list` shows groups and named positions"),
    (
        OffsetOutOfRange,
        "`horolog offsets TOPIC --at earliest --at latest` shows which offsets there are",
    ),
    (
        InvalidPartitions,
        "Give another number; for a topic that exists, more than `horolog topic describe` shows",
    ),
)
"""What to do about an error of the broker, whose text does not say it."""

_FOLLOWS: Final = re.compile(r"follows the leader at (\S*[^\s.,;])")
"""Where the leader is, in the text of a follower that refuses a request."""

_ADVICE: Final = re.compile(
    r"[:;,.?] (?:or )?((?:write|give|set|leave|say|name|take|use|install|start|stop|trim|type|put|"
    r"run|connect|choose|it must be|it is from|it has to be|known are|did you mean|`horolog)\b.+)",
    re.IGNORECASE,
)
"""What to do, at the end of an error's text."""

_IN_THE_TEXT: Final = "the message says what to write"
_ASK_THE_DOCTOR: Final = "`horolog doctor` looks for what is wrong"
_START_ONE: Final = "Start a broker with `horolog serve`, or name another one with --server"


def report(error: Exception, arguments: Sequence[str]) -> None:
    """Print an error on standard error: as one line, or as an object if the command has --json."""
    message, cure = _parts(error)
    if is_json(arguments):
        print_failure(name_of(error), message, cure or _general_cure(error, arguments))
    else:
        cure = cure or _cure_of_text(error, arguments)
        note(f"{message}. {cure}" if cure else message)


def print_failure(name: str, message: str, cure: str) -> None:
    """Print an error as one JSON object on standard error."""
    print_error(json.dumps({"error": name, "message": message, "cure": cure}))


def is_json(arguments: Sequence[str]) -> bool:
    """Whether the results of a command are JSON objects. What stands after `--` is no option."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def name_of(error: Exception) -> str:
    """Return the name of an error: that of the protocol, else one of the kind of the failure."""
    if isinstance(error, CodedError):
        return error.name
    if isinstance(error, WrongUsage | TimeError):
        return "WRONG_USAGE"
    if isinstance(error, SecurityError):
        return "SECURITY"
    if isinstance(error, TlsFailed):
        return "TLS_FAILED"
    if isinstance(error, ConnectionFailed):
        return "CONNECTION_FAILED"
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, "OS_ERROR")
    return "FAILED"


def _parts(error: Exception) -> tuple[str, str]:
    """Return the text of an error, and what to do where the text does not say it."""
    text = " ".join(str(error).split())
    if isinstance(error, SecurityError | TlsFailed):
        reason = " ".join(error.reason.split())
        reason = _SETTING.sub(lambda found: f"{_SETTINGS[found[1]]}: ", reason, count=1)
        return reason, "" if error.remedy is None else _REMEDIES[error.remedy]
    if isinstance(error, CommandFailed) and error.cure:
        return text, error.cure
    if isinstance(error.__cause__, ConnectionRefusedError):
        return text, _START_ONE
    leader = _FOLLOWS.search(text)
    if leader is not None and isinstance(error, HorologError):
        return text, (
            f"Name the leader with --server {leader[1]}, or all brokers, separated by commas"
        )
    if isinstance(error, TopicAlreadyExists) and _ADVICE.search(text):
        return text, ""  # the name of a window: there is no stored topic to show or change
    return text, next((cure for kind, cure in _CURES if isinstance(error, kind)), "")


def _cure_of_text(error: Exception, arguments: Sequence[str]) -> str:
    """Return what to do about an error of a connection or a file, or one that may pass, if its text
    does not say it."""
    may_pass = isinstance(error, HorologError) and error.retriable
    if not (may_pass or isinstance(error, ConnectionFailed | OSError)):
        return ""
    return "" if _ADVICE.search(str(error)) else _general_cure(error, arguments)


def _general_cure(error: Exception, arguments: Sequence[str]) -> str:
    """Return what to do about an error whose text says it, or that has no cure of its own."""
    advice = _ADVICE.search(" ".join(str(error).split()))
    if advice is not None:
        return advice[1]
    if isinstance(error, WrongUsage | InvalidConfig):
        return f"{_IN_THE_TEXT}; `{_command(arguments)} --help` shows the options"
    if isinstance(error, ConnectionFailed):
        return _START_ONE
    if isinstance(error, HorologError) and error.retriable:
        return f"Try again; {_ASK_THE_DOCTOR}"
    if isinstance(error, OutputFailed):
        return "Make room, or write to another place"
    if isinstance(error, OSError):
        return "Check the path and its permissions"
    return f"`{_command(arguments)} --help` explains the command; {_ASK_THE_DOCTOR}"


def _command(arguments: Sequence[str]) -> str:
    """Return the name of the command that was run, such as `horolog topic list`."""
    names = []
    for word in arguments[:2]:
        if not re.fullmatch(r"[a-z]+", word):
            break
        names.append(word)
    return " ".join(["horolog", *names])
