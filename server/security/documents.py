"""Files of JSON in the data directory that are replaced as a whole: users, rules, quotas."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ...protocol.errors import StorageError
from ...storage.files import Files, replace_file

FORMAT: Final = 1
FILE_MODE: Final = 0o600
"""Of the files that hold them: they are the broker's account's alone."""

T = TypeVar("T")


class Document:
    """One such file."""

    def __init__(self, files: Files, path: Path, remedy: str) -> None:
        """`remedy` is what to do about a broken one, beside putting back a copy."""
        self._files = files
        self._path = path
        self._remedy = remedy

    def read(self, parse: Callable[[Any], T]) -> T | None:
        """What `parse` makes of the content; `None` where there is no file. Raises `StorageError`
        for content that cannot be understood, and `OSError`."""
        if not self._files.exists(self._path):
            return None
        content = self._files.read_bytes(self._path)
        try:
            document = json.loads(content)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}, not {FORMAT}")
            return parse(document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"{self._path} is broken ({type(error).__name__}: {error}): bring it back from a "
                f"copy, or remove it and {self._remedy} anew"
            ) from None

    def write(self, **fields: object) -> None:
        """Replace the file, durably. Raises `OSError`; then nothing has changed."""
        document = {"format": FORMAT, **fields}
        replace_file(self._files, self._path, json.dumps(document, indent=1).encode() + b"\n")
