"""The connections that reads in this process leave to the next."""

import os

from horolog.pipeline.fetch import _IDLE


def close_idle() -> None:
    """Close them."""
    for kind in [kind for kind in _IDLE if kind[0] == os.getpid()]:
        for reader in _IDLE.pop(kind):
            reader.close()
