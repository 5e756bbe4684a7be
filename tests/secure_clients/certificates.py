"""Certificates as an operator makes them, with the program openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEY_PASSWORD: Final = "key-secret-5417"

_LEAF: Final = "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: Path
    key: Path

    def in_one(self) -> Path:
        """One file with both, as Kafka's key stores in PEM are."""
        path = self.certificate.with_suffix(".pair.pem")
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    """A CA with its files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.ca.pem"
        self._key = folder / f"{name}.ca.key"
        _new_key(self._key)
        _openssl(
            *("req", "-x509", "-new", "-key", self._key, "-out", self.certificate),
            *("-days", "30", "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def signed(self, name: str, names: str = "", *, days: int = 30) -> Pair:
        """A certificate for `CN=name` and the alternative names, such as `IP:127.0.0.1`."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        _new_key(pair.key)
        _openssl("req", "-new", "-key", pair.key, "-out", request, "-subj", f"/CN={name}")
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(_LEAF + (f"subjectAltName={names}\n" if names else ""))
        _openssl(
            *("x509", "-req", "-in", request, "-out", pair.certificate, "-days", str(days)),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", extensions),
        )
        return pair


def encrypted(pair: Pair, password: str = KEY_PASSWORD) -> Pair:
    """The same with a key that a password opens."""
    key = pair.key.with_suffix(".encrypted.key")
    _openssl(
        *("pkcs8", "-topk8", "-in", pair.key, "-out", key, "-v2", "aes-256-cbc"),
        *("-passout", f"pass:{password}"),
    )
    return Pair(pair.certificate, key)


def _new_key(path: Path) -> None:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
