"""`horolog dump` and `horolog verify`: stored files, without a broker."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

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
from ..storage.check.verify import verify as verify_directory
from ..storage.names import parse_segment_file
from .errors import WrongUsage
from .options import Json
from .output import (
    emit,
    json_bytes,
    json_headers,
    json_line,
    json_time,
    shown_bytes,
    shown_headers,
    shown_place,
    shown_time,
)
from .progress import CountedFiles, log_bytes, progress
from .streams import is_terminal

_LINES_AT_ONCE: Final = 1000

_HEADINGS: Final = {
    "log": f"{'at byte':>10}  {'offset':>8}  {'time':24}  format   key  value",
    "index": f"{'at byte':>10}  {'offset':>8}  is found from",
    "timeindex": f"{'at byte':>10}  {'times later than':24}  are from offset",
    "timemap": f"{'at byte':>10}  {'from':>8}  {'to offset':>9}  {'log byte':>10}  {'bytes':>8}  "
    "messages of times",
    "appendtime": f"{'at byte':>10}  {'from offset':>11}  appended at",
}
"""Of what is printed for people, by the kind of file."""


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

    Needs no broker. Exit code 1 when part of the file makes no sense.
    """
    file.stat()  # Raises OSError where there is nothing, whatever it is called.
    files = CountedFiles()
    try:
        items = dump_file(files, file)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    wrong = False
    lines = [] if as_json else [_heading(file)]
    # Lines that run over the terminal show the progress themselves.
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

    Needs no broker, and only reads. Exit code 1 when something is wrong.
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
