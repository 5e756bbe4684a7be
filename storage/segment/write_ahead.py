"""A large write to a segment by a thread, before its bytes count."""

from threading import Lock

from ..files import Buffer, File


class WriteAhead:
    """A write behind the end of a segment by another thread, before its bytes count.

    `Segment.commit` takes the bytes over. Whatever else changes the end of the segment drops them.
    """

    __slots__ = ("_error", "_file", "_lock", "_written", "data", "position")

    def __init__(self, file: File, data: Buffer, position: int) -> None:
        """`file` is a handle of its own, and is closed at the end."""
        self._file: File | None = file
        self._lock = Lock()
        self._error: Exception | None = None
        self._written = False
        self.data = data
        self.position = position

    def write(self) -> None:
        """Write the bytes, unless the write was ended before it began. May run in any thread."""
        with self._lock:
            if self._file is not None:
                try:
                    self._file.pwrite(self.data, self.position)
                    self._written = True
                except (OSError, MemoryError) as error:
                    self._error = error

    def end(self) -> bool:
        """Wait for a write that has begun, and allow no other; say whether the bytes are in
        the file. Raises what the write met."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()
        if self._error is not None:
            raise self._error
        return self._written
