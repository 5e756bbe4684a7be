"""`horolog repair`: put damaged stored files right, without a broker."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..clock import SystemClock
from ..storage.check.repair import Repair, RepairPlan
from ..storage.check.repair_plan import RepairStep
from ..storage.directory.known_files import KNOWN_FILES
from ..storage.events import ignore_events
from ..storage.files import DEFAULT_MODE
from ..storage.names import parse_segment_file
from .errors import CommandFailed, WrongUsage
from .options import Json
from .output import emit, json_line, shown_place
from .progress import CountedFiles, log_bytes, progress


def repair(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A data directory, or the folder of one partition."),
    ],
    as_json: Json = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Put damaged stored files right.

    Shows what is wrong and what it would do, and asks. Good messages stay, with their offsets;
    everything that is taken away is kept beside it as .broken. The broker has to be stopped. Exit
    code 1 when something cannot be repaired.
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
    """The mode of what is made in `directory`, and for root its owner: as of what is there, so
    that the broker keeps its access and no other account gets any."""
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
    if not typer.confirm("Do this?", err=True):
        raise CommandFailed("nothing was changed")
