"""`df.write` without a mode.

Spark's default is the mode `errorifexists`, which it does not hand on to a source of its newer
kind, as all sources in Python are: it refuses the write. Its Kafka source is of the older kind and
appends. There is no place for this in a data source, so the writer of PySpark is wrapped.
"""

from functools import wraps
from typing import Any, Final

from pyspark.sql import DataFrameWriter

_DEFAULT: Final = "ErrorIfExists"
_MARK: Final = "_horolog_appends"


def append_by_default(name: str) -> None:
    """From now on a write to the format `name` in this process appends, unless it asks for another
    mode than Spark's default. Other formats are written as they were."""
    save = DataFrameWriter.save
    if name in getattr(save, _MARK, ()):
        return

    @wraps(save)
    def saved(
        self: DataFrameWriter,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,
    ) -> None:
        self.mode(mode)
        if format is not None:
            self.format(format)
        writer = self._jwrite
        if writer.source().lower() == name and writer.curmode().name() == _DEFAULT:
            self.mode("append")
        save(self, path, None, None, partitionBy, **options)

    setattr(saved, _MARK, (*getattr(save, _MARK, ()), name))
    DataFrameWriter.save = saved  # type: ignore[method-assign]
