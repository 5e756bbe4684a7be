"""A large write to a segment by another thread, before its bytes count as appended."""

from threading import Lock

from ..files import Buffer, File


class WriteAhead:
    """A write behind the end of a segment by another thread, before its bytes count as appended.

    `Segment.commit` turns the bytes into an append. Any other change to the end of the segment
    drops them.
    """

    __slots__ = ("_error", "_file", "_lock", "_written", "data", "position")

    def __init__(self, file: File, data: Buffer, position: int) -> None:
        """`file` is a handle used only here; `end` closes it."""
        self._file: File | None = file
        self._lock = Lock()
        self._error: Exception | None = None
        self._written = False
        self.data = data
        self.position = position

    def write(self) -> None:
        """Write the bytes, unless the write was ended before it began. Any thread may call this."""
        with self._lock:
            if self._file is not None:
                try:
                    self._file.pwrite(self.data, self.position)
                    self._written = True
                except (OSError, MemoryError) as error:
                    self._error = error

    def end(self) -> bool:
        """Wait for a write in progress and prevent a later one. Return whether the bytes are in the
        file. Raises the error of the write."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()
        if self._error is not None:
            raise self._error
        return self._written
