"""Modules compiled before the processes of a run start: those of the tests with their assertions
rewritten, and those of the product.

Where Python may not write (PYTHONDONTWRITEBYTECODE) or has not yet, each process of `pytest -n`
would rewrite every test module for itself, twenty seconds of a processor, and each broker that a
test starts would compile the product, half a second. They read what stands here.
"""

import compileall
import multiprocessing
from pathlib import Path
from typing import Final

import pytest
from _pytest.assertion import rewrite

_TESTS: Final = Path(__file__).parent
_ROOT: Final = _TESTS.parent
_FOLDERS: Final = (_TESTS, _ROOT / "testing")

_SILENT: Final = 2
"""Where nothing can be written, tests run as well, and slower."""

_config: pytest.Config


def pytest_configure(config: pytest.Config) -> None:
    """Compile the product; where there will be several processes, write what pytest would write
    for each test module."""
    if hasattr(config, "workerinput"):
        return
    _compile_product()
    if not config.getoption("numprocesses", None):
        return
    paths = [path for folder in _FOLDERS for path in folder.rglob("*.py")]
    # The longest first: a module of 600 lines takes a quarter of a second.
    paths.sort(key=lambda path: path.stat().st_size, reverse=True)
    with multiprocessing.get_context("fork").Pool(initializer=_begin, initargs=(config,)) as pool:
        pool.map(_write, paths, chunksize=4)


def _compile_product() -> None:
    """What is compiled already is not compiled again; to look for it takes a twentieth of a
    second."""
    for path in _ROOT.iterdir():
        if path.suffix == ".py":
            compileall.compile_file(path, quiet=_SILENT)
        elif (path / "__init__.py").exists() and path != _TESTS:
            compileall.compile_dir(path, quiet=_SILENT)


def _begin(config: pytest.Config) -> None:
    global _config
    _config = config


def _write(path: Path) -> None:
    folder = rewrite.get_cache_dir(path)
    cached = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, cached) is None and rewrite.try_makedirs(folder):
        source_hash, code = rewrite._rewrite_test(path, _config)
        rewrite._write_pyc(_config.stash[rewrite.assertstate_key], code, source_hash, cached)
