"""Spark's writers, changed in this process so that a write to a topic appends and does no more.

A source written in Python cannot do that: Spark refuses its own default mode before it asks the
source, and tells it nothing of a table that the write makes.
"""

from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any, Final, TypeAlias

from .option_values import OptionError

_DEFAULTS: Final = ("default", "error", "errorifexists")
"""Spark's default mode, by all its names in lower case."""

_MARK: Final = "_horolog_formats"
_FORMAT: Final = "_horolog_format"

_NO_TABLE: Final = (
    "{} makes a table whose options Spark does not keep, so that no query can read it: use {}, "
    "which appends to the topic"
)

Method: TypeAlias = Callable[..., Any]
Choice: TypeAlias = Callable[[Any], tuple[str, str]]


def restrict(ours: str, *, connect: bool) -> None:
    """From now on a write to the format `ours` in this process appends, unless it asks for another
    mode than Spark's default, and makes no table. Other formats are written as they were.

    `connect` changes the writers of Spark Connect, not the others.
    """
    place = "pyspark.sql.connect" if connect else "pyspark.sql"
    batch = import_module(f"{place}.readwriter")
    stream = import_module(f"{place}.streaming.readwriter").DataStreamWriter
    chosen = _connect_choice if connect else _classic_choice
    _replace(batch.DataFrameWriter, "save", ours, partial(_appending, chosen, ours))
    _replace(batch.DataFrameWriter, "saveAsTable", ours, partial(_without_table, chosen, ours))
    _replace(batch.DataFrameWriterV2, "using", ours, partial(_without_new_table, ours))
    _replace(stream, "format", ours, _remembered)
    _replace(stream, "toTable", ours, partial(_without_stream_table, ours))


def _replace(kind: type, name: str, ours: str, made: Callable[[Method], Method]) -> None:
    """Replace a method of a class, once for each format."""
    method = getattr(kind, name)
    formats = getattr(method, _MARK, ())
    if ours not in formats:
        replaced = wraps(method)(made(method))
        setattr(replaced, _MARK, (*formats, ours))
        setattr(kind, name, replaced)


def _classic_choice(writer: Any) -> tuple[str, str]:
    """The format and the mode that were chosen."""
    return writer._jwrite.source(), writer._jwrite.curmode().name()


def _connect_choice(writer: Any) -> tuple[str, str]:
    return writer._write.source or "", writer._write.mode or "default"


def _appending(chosen: Choice, ours: str, save: Method) -> Method:
    def saved(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,
    ) -> None:
        self.mode(mode)
        if format is not None:
            self.format(format)
        source, now = chosen(self)
        if source.lower() == ours and now.lower() in _DEFAULTS:
            self.mode("append")
        save(self, path, None, None, partitionBy, **options)

    return saved


def _without_table(chosen: Choice, ours: str, save_as_table: Method) -> Method:
    def saved(self: Any, name: str, format: str | None = None, *rest: Any, **more: Any) -> None:
        if (format or chosen(self)[0]).lower() == ours:
            raise OptionError(_NO_TABLE.format("saveAsTable", "save()"))
        save_as_table(self, name, format, *rest, **more)

    return saved


def _without_new_table(ours: str, using: Method) -> Method:
    def used(self: Any, provider: str) -> Any:
        if provider.lower() == ours:
            raise OptionError(_NO_TABLE.format("writeTo", f'df.write.format("{ours}").save()'))
        return using(self, provider)

    return used


def _remembered(choose: Method) -> Method:
    """Spark's own object does not tell which format a stream is written in."""

    def chosen(self: Any, source: str) -> Any:
        setattr(self, _FORMAT, source)
        return choose(self, source)

    return chosen


def _without_stream_table(ours: str, to_table: Method) -> Method:
    def started(
        self: Any,
        tableName: str,  # noqa: N803
        format: str | None = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        if str(format or getattr(self, _FORMAT, "")).lower() == ours:
            raise OptionError(_NO_TABLE.format("toTable", "start()"))
        return to_table(self, tableName, format, *rest, **more)

    return started
