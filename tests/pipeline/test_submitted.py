"""A program given to `spark-submit`, on workers that do not have this package installed."""

import os
import sys
import venv
from pathlib import Path

import pytest

from horolog.pipeline.java import NoJava
from horolog.pipeline.jobs.machine import spark_environment
from horolog.tests.pages.shell import Shell, blocks, comparable

from .conftest import missing
from .test_guide import PAGE, SUBMITTED

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]


def python_without_us(folder: Path) -> Path:
    """A Python that has what this package depends on, and not the package itself."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    # Of a folder that is named here, Python does not look at the .pth files.
    (packages / "installed.pth").write_text(f"{installed}\n")
    return folder / "bin" / "python"


def spark_of_its_own(folder: Path, installed: Path) -> Path:
    """Spark as it is installed, with a place of its own for what its workers write."""
    folder.mkdir()
    for part in installed.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_workers_get_the_package_with_the_program(tmp_path: Path) -> None:
    try:
        needed = spark_environment(os.environ)
    except NoJava as error:
        missing(str(error))
    python = python_without_us(tmp_path / "python")
    environment = {
        **needed,
        "SPARK_HOME": str(spark_of_its_own(tmp_path / "spark", Path(needed["SPARK_HOME"]))),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Three of them start, for little work.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    page = blocks(PAGE)
    (tmp_path / "cluster.py").write_text(page["cluster.py"])
    written = page[SUBMITTED]
    with Shell(tmp_path, environment, timeout_s=500) as shell:
        shell.run(page["start"])
        done = shell.run(written)
        assert comparable(done) == comparable(written), (tmp_path / "spark.log").read_text()[-4000:]
