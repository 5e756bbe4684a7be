"""Producer ids: each is given out once, whatever happens."""

from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.files import SystemFiles
from horolog.storage.producers.producer_ids import (
    BLOCK,
    MAX_PRODUCER_ID,
    PRODUCER_IDS_FILE,
    ProducerIds,
)
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import RecordedEvents


class Ids:
    """The ids of one directory over several starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FaultyFiles(SystemFiles())
        self.events = RecordedEvents()
        self.random = Random(5)
        self.start()

    def start(self) -> None:
        """As after a kill: nothing is written at a stop."""
        self.ids = ProducerIds(self.files, self.path, self.events, self.random)

    def take(self, count: int) -> list[int]:
        return [self.ids.next() for _ in range(count)]


@pytest.fixture
def ids(tmp_path: Path) -> Ids:
    return Ids(tmp_path)


def test_ids_are_never_given_twice(ids: Ids) -> None:
    taken = ids.take(2 * BLOCK + 1)
    for count in (1, BLOCK, 3):
        ids.start()
        taken += ids.take(count)
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)


def test_they_are_on_the_disk_before_they_are_used(ids: Ids) -> None:
    (first,) = ids.take(1)
    assert int((ids.path / PRODUCER_IDS_FILE).read_text().split()[1]) == first + BLOCK


def test_they_are_no_ids_that_another_broker_counted_up_to(ids: Ids) -> None:
    """Adopted logs remember producers 0, 1, 2, ..."""
    assert 2**40 <= ids.take(1)[0] <= MAX_PRODUCER_ID
    assert MAX_PRODUCER_ID >> 62 == 0


@pytest.mark.parametrize("content", ["", "0\n", "1\n5000\n", "0\n-5\n", "0\nx\n", f"0\n{2**63}\n"])
def test_a_file_that_cannot_be_believed_gives_no_id_again(ids: Ids, content: str) -> None:
    (before,) = ids.take(1)
    (ids.path / PRODUCER_IDS_FILE).write_text(content)
    ids.start()
    assert abs(ids.take(1)[0] - before) > BLOCK
    assert len(ids.events.named("producer_ids_broken")) == 1


def test_the_last_id(ids: Ids) -> None:
    (ids.path / PRODUCER_IDS_FILE).write_text(f"0\n{MAX_PRODUCER_ID + 1 - BLOCK}\n")
    assert ids.take(BLOCK)[-1] == MAX_PRODUCER_ID
    with pytest.raises(StorageError, match="all producer ids"):
        ids.take(1)


def test_of_a_directory(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    first = data.open().producer_ids.next()
    assert data.restart().producer_ids.next() == first + BLOCK
    assert not data.events.named("stray_file")
    data.close()
