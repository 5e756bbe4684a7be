"""Which client is let in which ways: what is tested, and the table in docs/security/clients.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..aio_kafka import AioKafka
from ..apache_tools import ApacheTools
from ..client import Client
from ..java_client import JavaClient, of_version
from ..kafka_js import KafkaJs
from ..kafka_python import KafkaPython, KafkaPythonAs010, KafkaPythonAs09
from ..kcat import Kcat
from ..librdkafka import ConfluentKafka, ConfluentKafkaAs09
from ..ours import Horolog, HorologNative
from .stores import FORMS

CERTIFICATE: Final = "a certificate"
"""The way of clients that show a certificate of their own, and have no user."""
MECHANISMS: Final = ("SCRAM-SHA-512", "PLAIN", CERTIFICATE)
"""The columns of the table."""
OAUTHBEARER: Final = "OAUTHBEARER"
"""The mechanism whose clients have `Access.token` in the place of a password."""

_GSSAPI_ONLY: Final = "SASL of Kafka 0.9 has only GSSAPI"
_NO_SCRAM: Final = "SCRAM came with Kafka 0.10.2"
_NO_PEM: Final = "PEM came with Kafka 2.7"

JAVA: Final = {
    version: of_version(version)
    for version in ("0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "2.8.2", "3.4.1", "4.1.1")
}
"""Of Apache's own client, by its version."""

CLIENTS: Final[Sequence[type[Client]]] = (
    ConfluentKafka,
    ConfluentKafkaAs09,
    Kcat,
    KafkaPython,
    KafkaPythonAs010,
    KafkaPythonAs09,
    AioKafka,
    KafkaJs,
    ApacheTools,
    *JAVA.values(),
    Horolog,
    HorologNative,
)

UNABLE: Final[dict[type[Client], dict[str, str]]] = {
    ConfluentKafkaAs09: dict.fromkeys(("SCRAM-SHA-512", "PLAIN"), _GSSAPI_ONLY),
    KafkaPythonAs09: dict.fromkeys(("SCRAM-SHA-512", "PLAIN"), _GSSAPI_ONLY),
    JAVA["0.9.0.1"]: {**dict.fromkeys(("SCRAM-SHA-512", "PLAIN"), _GSSAPI_ONLY), "PEM": _NO_PEM},
    JAVA["0.10.0.1"]: {"SCRAM-SHA-512": _NO_SCRAM, "PEM": _NO_PEM},
    JAVA["0.10.2.2"]: {"PEM": _NO_PEM},
    JAVA["0.11.0.3"]: {"PEM": _NO_PEM},
}
"""What a client cannot do with any broker, and why: mechanisms, and forms of stores."""


@dataclass(frozen=True, slots=True)
class Way:
    """A client, how it says who it is, and for Java in which form its stores are."""

    kind: type[Client]
    mechanism: str
    form: str = "PEM"

    @property
    def name(self) -> str:
        words = (self.kind.name, self.mechanism, *([self.form] if is_java(self.kind) else []))
        return "-".join(words).replace(" ", "-")


SMOKE: Final = (
    Way(AioKafka, "SCRAM-SHA-512"),
    Way(KafkaJs, "PLAIN"),
    Way(ConfluentKafka, CERTIFICATE),
    Way(JAVA["4.1.1"], "SCRAM-SHA-512", "JKS"),
    Way(HorologNative, "SCRAM-SHA-512"),
)
"""Those of every test run; the rest is for `make secure-clients`."""

MORE: Final = (Way(Horolog, OAUTHBEARER), Way(HorologNative, OAUTHBEARER))
"""Ways of single clients, beside the columns of the table."""

_TOOLS: Final = {"SCRAM-SHA-512": ("PEM",), "PLAIN": ("JKS",), CERTIFICATE: ("PKCS12",)}
"""Each of their commands starts a Java of its own, for seconds."""


def is_java(kind: type[Client]) -> bool:
    return issubclass(kind, (JavaClient, ApacheTools))


def ways() -> Iterator[Way]:
    """Every way of every client."""
    yield from MORE
    for kind in CLIENTS:
        unable = UNABLE.get(kind, {})
        for mechanism in MECHANISMS:
            if mechanism not in unable:
                forms = _TOOLS[mechanism] if kind is ApacheTools else FORMS
                able = [form for form in forms if form not in unable]
                yield from (Way(kind, mechanism, each) for each in able[: _most(kind)])


def _most(kind: type[Client]) -> int:
    """In how many forms of stores."""
    return len(FORMS) if is_java(kind) else 1
