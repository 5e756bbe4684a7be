"""Files of a TLS port: the certificate, its key and the CA of clients. Changed files are read
again."""

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...config.broker import BrokerSettings
from ...protocol.errors import InvalidConfig
from ...storage.events import Observer
from ..metrics.figures import Figures

LOOK_SECONDS: Final = 5.0
"""Seconds between two checks of the files."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MAX_PASSWORD_BYTES: Final = 1024
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: expired certificates are examined too."""
_SECONDS_A_DAY: Final = 86_400

Stamps = tuple[tuple[int, int, int] | None, ...]
"""Modification time, size and inode of each file, to detect changes; None for a missing file."""


class TlsFiles:
    """Current TLS context of a broker's ports."""

    def __init__(self, settings: BrokerSettings, observe: Observer) -> None:
        """Raises `InvalidConfig` that names the setting of an invalid file."""
        self._settings = settings
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self._stamps = self._look_at_files()
        self.context, self.expires_at = self._read()

    def days_left(self, now_seconds: float) -> float:
        """Return the days until the certificate expires; negative after that."""
        return (self.expires_at - now_seconds) / _SECONDS_A_DAY

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to check the files."""
        self._timer = loop.call_later(LOOK_SECONDS, self._check, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def read_again(self) -> None:
        """Read the files again. Invalid files are reported, and the old context stays."""
        self._stamps = self._look_at_files()
        try:
            self.context, self.expires_at = self._read()
        except InvalidConfig as error:
            self._observe("tls_files_refused", cause=error.message, hint="the old ones stay in use")
        else:
            self._observe("tls_files_read", certificate=self._settings.tls_cert)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start(loop)
        if self._look_at_files() != self._stamps:
            self.read_again()

    def _look_at_files(self) -> Stamps:
        settings = self._settings
        files = (
            *(settings.tls_cert, settings.tls_key),
            *(settings.tls_key_password_file, settings.tls_client_ca),
        )
        return tuple(_stamp(path) for path in files if path)

    def _read(self) -> tuple[ssl.SSLContext, float]:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.tls_min_version]
        context.options |= ssl.OP_NO_RENEGOTIATION
        key = settings.tls_key or settings.tls_cert
        try:
            context.load_cert_chain(settings.tls_cert, key, self._password)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"tls.cert = {settings.tls_cert!r} with the key in {key!r} (tls.key, "
                f"tls.key.password.file) cannot be used: {_said(error)}"
            ) from None
        if settings.tls_client_auth != "none" or settings.tls_client_ca:
            try:
                context.load_verify_locations(settings.tls_client_ca)
            except (OSError, ValueError) as error:
                raise InvalidConfig(
                    f"tls.client.ca = {settings.tls_client_ca!r} cannot be used, which "
                    f"tls.client.auth = {settings.tls_client_auth} needs: {_said(error)}"
                ) from None
        context.verify_mode = _CLIENT_AUTH[settings.tls_client_auth]
        try:
            return context, _expiry(settings.tls_cert, context)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise InvalidConfig(
                f"tls.cert = {settings.tls_cert!r} does not work: {_said(error)}"
            ) from None

    def _password(self) -> bytes:
        """Return the key's password. Called only if the key is encrypted."""
        path = self._settings.tls_key_password_file
        if not path:
            raise InvalidConfig(
                "the key is encrypted; name a file with its password in tls.key.password.file"
            )
        try:
            with open(path, "rb") as file:
                return file.read(_MAX_PASSWORD_BYTES).split(b"\n")[0].rstrip(b"\r")
        except OSError as error:
            raise InvalidConfig(f"tls.key.password.file = {path!r}: {error.strerror}") from None


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    if isinstance(error, OSError):
        return str(error.strerror or error)
    return str(error)


def _expiry(path: str, context: ssl.SSLContext) -> float:
    """Return when the certificate of `context` expires, in seconds since the epoch.

    OpenSSL tells only a client what certificate it was shown, so a client in memory connects. This
    also checks that the key belongs to the certificate and that both can be used.
    """
    text = Path(path).read_text("ascii", "replace")
    end = "-----END CERTIFICATE-----"
    begin = text.index("-----BEGIN CERTIFICATE-----")
    own = text[begin : text.index(end, begin) + len(end)]
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(cadata=own)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, answering, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            break
    found = asking.getpeercert()
    assert found is not None
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


@dataclass(frozen=True, slots=True, eq=False)
class TlsPort:
    """State shared by the connections of one port."""

    files: TlsFiles
    figures: Figures
    observe: Callable[..., None]
    seconds: float
    """Seconds that a handshake may take."""
    plain_answer: Callable[[bytes], bytes]
    """Returns the answer to a client whose first bytes are not TLS; may be empty."""
    slab: bytearray
    name_of: Callable[[bytes], str] | None = None
    """Returns the principal's name of a client certificate (DER), and raises `ValueError`; None
    where certificates give no name."""
