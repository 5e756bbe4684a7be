"""What was read of index files that are not kept in memory: at most so many bytes, by last use."""

from collections import OrderedDict
from typing import Final

DEFAULT_BYTES: Final = 32 << 20

Key = tuple[str, int]
"""The name of a file, and what of it: a length, or whatever else tells its content."""


class IndexCache:
    """Bytes by key; those used last stay."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[Key, bytes] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Key) -> bytes | None:
        data = self._held.get(key)
        if data is not None:
            self._held.move_to_end(key)
        return data

    def put(self, key: Key, data: bytes) -> None:
        """Keep `data`, unless it is more than a quarter of all that is kept."""
        self.drop(key)
        if len(data) > self._limit_bytes // 4:
            return
        self._held[key] = data
        self.size_bytes += len(data)
        while self.size_bytes > self._limit_bytes:
            _, dropped = self._held.popitem(last=False)
            self.size_bytes -= len(dropped)

    def drop(self, key: Key) -> None:
        data = self._held.pop(key, None)
        if data is not None:
            self.size_bytes -= len(data)
