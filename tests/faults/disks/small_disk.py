"""A small disk that is filled up and emptied again."""

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = 4096
DISK_BYTES = 512 * 1024


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs. Files take room on it page by page."""

    path: Path

    @property
    def free_pages(self) -> int:
        """How many pages can be written still."""
        return os.statvfs(self.path).f_bavail

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self, free_pages: int) -> None:
        """Leave only so much room; more than there is does nothing."""
        with self._ballast.open("ab", buffering=0) as ballast:
            while self.free_pages > free_pages:
                ballast.write(bytes(PAGE_BYTES))
        assert self.free_pages <= free_pages

    def make_room(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()
