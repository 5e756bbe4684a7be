"""The files of the page: read once, when they are first asked for."""

from hashlib import sha256
from pathlib import Path
from typing import Final

from ...values import value_class

FOLDER: Final = Path(__file__).resolve().parents[1] / "static"

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@value_class
class StaticFile:
    """One file as it is sent."""

    content_type: str
    content: bytes
    etag: str
    """Without quotes."""


def read_files() -> dict[str, StaticFile]:
    """All of them by name. Raises `OSError`."""
    found = {}
    for path in FOLDER.iterdir():
        if path.suffix in TYPES:
            content = path.read_bytes()
            etag = sha256(content).hexdigest()[:16]
            found[path.name] = StaticFile(TYPES[path.suffix], content, etag)
    return found
