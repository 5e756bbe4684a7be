"""This package as one file, for workers that do not have it: `spark-submit --py-files`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

_ROOT: Final = Path(__file__).parents[2]
_LEFT_OUT: Final = frozenset(("bench", "pyspark_horolog", "testing"))
"""Parts that no task needs."""


def write_package(target: Path) -> None:
    """Write the sources of this package as a zip file.

    Python imports from it, but what is compiled is not in it: a job that reads small messages then
    takes two to three times as long as where the package is installed. What the package itself
    needs must be installed. Raises OSError.
    """
    with ZipFile(target, "w", ZIP_DEFLATED) as file:
        for source in _sources(_ROOT):
            file.write(source, Path("horolog", source.relative_to(_ROOT)))


def _sources(folder: Path) -> Iterator[Path]:
    """The modules of a package and of those below it, which are folders with an `__init__.py`."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py" and path.name != "setup.py":
            yield path
        elif (path / "__init__.py").exists() and path.name not in _LEFT_OUT:
            yield from _sources(path)
