"""What a batch read is going to read, looked up when it is loaded.

Spark makes a data source for each `load()` and plans its read at the first action, which may be
hours later. Spark does not say whether it loads a batch or a stream, or begins a write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import bounds, segments
from .option_values import OptionError
from .options import ReadOptions, read_options
from .planning import PlannedSpan
from .questions import questions

Pieces = tuple[PlannedSpan | segments.Packed, ...]
"""One for each task."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was found at `load()`."""

    pieces: Pieces | None
    why_none: str = ""
    """What kept them from being looked up; empty when these are no options of a batch."""


def load(given: Mapping[str, str], now_ms: int) -> Loaded:
    """Look up what a batch with these options would read. Raises nothing: it may be none, and
    what is wrong with one is raised when it is planned."""
    try:
        options = read_options(given, streaming=False, now_ms=now_ms)
    except OptionError:
        return Loaded(None)
    # `load` does not wait for a broker that is away: reading does.
    at_once = replace(options, broker=replace(options.broker, retry_budget_ms=0))
    try:
        return Loaded(plan(at_once))
    except Exception as error:
        return Loaded(None, str(error) or type(error).__name__)


def plan(options: ReadOptions) -> Pieces:
    """What a batch reads that is planned now. Raises DataLoss, OptionError, HorologError."""
    if options.segments_path is not None:
        return tuple(segments.plan(options.segments_path, options.window, options.min_partitions))
    return tuple(bounds.plan(questions(options.broker), options))
