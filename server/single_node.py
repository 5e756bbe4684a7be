"""A single-node cluster: every write is committed as soon as it is local."""

from collections.abc import Callable, Mapping, Sequence

from ..protocol.errors import CodedError
from ..storage.log.log import Log


class SingleNode:
    """The `Leadership` of a broker without others: it always leads, and is always in sync."""

    alone = True

    def check_topics(self) -> None:
        pass

    def check_coordinates(self) -> None:
        pass

    def check_positions(self) -> None:
        pass

    def begin_append(self) -> None:
        pass

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        settled(None)

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        return {}
