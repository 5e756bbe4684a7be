"""Writes `docs/cli.md` from the commands: `python -m horolog.cli.reference`."""

import sys
from collections.abc import Iterator
from typing import Any, Final

import typer

from .app import TIME_ZONE, whole_program
from .security.options import BY_PARAMETER, OPTIONS, is_security

TIMES: Final = (
    ("2016-11-14T17:24:32.509Z", "RFC 3339 with a zone, in UTC"),
    (
        "2016-11-14 18:24:32.509+01:00",
        "the same moment an hour further east; a space is as good as T",
    ),
    ("2016-11-14T18:24:32.509+0100", "the same, the offset without its colon"),
    ("now", "now"),
    ("@-1h", "an hour ago; units are `w d h m s ms`, larger ones first: `@-1d12h`, `@-90m`"),
    ("1479144272509", "milliseconds since 1970: 0, or 10^11 (1973) to 10^14 (5138)"),
)
"""Every way to write a time without a time zone of the command."""

LOCAL_TIMES: Final = (
    ("14:05", "that time today; seconds may follow"),
    ("today", "the first moment of today"),
    ("today 14:00", "that time today"),
    ("yesterday 14:00", "that time yesterday"),
    ("2016-11-14", "the first moment of that day"),
    ("2016-11-14 14:05", "that time of that day"),
)
"""Ways to write a time in the time zone of `--tz` or `HOROLOG_TZ`."""

REFUSED: Final = (
    ("2016-11-14", "no zone, so it could be any of a day's worth of times: `--tz` names one"),
    ("14:05", "no zone"),
    ("2016-11-14T17:24:32", "no zone"),
    ("2016-11-14T17:24Z", "no seconds"),
    ("-1h", "a length of time; `@-1h` is a time"),
    ("1479144272", "looks like seconds; `--any-unit`, where there is one, takes it as it is"),
    ("1479144272509000", "looks like microseconds; the same"),
)
"""Texts that look like times and are refused, because their meaning would be a guess."""

RANGES: Final = (
    ("@-2h:-1h", "from two hours ago to one hour ago: both sides count back from now"),
    ("@-2h:30m", "from two hours ago on, half an hour long: `30m` counts from the first side"),
    ("@2016-11-14T14:00:00Z:1h", "the hour from 14:00 on"),
    ("@2016-11-14T14:00:00Z:2016-11-14T15:00:00Z", "the same"),
    ("@-1h:", "the last hour, to the end"),
    ("@:-1h", "from the beginning to an hour ago"),
)
"""Ways to write a range, for `--from` of `consume` and `histogram`."""

_INTRODUCTION: Final = """\
# The command line

Generated from `cli/` by `make docs`. `horolog COMMAND --help` says the same of one command;
`horolog --install-completion` makes the shell complete commands, options, topics, names, settings
and their values.

## Times

A time is written in one of these ways, wherever a command takes one:

"""

_ZONES: Final = """
With a time zone, `--tz Europe/Berlin` or `HOROLOG_TZ=Europe/Berlin` in the environment, dates and
times of day are read by the clocks of that place. Without one they are refused. A zone is a name of
the IANA database, `UTC`, or an offset such as `+01:00`; a text with a zone of its own keeps it:

```
horolog consume clicks --tz Europe/Berlin --from 'yesterday 14:00' --until 'yesterday 15:00'
```

"""

_CLOCK_CHANGES: Final = """
A time of day that a change of the clocks leaves out, or repeats, is refused; write it with its
offset. A day without 00:00 begins with its first moment. `@-1d` is 24 hours ago, whatever the
clocks did.

These are refused, with a hint, because their meaning would be a guess:

"""

_POSITIONS: Final = """
The number `timestamp_ms` in a line of `produce --json` is refused likewise, and the lines after it
are not sent: a message of 1970 would be past the retention of most topics.

Wherever a position is taken, it may also be `earliest` (the first message stored) or `latest` (the
next one to be written). `consume --from` and `--until` also take `offset:N`, and `offsets --at`
`largest`. In `offsets --at`, and in `consume` beside `offset:N` or with `--offsets-between`, a
time stands for an offset: that of the first message, in offset order, whose time is that or later.
Otherwise the times of `consume`, and those of `histogram`, are the ends of a window: it has every
message of its times and no other, however they are out of order
([concepts](concepts.md#times-are-not-in-order)).

## Ranges

`consume --from @A:B` and `histogram --from @A:B` set both ends. A and B are times without `@`. The
end is exclusive, like `--until`:

"""

