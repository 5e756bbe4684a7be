"""Fault 23: two brokers on one directory; lock files that were left behind."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from horolog.testing.program import Program, serving

MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"


def content(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file()
    }


def refused(data_dir: Path) -> str:
    """What a second broker says; it must not start."""
    listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    listen += ["--kafka-listen", "off"]
    result = Program()("serve", "--data-dir", data_dir, *listen)
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    return line


def test_23_the_second_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    # Neither checkpoint nor reserve is written while the two are compared.
    rarely = ["--set", "recovery.point.checkpoint.interval.ms=600000"]
    rarely += ["--set", "disk.reserve.bytes=0"]
    with serving(data_dir, *rarely) as first:
        first.program.ok("produce", "a", stdin="one\n")
        before = content(data_dir)
        for number in (None, signal.SIGSTOP):
            if number is not None:
                first.process.send_signal(number)
                os.waitid(os.P_PID, first.process.pid, os.WSTOPPED | os.WNOWAIT)
            line = refused(data_dir)
            assert f"process {first.process.pid};" in line
            assert str(data_dir) in line
            assert "--data-dir" in line
            assert content(data_dir) == before
        first.process.send_signal(signal.SIGCONT)
        first.program.ok("produce", "a", stdin="two\n")
        assert first.stop() == 0


def test_23_a_refused_start_leaves_the_marker_of_a_clean_stop(tmp_path: Path) -> None:
    """Somebody holds the lock of a directory that was stopped cleanly: it stays so."""
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        assert server.stop() == 0
    before = content(data_dir)
    with (data_dir / LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(data_dir)
    assert content(data_dir) == before
    assert MARKER in before


def test_23_a_stale_lock_file_locks_nobody_out(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        server.process.kill()
        server.process.wait()
    lock = data_dir / LOCK
    assert lock.read_text() == f"{server.process.pid}\n"
    for left in (f"{server.process.pid}\n", f"{os.getpid()}\n", "\0" * 5000):
        lock.write_text(left)
        with serving(data_dir) as again:
            assert lock.read_text() == f"{again.process.pid}\n"


def test_23_a_child_of_the_broker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """What a broker starts inherits no descriptor: with the broker the lock goes."""
    hold = """
import subprocess, sys
from pathlib import Path
from horolog.storage.files import SystemFiles
from horolog.storage.directory.lock import DirectoryLock
lock = DirectoryLock(SystemFiles(), Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=0, close_fds=False)
print(child.pid, flush=True)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    assert holder.wait(30) == 0
    assert Path(f"/proc/{child}").exists()
    with serving(tmp_path) as server:
        assert server.stop() == 0
    holder.communicate("\n")
