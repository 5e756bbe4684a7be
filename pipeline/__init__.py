"""Horolog in Spark: a data source for PySpark, batch and streaming, and jobs over it.

`session()` starts a local Spark with the format `horolog`. `register(spark)` adds the format to
your own session, and `publish_progress(spark)` lets `horolog lag` show its streams. Needs the
extra `spark` (docs/pipeline.md); modules are imported when they are first used.

All errors are `horolog.HorologError`s: `OptionError`, `DataLoss` and `NoJava` here, and those of
the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .java import NoJava
    from .option_values import OptionError
    from .planning import DataLoss
    from .progress_listener import publish_progress
    from .spark_session import register, session

__all__ = ["DataLoss", "NoJava", "OptionError", "publish_progress", "register", "session"]

_HOMES = {
    "DataLoss": ".planning",
    "NoJava": ".java",
    "OptionError": ".option_values",
    "publish_progress": ".progress_listener",
    "register": ".spark_session",
    "session": ".spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
