"""Test modules with their assertions rewritten, made before the processes of a run start.

Each process of `pytest -n` would rewrite every module for itself, twenty seconds of a processor,
where Python may not write (PYTHONDONTWRITEBYTECODE) or has not yet. They read what stands here.
"""

import multiprocessing
from pathlib import Path
from typing import Final

import pytest
from _pytest.assertion import rewrite

_FOLDERS: Final = (Path(__file__).parent, Path(__file__).parents[1] / "testing")

_config: pytest.Config


def pytest_configure(config: pytest.Config) -> None:
    """Where there will be several processes, write what pytest would write for each module."""
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    paths = [path for folder in _FOLDERS for path in folder.rglob("*.py")]
    # The longest first: a module of 600 lines takes a quarter of a second.
    paths.sort(key=lambda path: path.stat().st_size, reverse=True)
    with multiprocessing.get_context("fork").Pool(initializer=_begin, initargs=(config,)) as pool:
        pool.map(_write, paths, chunksize=4)


def _begin(config: pytest.Config) -> None:
    global _config
    _config = config


def _write(path: Path) -> None:
    folder = rewrite.get_cache_dir(path)
    cached = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, cached) is None and rewrite.try_makedirs(folder):
        source_hash, code = rewrite._rewrite_test(path, _config)
        rewrite._write_pyc(_config.stash[rewrite.assertstate_key], code, source_hash, cached)
