"""Conversion between `Security` and options in librdkafka's names, for places where options are
texts."""

from collections.abc import Mapping
from typing import Final

from ..errors import SecurityError
from .security import Secret, SecretFile, SecretText, SecretVariable, Security, mechanism_of

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
_MECHANISM_TOO: Final = "sasl.mechanisms"
USER: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
TOKEN: Final = "sasl.oauthbearer.token"
CA: Final = "ssl.ca.location"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"
KEY_PASSWORD: Final = "ssl.key.password"
HOST_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
SECRETS: Final = (PASSWORD, TOKEN, KEY_PASSWORD)
"""Options that hold secrets. Each can also name a file or an environment variable:
`sasl.password.file`, `sasl.password.env`."""
_FILE: Final = ".file"
_VARIABLE: Final = ".env"

NAMES: Final = (
    *(PROTOCOL, MECHANISM, _MECHANISM_TOO, USER, CA, CERTIFICATE, KEY, HOST_NAME_CHECK),
    *(f"{name}{where}" for name in SECRETS for where in ("", _FILE, _VARIABLE)),
)
"""Names of all options."""

PROTOCOLS: Final = {
    # Name -> (TLS, authentication).
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_HOST_NAME_CHECKS: Final = {"https": True, "none": False, "": False}


def from_options(options: Mapping[str, str]) -> Security | None:
    """Return the security that these options describe; None without options. All keys are in
    `NAMES`.

    `security.protocol` may be left out: the address then decides on TLS, and the other options on
    authentication. Raises SecurityError with the name of the option.
    """
    if not options:
        return None
    protocol = options.get(PROTOCOL)
    tls = authenticated = None
    if protocol is not None:
        found = PROTOCOLS.get(protocol.strip().upper())
        if found is None:
            raise SecurityError(f"{PROTOCOL}={protocol!r}: it is one of {', '.join(PROTOCOLS)}")
        tls, authenticated = found
    check = options.get(HOST_NAME_CHECK, "https").strip().lower()
    if check not in _HOST_NAME_CHECKS:
        raise SecurityError(f"{HOST_NAME_CHECK}={check!r}: it is https, or none")
    security = _made(options, tls, _HOST_NAME_CHECKS[check])
    if authenticated is not None and authenticated != (security.mechanism is not None):
        raise SecurityError(f"{PROTOCOL}={protocol}: {_contradiction(authenticated)}")
    return security


def _made(options: Mapping[str, str], tls: bool | None, check_host_name: bool) -> Security:
    mechanism = options.get(MECHANISM) or options.get(_MECHANISM_TOO)
    return Security(
        tls=tls,
        ca=options.get(CA),
        certificate=options.get(CERTIFICATE),
        key=options.get(KEY),
        key_password=_secret(options, KEY_PASSWORD),
        check_host_name=check_host_name,
        mechanism=None if mechanism is None else mechanism_of(mechanism),
        user=options.get(USER),
        password=_secret(options, PASSWORD),
        token=_secret(options, TOKEN),
        named_as_options=True,
    )


def _contradiction(authenticated: bool) -> str:
    if authenticated:
        return f"that is with authentication, so {USER} and {PASSWORD} are needed, or {TOKEN}"
    return f"that is without authentication, so leave out {MECHANISM}, {USER} and {PASSWORD}"


def _secret(options: Mapping[str, str], name: str) -> Secret | None:
    given = [one for one in (name, name + _FILE, name + _VARIABLE) if one in options]
    if not given:
        return None
    if len(given) > 1:
        raise SecurityError(f"{' and '.join(given)} say the same: give one")
    value = options[given[0]]
    if not value:
        raise SecurityError(f"{given[0]} is empty")
    if given[0].endswith(_FILE):
        return SecretFile(value)
    if given[0].endswith(_VARIABLE):
        return SecretVariable(value)
    return SecretText(value)


def to_options(security: Security | None) -> dict[str, str]:
    """Return options from which `from_options` makes this security.

    Raises SecurityError for a secret that is a function or a command, because options cannot
    express them.
    """
    if security is None:
        return {}
    found: dict[str, str] = {}
    if security.tls is not None:
        kinds = {kind: name for name, kind in PROTOCOLS.items()}
        found[PROTOCOL] = kinds[security.tls, security.mechanism is not None]
    texts = (
        (CA, security.ca),
        (CERTIFICATE, security.certificate),
        (KEY, security.key),
        (MECHANISM, security.mechanism),
        (USER, security.user),
    )
    found |= {name: str(text) for name, text in texts if text is not None}
    if not security.check_host_name:
        found[HOST_NAME_CHECK] = "none"
    for name, given in (
        (KEY_PASSWORD, security.key_password),
        (PASSWORD, security.password),
        (TOKEN, security.token),
    ):
        match given:
            case None:
                pass
            case SecretFile(path):
                found[name + _FILE] = path
            case SecretVariable(variable):
                found[name + _VARIABLE] = variable
            case SecretText(text):
                found[name] = text
            case _:
                raise SecurityError(
                    f"{name} comes from a function or a command, and has to be a text, a file or a "
                    "variable here"
                )
    return found
