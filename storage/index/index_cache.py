"""What was read of index files that are not kept in memory: at most so many bytes, by last use."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

DEFAULT_BYTES: Final = 32 << 20


class IndexCache:
    """Bytes by keys, which tell of what content they are; those used last stay."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[Hashable, bytes] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> bytes | None:
        data = self._held.get(key)
        if data is not None:
            self._held.move_to_end(key)
        return data

    def put(self, key: Hashable, data: bytes) -> None:
        """Keep `data`, unless it is more than a quarter of all that is kept."""
        self.drop(key)
        if len(data) > self._limit_bytes // 4:
            return
        self._held[key] = data
        self.size_bytes += len(data)
        while self.size_bytes > self._limit_bytes:
            _, dropped = self._held.popitem(last=False)
            self.size_bytes -= len(dropped)

    def drop(self, key: Hashable) -> None:
        data = self._held.pop(key, None)
        if data is not None:
            self.size_bytes -= len(data)
