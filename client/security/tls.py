"""TLS contexts of clients, and explanations of TLS errors."""

import os
import ssl
from functools import lru_cache
from typing import Final

from ..errors import Remedy, SecurityError, TlsFailed
from .security import Secret, Security

_Stamp = tuple[int, int, int] | None
"""Inode, size and modification time of a file; they change when the file is written again."""

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_OTHER_HOST: Final = (62, 64)
_UNKNOWN_SIGNER: Final = (2, 18, 19, 20, 21)
"""Certificate error codes, as OpenSSL's `X509_verify_cert_error_string` lists them."""

_OURS_IS_REFUSED: Final = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_ACCESS_DENIED",
)
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "INVALID_ALERT",
)


def client_context(security: Security) -> ssl.SSLContext:
    """Return the TLS context of a new connection. It is cached until one of its files changes.

    Raises SecurityError for a file that is missing or invalid.
    """
    key = security.key or security.certificate
    key_password = security.key_password
    assert not isinstance(key_password, str)
    return _context(
        (security.ca, _stamp("ca", security.ca)),
        (security.certificate, _stamp("certificate", security.certificate)),
        (key, _stamp("key", key)),
        key_password,
        security.check_host_name,
    )


@lru_cache(maxsize=16)
def _context(
    ca: tuple[str | None, _Stamp],
    certificate: tuple[str | None, _Stamp],
    key: tuple[str | None, _Stamp],
    key_password: Secret | None,
    check_host_name: bool,
) -> ssl.SSLContext:
    # Without a CA file the system's certificates are trusted.
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca[0])
    except (ssl.SSLError, OSError) as error:
        raise SecurityError(f"ca: {ca[0]} has no certificates in PEM: {_reason(error)}") from None
    context.check_hostname = check_host_name
    if certificate[0] is not None:
        _load_own(context, certificate[0], key[0] or certificate[0], key_password)
    return context


def _load_own(
    context: ssl.SSLContext, certificate: str, key: str, key_password: Secret | None
) -> None:
    asked = False

    def password() -> str:
        # Without this function OpenSSL would prompt at the terminal.
        nonlocal asked
        asked = True
        return "" if key_password is None else key_password.read()

    try:
        context.load_cert_chain(certificate, key, password)
    except SecurityError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        if asked:
            wrong = "is encrypted, and there is no key_password"
            if key_password is not None:
                wrong = "is encrypted, and the key_password is not the one of it"
            raise SecurityError(f"key: {key} {wrong}") from None
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise SecurityError(f"key: {key} is not the key of {certificate}") from None
        raise SecurityError(
            f"certificate: {certificate} and {key} are not a certificate and its key in PEM: "
            f"{_reason(error)}"
        ) from None


def _stamp(setting: str, path: str | None) -> _Stamp:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise SecurityError(f"{setting}: {path} cannot be read: {_reason(error)}") from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def explained(error: BaseException, address: str) -> TlsFailed | None:
    """Return an error that tells what to do about a permanent TLS error; None for an error that may
    pass."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = Remedy.CA if error.verify_code in _UNKNOWN_SIGNER else None
        return TlsFailed(f"{address} is not trusted: {_distrust(error)}", remedy)
    if not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or ""
    if any(reason.endswith(one) for one in _OURS_IS_REFUSED):
        return TlsFailed(
            f"{address} takes only clients with a certificate that it knows, and refused this one "
            f"({_reason(error)})",
            Remedy.CERTIFICATE,
        )
    if any(reason.endswith(one) for one in _NO_TLS):
        return TlsFailed(f"{address} does not speak TLS ({_reason(error)})", Remedy.PLAIN_ADDRESS)
    if reason.endswith(("ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "HANDSHAKE_FAILURE")):
        return TlsFailed(
            f"{address} and this client have no version of TLS, or no cipher, in common, or it "
            f"wants a certificate of the client ({_reason(error)})",
            Remedy.PLAIN_ADDRESS,
        )
    return None


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    reason = error.verify_message or _reason(error)
    if error.verify_code == _EXPIRED:
        return f"its certificate has expired ({reason}). It has to be renewed there"
    if error.verify_code == _NOT_YET_VALID:
        return f"its certificate is not valid yet ({reason}). Is the clock of this machine right?"
    if error.verify_code in _OTHER_HOST:
        return (
            f"its certificate is not for that name ({reason.rstrip('.')}). Connect to a name that "
            "the certificate has, or let it have this one (subjectAltName)"
        )
    if error.verify_code in _UNKNOWN_SIGNER:
        return f"no CA that is trusted here has signed its certificate ({reason})"
    return reason


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
