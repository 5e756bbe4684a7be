"""Files that options name and that are missing, passwords that are not given, and what a command
that fails leaves behind."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from horolog.testing.program import CommandResult, Program

Run = Callable[..., CommandResult]

TLS = ("topic", "list", "--server", "tls://127.0.0.1:1")
ETCD = ("--etcd", "https://127.0.0.1:1")
CREATE = ("cluster", "create", "c", *ETCD, "--data-dir", "made")
REMOVE = ("cluster", "remove", "3", *ETCD, "--cluster", "c")
PIPE = ("--password-file", "pipe")
SERVE = ("serve", "--data-dir", "made", "--http-listen", "off", "--kafka-listen", "off")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, of a user without profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return tmp_path


USERS = [("user", one, "a", "--password-file", __file__) for one in ("add", "password")]

MISSING = [
    *((*TLS, f"--{name}", "missing") for name in ("ca", "client-cert", "token-file")),
    (*TLS, "--client-cert", __file__, "--client-key", "missing"),
    (*TLS, "--client-cert", __file__, "--client-key-password-file", "missing"),
    (*TLS, "--user", "a", "--password-file", "missing"),
    ("doctor", *TLS[2:], "--ca", "missing"),
    ("pipeline", "lag", *TLS[2:], "--ca", "missing"),
    ("user", "add", "a", "--password-file", "missing"),
    ("user", "password", "a", "--password-file", "missing"),
    ("user", "add", "a", "--password-file", "missing", "--data-dir", "made"),
    *((*one, "--user", "b", "--login-password-file", "missing") for one in USERS),
    *((*CREATE, f"--etcd-{name}", "missing") for name in ("credentials", "ca", "cert")),
    (*CREATE, "--etcd-cert", __file__, "--etcd-key", "missing"),
    (*REMOVE, "--etcd-ca", "missing"),
    ("serve", "--config", "missing"),
]


@pytest.mark.parametrize("command", MISSING, ids=" ".join)
def test_a_missing_file_of_an_option_is_wrong_usage(
    place: Path, run: Run, command: tuple[str, ...]
) -> None:
    said = run(*command, code=2)
    assert said.out == ""
    assert "missing" in said.err
    assert said.err.count("\n") == 1
    assert not (place / "made").exists()


@pytest.mark.parametrize("command", USERS, ids=" ".join)
def test_the_missing_password_of_a_login_is_not_that_of_the_user_to_be_changed(
    run: Run, command: tuple[str, ...]
) -> None:
    said = run(*command, "--user", "b", code=2).err
    assert said.startswith("horolog: the user b has no password")
    assert "(--login-password-file, HOROLOG_PASSWORD_FILE, or a profile's password_command)" in said
    wrong = run(*command, "--user", "b", "--login-password-file", "missing", code=2).err
    assert wrong.startswith("horolog: --login-password-file: missing cannot be read")


@pytest.mark.parametrize(
    "settings",
    [
        ("--listen", "tls://127.0.0.1:0", "--set", "tls.cert=missing"),
        (*ETCD, "--cluster", "c", "--broker-id", "1", "--set", "cluster.etcd.ca=missing"),
    ],
    ids=" ".join,
)
def test_a_missing_file_of_a_broker_is_wrong_usage(place: Path, settings: tuple[str, ...]) -> None:
    said = Program(cwd=place)(*SERVE, *settings)
    assert (said.code, said.out) == (2, "")
    assert "missing" in said.err


@pytest.mark.parametrize("variable", ["HOROLOG_CA", "HOROLOG_CLIENT_CERT"])
def test_a_missing_file_of_a_variable_is_wrong_usage(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "missing")
    assert "missing cannot be read" in run(*TLS, code=2).err


def test_a_pipe_is_not_opened_before_it_is_needed(place: Path) -> None:
    os.mkfifo(place / "pipe")
    said = Program("127.0.0.1:1", cwd=place)("topic", "list", "--user", "a", *PIPE)
    assert said.code == 1
    assert "cannot connect" in said.err


@pytest.mark.parametrize("where", [(), ("--data-dir", "made")], ids=["broker", "directory"])
@pytest.mark.parametrize("command", ["add", "password"])
def test_a_user_without_a_password(place: Path, command: str, where: tuple[str, ...]) -> None:
    said = Program(cwd=place)("user", command, "a", *where)
    assert said.code == 2
    assert "--password-file FILE" in said.err
    assert "--password-file - for standard input" in said.err
    assert not (place / "made").exists()


@pytest.mark.parametrize("typed", [(b"\x04",), (b"\n", b"\n"), (b"x\n", b"\x04")])
def test_a_terminal_that_gives_no_password(place: Path, typed: tuple[bytes, ...]) -> None:
    terminal, its_side = pty.openpty()
    command = [sys.executable, "-m", "horolog", "user", "add", "a", "--data-dir", "data"]
    with subprocess.Popen(
        command, stdin=its_side, stdout=its_side, stderr=its_side, start_new_session=True
    ) as process:
        os.close(its_side)
        said = b""
        for prompt, answer in zip((b"Password: ", b"Again: "), typed, strict=False):
            while prompt not in said:
                said += os.read(terminal, 1000)
            os.write(terminal, answer)
        with suppress(OSError):  # The other side is closed.
            while got := os.read(terminal, 1000):
                said += got
        assert process.wait(60) == 2
    os.close(terminal)
    assert b"Traceback" not in said
    assert b"--password-file FILE" in said


def test_a_cluster_that_was_not_created_leaves_no_directory(place: Path, run: Run) -> None:
    create = ("cluster", "create", "c", "--etcd", "http://127.0.0.1:1", "--data-dir")
    run(*create, "made/deep/data", code=1)
    assert list(place.iterdir()) == []
    (place / "kept").mkdir()
    (place / "kept" / "notes").touch()
    run(*create, "kept/data", code=1)
    assert [each.name for each in (place / "kept").iterdir()] == ["notes"]
    run(*create, "kept", code=1)
    assert (place / "kept" / "notes").exists()
