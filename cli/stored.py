"""`horolog dump`, `horolog verify` and `horolog repair`: work on stored files, without a broker."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ..clock import SystemClock
from ..storage.check.dump import (
    Dumped,
    DumpedAppendTime,
    DumpedMessage,
    DumpedOffsetEntry,
    DumpedTimeBlock,
    DumpedTimeEntry,
    DumpNote,
)
from ..storage.check.dump import dump as dump_file
from ..storage.check.findings import Finding
from ..storage.check.repair import Repair, RepairPlan
from ..storage.check.repair_plan import RepairStep
from ..storage.check.verify import verify as verify_directory
from ..storage.directory.known_files import KNOWN_FILES
from ..storage.events import ignore_events
from ..storage.files import DEFAULT_MODE
from ..storage.names import parse_segment_file
from .errors import CommandFailed, WrongUsage, is_terminal
from .options import Json
from .output import (
    CountedFiles,
    confirm,
    emit,
    json_bytes,
    json_headers,
    json_line,
    json_time,
    log_bytes,
    progress,
    shown_bytes,
    shown_headers,
    shown_place,
    shown_time,
)

_LINES_AT_ONCE: Final = 1000

_HEADINGS: Final = {
    "log": f"{'at byte':>10}  {'offset':>8}  {'time':24}  format   key  value",
    "index": f"{'at byte':>10}  {'offset':>8}  is found from",
    "timeindex": f"{'at byte':>10}  {'times later than':24}  are from offset",
    "timemap": f"{'at byte':>10}  {'from':>8}  {'to offset':>9}  {'log byte':>10}  {'bytes':>8}  "
    "messages of times",
    "appendtime": f"{'at byte':>10}  {'from offset':>11}  appended at",
}
"""Heading of the text output, by the kind of file."""


def dump(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A .log, .index, .timeindex, .timemap or .appendtime file."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print what is in a stored file.

    Needs no broker. Exit code 1 if a part of the file cannot be decoded.
    """
    file.stat()  # Raises OSError for a missing file, before its name is checked.
    files = CountedFiles()
    try:
        items = dump_file(files, file)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    wrong = False
    lines = [] if as_json else [_heading(file)]
    # On a terminal the printed lines show the progress.
    total = 0 if is_terminal(sys.stdout) or file.suffix != ".log" else file.stat().st_size
    with progress("reading", total, in_bytes=True) as files.advance:
        for item in items:
            wrong |= isinstance(item, DumpNote) and item.error
            wrong |= isinstance(item, DumpedMessage) and not item.crc_ok
            lines.append(json_line(_item_fields(item)) if as_json else _item_text(item))
            if len(lines) == _LINES_AT_ONCE:
                emit(lines)
                lines.clear()
        emit(lines)
    if wrong:
        raise typer.Exit(1)


def verify(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A data directory, or the folder of one partition."),
    ],
    as_json: Json = False,
) -> None:
    """Check stored files.

    Needs no broker, and changes nothing. Exit code 1 if something is wrong.
    """
    files = CountedFiles()
    try:
        findings = verify_directory(files, directory)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    wrong = 0
    with progress("checking", log_bytes([directory]), in_bytes=True) as files.advance:
        for finding in findings:
            wrong += finding.error
            emit([json_line(_finding_fields(finding)) if as_json else _finding_text(finding)])
    if not as_json:
        emit([f"{directory}: {f'{wrong} found to be wrong' if wrong else 'nothing is wrong'}"])
    if wrong:
        raise typer.Exit(1)


def _heading(file: Path) -> str:
    name = parse_segment_file(file)
    return _HEADINGS[name.kind if name is not None else file.suffix.removeprefix(".")]


def _item_fields(item: Dumped) -> dict[str, object]:
    match item:
        case DumpedMessage():
            return {
                "position": item.position,
                "offset": item.offset,
                "timestamp_ms": json_time(item.timestamp_ms),
                "timestamp_type": item.timestamp_type,
                "magic": item.magic,
                "codec": item.codec,
                "size_bytes": item.size_bytes,
                "crc_ok": item.crc_ok,
                "key": json_bytes(item.key),
                "value": json_bytes(item.value),
                **({"headers": json_headers(item.headers)} if item.headers else {}),
            }
        case DumpedOffsetEntry():
            return {
                "position": item.position,
                "offset": item.offset,
                "log_position": item.log_position,
            }
        case DumpedTimeEntry():
            return {
                "position": item.position,
                "timestamp_ms": item.timestamp_ms,
                "offset": item.offset,
            }
        case DumpedAppendTime():
            return {
                "position": item.position,
                "offset": item.offset,
                "append_time_ms": json_time(item.append_time_ms),
            }
        case DumpedTimeBlock():
            return {
                "position": item.position,
                "log_position": item.log_position,
                "size_bytes": item.size_bytes,
                "offset": item.offset,
                "next_offset": item.next_offset,
                "untimed": item.untimed,
                "spans": [
                    {"first_ms": first_ms, "last_ms": last_ms, "messages": messages}
                    for first_ms, last_ms, messages in item.spans
                ],
            }
        case DumpNote():
            return {"position": item.position, "remark": item.text, "error": item.error}


