"""Registers the format `horolog` in Spark by itself.

Spark imports every top-level package named `pyspark_*` and registers its `DefaultSource`. So every
Spark session imports this package where Horolog is installed, and an error here would keep Spark
from finding the data sources of all packages.
"""

try:
    from horolog.pipeline.source import HorologDataSource as DefaultSource
except ImportError:  # a Spark or an Arrow that is too old
    __all__ = []
else:
    __all__ = ["DefaultSource"]
