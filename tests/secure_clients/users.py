"""Users of a Horolog broker, before its first start."""

from pathlib import Path

from horolog.testing.program import Program


def add_user(data_dir: Path, name: str, password: str) -> None:
    """As an operator adds one."""
    Program().ok(
        "user", "add", name, "--password-file", "-", "--data-dir", data_dir, stdin=password
    )