def _item_text(item: Dumped) -> str:
    where = f"{item.position:>10}"
    match item:
        case DumpedMessage():
            content = f"{shown_bytes(item.key)}  {shown_bytes(item.value)}"
            content += shown_headers(item.headers)
            kind = f"v{item.magic} {item.codec}{'' if item.crc_ok else ' BAD CRC'}"
            time = shown_time(item.timestamp_ms)
            return f"{where}  {item.offset:>8}  {time:24}  {kind}  {content}"
        case DumpedOffsetEntry():
            return f"{where}  {item.offset:>8}  byte {item.log_position}"
        case DumpedTimeEntry():
            return f"{where}  {shown_time(item.timestamp_ms):24}  {item.offset:>8}"
        case DumpedAppendTime():
            return f"{where}  {item.offset:>11}  {shown_time(item.append_time_ms)}"
        case DumpedTimeBlock():
            spans = [
                f"{messages} from {shown_time(first_ms)} to {shown_time(last_ms)}"
                for first_ms, last_ms, messages in item.spans
            ]
            spans += [f"{item.untimed} without a time"] if item.untimed else []
            place = f"{item.offset:>8}  {item.next_offset - 1:>9}  {item.log_position:>10}"
            return f"{where}  {place}  {item.size_bytes:>8}  {', '.join(spans)}"
        case DumpNote():
            return f"{where}  {'wrong' if item.error else 'note'}: {item.text}"


def _finding_fields(finding: Finding) -> dict[str, object]:
    return {
        "path": str(finding.path),
        "position": finding.position,
        "rule": finding.rule,
        "advice": finding.advice,
        "error": finding.error,
    }


def _finding_text(finding: Finding) -> str:
    where = shown_place(finding.path, finding.position)
    kind = "wrong" if finding.error else "note"
    return f"{kind}  {where}: {finding.rule}. To do: {finding.advice}."


def repair(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A data directory, or the folder of one partition."),
    ],
    as_json: Json = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking.")] = False,
) -> None:
    """Repair damaged stored files.

    Shows what is wrong and how it would be repaired, and asks before it changes anything. Good
    messages stay, with their offsets. Bytes that are removed are kept in a .broken file beside the
    original. Stop the broker first. Exit code 1 if something cannot be repaired.
    """
    mode, owner = _permissions(directory)
    files = CountedFiles(mode, owner=owner)
    try:
        repairing = Repair(files, directory, clock=SystemClock(), observe=ignore_events)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    try:
        with progress("looking", log_bytes([directory]), in_bytes=True) as files.advance:
            plan = repairing.plan()
        _show(plan, directory, as_json)
        if plan.possible:
            _ask(yes)
            with progress("repairing", log_bytes([directory]), in_bytes=True) as files.advance:
                repairing.carry_out(plan)
    finally:
        repairing.release()
    left = sum(not step.done for step in plan.steps)
    if not as_json and plan.possible:
        emit([f"{directory}: repaired; `horolog verify` looks at it once more"])
    if left:
        raise CommandFailed(f"{left} found to be wrong that cannot be repaired; see above")


def _permissions(directory: Path) -> tuple[int, tuple[int, int] | None]:
    """Return mode and, for root, owner of new files in `directory`: those of the files there, so
    that the broker keeps its access and no other account gets access."""
    status, mode = directory.stat(), DEFAULT_MODE
    for path in sorted(directory.iterdir()):
        if (path.name in KNOWN_FILES or parse_segment_file(path)) and path.is_file():
            status = path.stat()
            mode |= status.st_mode & 0o666
            break
    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    return mode, owner


def _show(plan: RepairPlan, directory: Path, as_json: bool) -> None:
    steps = list(plan.steps)
    if as_json:
        emit(json_line(_fields(step)) for step in steps)
        return
    for step in steps:
        where = shown_place(step.path, step.position)
        emit([f"{where}: {step.wrong}", f"    to do: {step.action}"])
    if not steps:
        emit([f"{directory}: nothing to repair"])


def _fields(step: RepairStep) -> dict[str, object]:
    return {
        "path": str(step.path),
        "position": step.position,
        "wrong": step.wrong,
        "action": step.action,
        "removed_bytes": step.removed_bytes,
        "possible": step.done,
    }


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage("nothing was changed: standard input is no terminal; --yes does not ask")
    confirm("Do this?", "nothing was changed")