_RULES: Final = """
The text is split at the one colon that has a time on both sides; where there is none, or more than
one, it is refused. A second end in `--until` is refused too.

## Units

Settings take lengths of time and sizes with a unit: `retention.ms=7d`, `segment.bytes=1GiB`. Units
of time are `w d h m s ms`, larger ones first (`1d12h`). `KiB`, `MiB`, `GiB` and `TiB` are powers of
1024, `KB`, `MB`, `GB` and `TB` powers of 1000; `10M` is refused, because it could be either. Quotas
take `10MB/s`. `horolog topic describe` prints settings in this way, and with `--json` as numbers.

## Short names

In every group of commands `ls` is `list`, and `rm` is `delete` or `remove`: `horolog topic ls`.

## Exit codes

- 0: done.
- 1: refused or failed, with the reason on standard error: what the broker refuses, a broker that
  is not there, a FILE or DIR that is missing. `dump`, `verify`, `repair` and `doctor` end so when
  they find something wrong, too, `acl test` when the answer is no, and `produce` when its output is
  closed.
- 2: wrong usage, such as an unknown option, a time or an address that is none, a number out of its
  range, a setting that is not allowed (refused here or there), a file that is missing and that an
  option, a variable, a profile or a setting names.
- 130: ended by Ctrl-C. `produce` first sends the lines that it has read, and prints their results.
  `consume --follow`, `top`, `serve` and `demo` end with 0, because Ctrl-C is their usual end.
- SIGTERM ends `serve` and `demo` cleanly with 0, and every other command at once (143 in a shell).

If the reader of standard output has ended (`| head`), or standard output is closed, commands other
than `produce` end with 0.

Results are on standard output, everything else on standard error. With `--json` each result is an
object on a line of its own: bytes are a string where they are UTF-8, else `{"base64": "..."}`; what
is unknown is `null`; times are milliseconds since 1970. An error is then an object on one line of
standard error, `{"error", "message", "cure"}`: its name, what was wrong, and what to do.

Names, keys and values come from other programs. Invisible characters in them (control characters
of a terminal, marks that change the direction of writing, line ends) are printed as escapes, such
as `\\x1b` or `\\u202e`. That is so on a terminal and in a pipe, on both outputs, and in the
broker's log on a console. JSON has them as `\\u001b`. Programs should read `--json`:
`consume --json` into `produce --json` keeps every byte of keys, values and headers.

## Options of many commands

"""

_SECURITY: Final = """
Every command with `--server` has these options too. If a command uses such a name for something
else, the option begins with `--login-`: in `user add`, `--password-file` is for the new user, and
`--login-password-file` for the user who logs in. An option takes precedence over its environment
variable, and the variable over the [profile](security/clients.md#profiles):

"""

_PIPELINE: Final = """
## Jobs

[The pipeline](pipeline.md) describes their options, with examples.

"""

_COMMON: Final = ("server", "as_json", "any_unit", TIME_ZONE)
"""Parameters of many commands, which the page explains once."""


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _INTRODUCTION.splitlines()
    yield from _rows("Time", "Means", TIMES)
    yield from _ZONES.splitlines()
    yield from _rows("Time with a time zone", "Means", LOCAL_TIMES)
    yield from _CLOCK_CHANGES.splitlines()
    yield from _rows("Not a time", "Why", REFUSED)
    yield from _POSITIONS.splitlines()
    yield from _rows("Range", "Means", RANGES)
    yield from _RULES.splitlines()
    root = whole_program()
    commands = list(_commands(root, typer.Context(root, info_name="horolog")))
    common = {param.name: param for context in commands for param in _params(context)}
    yield from _rows("Option", "Means", (_record(common[name], commands[0]) for name in _COMMON))
    yield from _SECURITY.splitlines()
    security = (_record(common[option.parameter], commands[0]) for option in OPTIONS)
    yield from _rows("Option", "Means", security)
    jobs = [context for context in commands if context.parent.info_name == "pipeline"]
    yield from ("", "## Commands")
    for context in commands:
        if context not in jobs:
            yield from _command(context)
    yield from _PIPELINE.splitlines()
    yield from _rows("Command", "Does", ((job.command_path, _summary(job)) for job in jobs))


def _commands(command: Any, context: Any) -> Iterator[Any]:
    """Yield a context for each command; the commands of a group one after the other."""
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        inner_context = typer.Context(inner, info_name=name, parent=context)
        if hasattr(inner, "list_commands"):
            yield from _commands(inner, inner_context)
        else:
            yield inner_context


def _params(context: Any) -> list[Any]:
    return [param for param in context.command.get_params(context) if param.name != "help"]


def _command(context: Any) -> Iterator[str]:
    command = context.command
    arguments = [
        param.make_metavar(context, usage=True).strip("{}")
        for param in _params(context)
        if param.param_type_name == "argument"
    ]
    yield from ("", f"### `{' '.join([context.command_path, *arguments])}`", "")
    yield from (command.help or "").splitlines()
    if command.epilog:
        yield from ("", command.epilog)
    own = [param for param in _params(context) if not _is_common(param)]
    if own:
        yield ""
        records = (_record(param, context) for param in own)
        yield from _rows("Argument, option", "Means", records)
    flags = [param.opts[0] for param in _params(context) if param.name in _COMMON]
    if flags:
        yield from ("", f"And {', '.join(f'`{flag}`' for flag in flags)}.")


def _is_common(param: Any) -> bool:
    """Whether the page explains a parameter once: it is in `_COMMON`, or a security option under
    its usual flag."""
    if is_security(param):
        return bool(param.opts[0] == BY_PARAMETER[param.name].flag)
    return param.name in _COMMON


def _summary(context: Any) -> str:
    return str(context.command.help).splitlines()[0]


def _record(param: Any, context: Any) -> tuple[str, str]:
    written, meaning = param.get_help_record(context)
    return written, meaning


def _rows(first: str, second: str, rows: Any) -> Iterator[str]:
    yield from (f"| {first} | {second} |", "|---|---|")
    for written, meaning in rows:
        yield f"| `{_in_a_cell(written)}` | {_in_a_cell(meaning)} |"


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
