"""Spark imports every top-level package named `pyspark_*` and registers its `DefaultSource`.

So this is imported in every Spark session of an environment that Horolog is installed in, and an
error here would keep Spark from finding anybody's.
"""

try:
    from horolog.pipeline.source import HorologDataSource as DefaultSource
except ImportError:  # a Spark or an Arrow that is too old
    __all__ = []
else:
    __all__ = ["DefaultSource"]
