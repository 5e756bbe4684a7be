"""How to install what a part of Horolog needs. It is on no package index."""

from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).resolve().parents[1]


def pip_install(*extras: str, source: Path = _SOURCE) -> str:
    """The command that installs Horolog from where it came from, with these extras."""
    chosen = ",".join(extras)
    if (source / "pyproject.toml").exists():
        return f'pip install "{source}[{chosen}]"'
    return f'pip install "WHEEL[{chosen}]", WHEEL being the file that Horolog was installed from'
