"""Certificates for a broker and its clients, in every form that clients take them in."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..access import Store

STORE_PASSWORD: Final = "store-secret-8806"
FORMS: Final = ("PEM", "JKS", "PKCS12")

_LEAF: Final = "basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n"


@dataclass(frozen=True, slots=True)
class Files:
    """Whom clients trust, what the broker shows, and what a client shows of its own."""

    ca: Path
    broker: Path
    broker_key: Path
    client: Path
    client_key: Path
    trust: dict[str, Store]
    """By form."""
    keys: dict[str, Store]


def made(folder: Path, client: str) -> Files:
    """An authority, and certificates for the broker and for `CN=client`.

    RSA, which Java's client of 0.9 takes too.
    """
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"),
        *("-keyout", ca_key, "-out", ca),
    )
    broker, broker_key = _signed(folder, "broker", ca, ca_key)
    own, own_key = _signed(folder, client, ca, ca_key)
    pair, locked = folder / "client.pair.pem", folder / "client.locked.key"
    # Clients before 3.0 take no key in PEM without a password, and this is what they open.
    _openssl(
        *("pkcs8", "-topk8", "-in", own_key, "-v1", "PBE-SHA1-3DES"),
        *("-passout", f"pass:{STORE_PASSWORD}", "-out", locked),
    )
    pair.write_text(locked.read_text() + own.read_text())
    trust = {"PEM": Store("PEM", ca)}
    keys = {"PEM": Store("PEM", pair, STORE_PASSWORD)}
    bundle = folder / "client.PKCS12"
    _openssl(
        *("pkcs12", "-export", "-in", own, "-inkey", own_key, "-name", "client"),
        *("-passout", f"pass:{STORE_PASSWORD}", "-out", bundle),
    )
    keys["PKCS12"] = Store("PKCS12", bundle, STORE_PASSWORD)
    for form in ("JKS", "PKCS12"):
        trust[form] = Store(form, folder / f"trust.{form}", STORE_PASSWORD)
        _keytool(
            *("-importcert", "-noprompt", "-alias", "authority", "-file", ca),
            *("-keystore", trust[form].path, "-storetype", form, "-storepass", STORE_PASSWORD),
        )
    keys["JKS"] = Store("JKS", folder / "client.JKS", STORE_PASSWORD)
    _keytool(
        *("-importkeystore", "-noprompt", "-srckeystore", bundle, "-srcstoretype", "PKCS12"),
        *("-srcstorepass", STORE_PASSWORD, "-destkeystore", keys["JKS"].path),
        *("-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD),
    )
    return Files(ca, broker, broker_key, own, own_key, trust, keys)


def _signed(folder: Path, name: str, ca: Path, ca_key: Path) -> tuple[Path, Path]:
    certificate, key, request = (folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", key, "-out", request),
    )
    extensions = folder / f"{name}.ext"
    extensions.write_text(_LEAF)
    _openssl(
        *("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
        *("-days", "2", "-extfile", extensions, "-out", certificate),
    )
    return certificate, key


def _openssl(*arguments: str | Path) -> None:
    _run("openssl", *arguments)


def _keytool(*arguments: str | Path) -> None:
    _run("keytool", *arguments)


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
