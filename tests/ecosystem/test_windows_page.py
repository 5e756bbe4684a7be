"""The parts of docs/kafka-windows.md that need programs of others, with the output shown there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.bench.apache_kafka import SMALL_JVM, Unavailable, class_path, jars
from horolog.tests.pages.shell import Shell, blocks, commands, comparable
from horolog.tests.window_topics.test_page import OTHERS, PAGE

from .installing import PROGRAMS, not_installed, python_of

_LIMIT_SECONDS = 900
"""The first run fetches the programs."""


def write_command(path: Path, *command: object) -> None:
    """A command that runs another one with the arguments that it gets."""
    path.write_text(f'#!/bin/sh\n{" ".join(map(str, command))} "$@"\n')
    path.chmod(0o755)


def provide(program: str, folder: Path) -> dict[str, str]:
    """Put commands into a folder, as they are where a program is installed; what a shell needs in
    its environment."""
    java = ["java", *SMALL_JVM, "-cp"]
    if program == "java":
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        write_command(folder / "kafka-console-consumer.sh", *java, class_path(), consumer)
    elif program == "flink":
        return {"FLINK": jars(PROGRAMS / "flink" / "pom.xml")}
    elif program == "duckdb":
        write_command(folder / "python", python_of("duckdb"))
    else:
        # The packages that the page names are there already.
        write_command(folder / "spark-submit", "shift 2;", python_of("spark"))
        packages = jars(PROGRAMS / "spark" / "pom.xml").replace(os.pathsep, ",")
        options = f"--master local[1] --conf spark.ui.enabled=false --jars {packages}"
        return {"PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1"}
    return {}


@pytest.mark.ecosystem
@pytest.mark.timeout(_LIMIT_SECONDS)
@pytest.mark.parametrize("program", OTHERS)
def test_the_page_shows_what_happens(
    program: str, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    require_program("kcat")
    page, path = blocks(PAGE), tmp_path / "bin"
    path.mkdir()
    try:
        env = provide(program, path)
    except Unavailable as error:
        not_installed(str(error))
        raise
    search = os.pathsep.join([str(path), str(Path(sys.executable).parent), os.environ["PATH"]])
    with Shell(tmp_path, {**env, "PATH": search}, timeout_s=300) as shell:
        shell.run(page["session"])
        for file in OTHERS[program]:
            (tmp_path / file).write_text(page[file].replace("7092", shell._port("7092")))
        written = page[program]
        assert commands(written)
        assert comparable(shell.run(written)) == comparable(written)
