"""The guarded listeners of the Apache Kafka that tests share, and certificates for both sides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .certificates import Authority, Pair

PASSWORD: Final = "correct-horse-7213"

USERS: Final = tuple(f"SCRAM-SHA-{n}=[name=alice,password={PASSWORD}]" for n in (256, 512))
"""As `kafka-storage format --add-scram` takes them."""

LISTENERS: Final = {
    "GUARDED": "SASL_SSL",
    "MUTUAL": "SSL",
    "OPEN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
"""What each is for: everything; client certificates; no TLS; sessions of three seconds; a
certificate that has expired; one that is for another host."""

SESSION_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Certificates:
    """Two authorities and what they signed."""

    authority: Authority
    stranger: Authority
    """One that nobody here trusts."""
    client: Pair
    client_of_stranger: Pair

    @classmethod
    def made(cls, folder: Path) -> "Certificates":
        authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
        return cls(
            authority, stranger, authority.signed("client"), stranger.signed("client-of-stranger")
        )

    @property
    def ca(self) -> str:
        return str(self.authority.certificate)


def listener_settings(certificates: Certificates) -> dict[str, str]:
    """Settings of a broker of Apache Kafka with these listeners."""
    authority = certificates.authority
    here = "IP:127.0.0.1,DNS:localhost"
    stores = {
        "guarded": authority.signed("broker", here),
        "mutual": authority.signed("mutual", here),
        "expired": authority.signed("expired", here, days=-1),
        "elsewhere": authority.signed("elsewhere", "DNS:elsewhere.example"),
    }
    found = {
        "connection.failed.authentication.delay.ms": "20",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for name, pair in stores.items():
        found[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{name}.ssl.keystore.location"] = str(pair.in_one())
    for name in ("guarded", "open", "short"):
        found |= _mechanisms(f"listener.name.{name}", oauth=name == "guarded")
    found["listener.name.short.scram-sha-512.connections.max.reauth.ms"] = str(SESSION_MS)
    return found


def _mechanisms(listener: str, *, oauth: bool) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    modules = {
        "SCRAM-SHA-256": f"{package}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{package}.scram.ScramLoginModule required;",
        "PLAIN": f'{package}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
    }
    if oauth:
        modules["OAUTHBEARER"] = (
            f"{package}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        )
    found = {f"{listener}.sasl.enabled.mechanisms": ",".join(modules)}
    for mechanism, module in modules.items():
        found[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return found
