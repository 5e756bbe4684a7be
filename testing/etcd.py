"""Runs an etcd server in a process on this machine."""

import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Final

from ..clock import SystemClock
from .ports import free_ports

DEADLINE_S: Final = 30.0

_CLOCK: Final = SystemClock()


def etcd_program() -> str | None:
    """Return the path of the program, if it is installed (Debian: etcd-server)."""
    return shutil.which("etcd")


class EtcdProcess:
    """An etcd server with one member. It keeps its addresses and data across restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        tls: Sequence[str] = (),
        gateway: bool = True,
        scheme: str = "http",
        ports: Sequence[int] | None = None,
    ) -> None:
        """`tls` are options of etcd, for `scheme` https. `ports` are one for clients and one for
        other members, by default free ones."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        client, peer = ports or free_ports(2)
        self.url = f"{scheme}://127.0.0.1:{client}"
        self._port = client
        self._peer = f"http://127.0.0.1:{peer}"
        self._more = [*tls, f"--enable-grpc-gateway={'true' if gateway else 'false'}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._folder / "etcd.log"

    def start(self) -> None:
        """Start etcd, and wait until it serves. Raises `RuntimeError`."""
        program = etcd_program()
        assert program is not None
        options = {
            "--data-dir": str(self._folder / "data"),
            "--listen-client-urls": self.url,
            "--advertise-client-urls": self.url,
            "--listen-peer-urls": self._peer,
            "--initial-advertise-peer-urls": self._peer,
            "--initial-cluster": f"default={self._peer}",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [program, *(part for pair in options.items() for part in pair), *self._more],
                stdout=log,
                stderr=log,
            )
        until = _CLOCK.monotonic() + DEADLINE_S
        while not self._serves():
            if self._process.poll() is not None or _CLOCK.monotonic() > until:
                raise RuntimeError(f"etcd does not serve: {self.log.read_text()[-2000:]}")
            sleep(0.02)  # another process, which sends no event to this one

    def _serves(self) -> bool:
        if not self.url.startswith("http://"):
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", self._port)) == 0
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop etcd with a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(DEADLINE_S)
            self._process = None

    def close(self) -> None:
        """Kill etcd, if it runs."""
        self.stop(signal.SIGKILL)
