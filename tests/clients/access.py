"""How a client is let in at a guarded broker, and how each library says that."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Store:
    """A file of certificates, or of one with its key, as Java takes it."""

    kind: str
    """PEM, JKS or PKCS12."""
    path: Path
    password: str = field(default="", repr=False)
    """Of JKS and PKCS12, and of the key in any."""


@dataclass(frozen=True, slots=True)
class Access:
    """TLS, and who the client is: a user, or whom its certificate names."""

    ca: Path
    mechanism: str | None = None
    """Of SASL; None is a certificate of the client's own."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """For OAUTHBEARER, in the place of user and password."""
    certificate: Path | None = None
    key: Path | None = None
    trust: Store | None = None
    """For Java: whom it trusts."""
    keys: Store | None = None
    """For Java: its own certificate."""

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"


def librdkafka(access: Access | None) -> dict[str, str]:
    """The settings of confluent-kafka and kcat."""
    if access is None:
        return {}
    found = {"security.protocol": access.protocol, "ssl.ca.location": str(access.ca)}
    if access.mechanism is not None:
        found["sasl.mechanism"] = access.mechanism
        found["sasl.username"] = access.user
        found["sasl.password"] = access.password
    if access.certificate is not None:
        found["ssl.certificate.location"] = str(access.certificate)
        found["ssl.key.location"] = str(access.key)
    return found


def kafka_python(access: Access | None) -> dict[str, Any]:
    if access is None:
        return {}
    found: dict[str, Any] = _python(access)
    found["ssl_cafile"] = str(access.ca)
    if access.certificate is not None:
        found["ssl_certfile"] = str(access.certificate)
        found["ssl_keyfile"] = str(access.key)
    return found


def aio_kafka(access: Access | None) -> dict[str, Any]:
    if access is None:
        return {}
    context = ssl.create_default_context(cafile=str(access.ca))
    if access.certificate is not None:
        context.load_cert_chain(access.certificate, access.key)
    return {**_python(access), "ssl_context": context}


def _python(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": access.protocol}
    if access.mechanism is not None:
        found["sasl_mechanism"] = access.mechanism
        found["sasl_plain_username"] = access.user
        found["sasl_plain_password"] = access.password
    return found


def kafka_js(access: Access | None) -> Mapping[str, Any]:
    """The settings `ssl` and `sasl`; the former as options of Node's `tls`."""
    if access is None:
        return {}
    tls = {"ca": [access.ca.read_text()]}
    if access.certificate is not None and access.key is not None:
        tls |= {"cert": [access.certificate.read_text()], "key": [access.key.read_text()]}
    if access.mechanism is None:
        return {"ssl": tls}
    sasl = {
        "mechanism": access.mechanism.lower(),
        "username": access.user,
        "password": access.password,
    }
    return {"ssl": tls, "sasl": sasl}


def java(access: Access | None) -> dict[str, str]:
    """The properties of Java's client."""
    if access is None:
        return {}
    found = {"security.protocol": access.protocol}
    for name, store in (("truststore", access.trust), ("keystore", access.keys)):
        if store is None:
            continue
        found[f"ssl.{name}.type"] = store.kind
        found[f"ssl.{name}.location"] = str(store.path)
        if store.password and store.kind != "PEM":
            found[f"ssl.{name}.password"] = store.password
        if store.password and store is access.keys:
            found["ssl.key.password"] = store.password
    if access.mechanism is not None:
        found["sasl.mechanism"] = access.mechanism
        found["sasl.jaas.config"] = jaas(access)
    return found


def jaas(access: Access) -> str:
    """The login module of a user, which clients before 0.10.2 take from a file alone."""
    module = "plain.Plain" if access.mechanism == "PLAIN" else "scram.Scram"
    return (
        f"{_PACKAGE}.{module}LoginModule required "
        f'username="{access.user}" password="{access.password}";'
    )
