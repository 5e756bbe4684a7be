"""What the logs of one broker share and are handed: nothing in storage is global."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from random import Random
from typing import Protocol

from ..clock import Clock
from ..values import value_class
from .disk_room import DiskRoom
from .events import Observer
from .files import Files
from .index.index_cache import IndexCache
from .open_files import OpenFiles
from .producers.producer_budget import ProducerBudget


class Deletions(Protocol):
    """Takes files that are already renamed to `.deleted`, to be removed later."""

    def add(self, paths: Sequence[Path], delay_ms: int) -> None: ...


@value_class
class Seams:
    """Clock, file system, event sink, random numbers and what is shared between logs."""

    clock: Clock
    files: Files
    observe: Observer
    deletions: Deletions
    open_files: OpenFiles
    random: Random
    producer_room: ProducerBudget
    disk_room: DiskRoom = field(default_factory=DiskRoom)
    index_cache: IndexCache = field(default_factory=IndexCache)
