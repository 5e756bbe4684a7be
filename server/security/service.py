"""Security of a broker. Modules with cryptography are imported on first use, because most brokers
have no users and start faster without them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...clock import Clock, SystemClock
from ...config.broker import BrokerSettings
from ...protocol.api.framing import ProtocolError
from ...protocol.api.native import frames as native
from ...protocol.errors import CodedError, IllegalSaslState, InvalidConfig
from ...protocol.limits import LENGTH_BYTES
from ...storage.events import Observer
from ...storage.metadata.access_records import AccessState
from ..metrics.figures import Figures
from ..network.ports import HTTP, KAFKA, NATIVE, Port, Ports
from ..network.tls_files import TlsFiles, TlsPort
from .audit import DONE, Audit

if TYPE_CHECKING:
    from ..quotas.rules import Quotas
    from .acl_store import Acls, Authorizer
    from .logins import Logins
    from .tokens import KeySource, Tokens
    from .users import Users

_URL = "sasl.oauthbearer.jwks.endpoint.url"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_TEXT: Final = "this port takes encrypted connections only: connect with TLS (tls://)"
_BODY: Final = f"{_TEXT[: -len('(tls://)')]}(https://)\n"

WARNING_SECONDS: Final = 24 * 60 * 60.0
"""Seconds between two log entries about ports that are open to everybody."""

INLINE: Final = 200
"""Largest number of ACLs or quotas whose table is built in the event loop's thread."""

_PLAIN: Final = "PLAIN"
_TOKENS: Final = "OAUTHBEARER"


def _to_native(received: bytes) -> bytes:
    """Return an error as the answer to the first request, if that request has arrived."""
    try:
        head, _ = native.open_request(received[LENGTH_BYTES:])
    except ProtocolError:
        return b""
    return native.encode_error(head.correlation_id, IllegalSaslState.code, _TEXT)


def _to_http(_: bytes) -> bytes:
    head = (
        "HTTP/1.1 400 Bad Request",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(_BODY)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        "",
        _BODY,
    )
    return "\r\n".join(head).encode()


def _to_kafka(_: bytes) -> bytes:
    """Return nothing: Kafka's protocol has no error that fits every request."""
    return b""


PLAIN_ANSWERS: Final[Mapping[str, Callable[[bytes], bytes]]] = MappingProxyType(
    {NATIVE: _to_native, HTTP: _to_http, KAFKA: _to_kafka}
)
"""Answers by setting of the port."""


def _no_listener() -> None:
    """Default without a listener for changes."""


class SecurityService:
    """Users, logins, certificates, ACLs and quotas of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        ports: Ports,
        figures: Figures,
        observe: Observer,
        clock: Clock | None = None,
    ) -> None:
        """Starts without users, ACLs and quotas; see `open`.

        Raises `InvalidConfig` for TLS files, or files of token keys, that cannot be used.
        """
        self._settings = settings
        self._access = AccessState()
        self._figures = figures
        self._observe = observe
        self.audit = Audit(observe)
        self._unprotected = ports.open_to_others
        self._timer: asyncio.TimerHandle | None = None
        self.quotas_changed: Callable[[], None] = _no_listener
        """Called after a change of the quotas."""
        self.tls_files: TlsFiles | None = None
        if ports.any_encrypted:
            self.tls_files = TlsFiles(settings, observe)
        self._clock = clock or SystemClock()
        self._token_keys: KeySource | None = None
        if _TOKENS in settings.sasl_enabled_mechanisms.split(","):
            self._token_keys = key_source(settings, observe)

    def open(self, access: AccessState) -> None:
        """Set the users, ACLs and quotas. Must be called before requests are served."""
        self._access = access

    async def take(
        self, access: AccessState, in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> None:
        """Change to other users, ACLs and quotas. They are in force on return."""
        before = self._access
        tables: list[Callable[[], None]] = []
        if access.rules is not before.rules and "acls" in self.__dict__:
            acls, rules = self.acls, access.rules
            tables.append(lambda: acls.use(rules))
        if access.quotas is not before.quotas and "quotas" in self.__dict__:
            quotas, stored = self.quotas, access.quotas
            tables.append(lambda: quotas.use(stored))
        for table in tables:
            if max(len(access.rules), len(access.quotas)) > INLINE:
                await in_thread(table)
            else:
                table()
        self._access = access
        if access.quotas is not before.quotas:
            self.quotas_changed()

    @cached_property
    def users(self) -> "Users":
        from .users import Users

        return Users(lambda: self._access, os.urandom)

    @property
    def authorization(self) -> bool:
        """Whether ACLs are enforced."""
        return self._settings.authorization == "on"

    @cached_property
    def acls(self) -> "Acls":
        from .acl_store import Acls

        super_users = self._settings.super_users.split(";")
        return Acls(self._access.rules, filter(None, super_users))

    @cached_property
    def authorizer(self) -> "Authorizer":
        from .acl_store import Authorizer

        return Authorizer(self.acls, self.audit.refused)

    @property
    def any_quotas(self) -> bool:
        """Whether any quotas exist."""
        return bool(self._access.quotas)

    @cached_property
    def quotas(self) -> "Quotas":
        from ..quotas.rules import Quotas

        return Quotas(self._access.quotas)

    def check_sees_broker(self, principal: str, host: str, asked: str) -> bool:
        """Whether `principal` may see figures over all topics. A refusal is written to the audit
        log with `asked`."""
        if not self.authorization:
            return True
        from ...protocol.api.security.acl_terms import CLUSTER_NAME, Operation, ResourceType

        rights = self.authorizer.rights(principal, host)
        if rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return True
        self.audit.refused(principal, host, asked, "Describe", "cluster")
        return False

    @cached_property
    def logins(self) -> "Logins":
        from .logins import Logins

        tokens = None if self._token_keys is None else self._tokens
        return Logins(asyncio.get_running_loop(), self.users, self._figures, self._observe, tokens)

    def _tokens(self, executor: Executor) -> "Tokens":
        from .tokens import Tokens

        assert self._token_keys is not None
        return Tokens(self._settings, self._token_keys, self._clock.now_ms, executor)

    def mechanisms(self, port: Port) -> tuple[str, ...]:
        """Return the SASL mechanisms that a port offers."""
        enabled = self._settings.sasl_enabled_mechanisms
        plain = port.encrypted or self._settings.allow_plaintext
        return tuple(
            name for name in enabled.split(",") if name and (plain or name not in (_PLAIN, _TOKENS))
        )

    def tls_port(self, port: Port, seconds: float) -> TlsPort | None:
        """Return the shared TLS state of a port; None for a plaintext port. `seconds` bounds a
        handshake."""
        if self.tls_files is None or not port.encrypted:
            return None
        from ..network.tls import RECEIVED_BYTES

        return TlsPort(
            self.tls_files,
            self._figures,
            self._observe,
            seconds,
            PLAIN_ANSWERS[port.setting],
            bytearray(RECEIVED_BYTES),
            self._certificate_name if port.certificate else None,
        )

    @cached_property
    def _certificate_name(self) -> Callable[[bytes], str]:
        """Returns the principal's name of a client certificate."""
        from ...config.principal_rules import PrincipalRules
        from .names import subject_name

        rules = PrincipalRules(self._settings.tls_principal_mapping_rules)
        return lambda certificate: rules.name(subject_name(certificate))

    def start(self) -> None:
        """Start to check certificate files, and to report ports that are open to everybody."""
        loop = asyncio.get_running_loop()
        if self.tls_files is not None:
            self.tls_files.start(loop)
        if self._token_keys is not None:
            self._token_keys.start(loop)
        if self._unprotected:
            self._warn(loop)

    def stop(self) -> None:
        if self.tls_files is not None:
            self.tls_files.stop()
        if self._token_keys is not None:
            self._token_keys.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.audit.stop()
        if "logins" in self.__dict__:
            self.logins.close()

    def read_certificates_again(self) -> None:
        """Read the certificates and token keys again, as SIGHUP requests."""
        if self.tls_files is not None:
            self.tls_files.read_again()
        if self._token_keys is not None:
            self._token_keys.read_again()

    def changed(self, user: str, by: str, host: str, error: CodedError | None) -> None:
        """Write a change of a user, or its refusal, to the audit log."""
        outcome = DONE if error is None else error.name
        self.audit.changed("user_changed", user, by, host, outcome)

    def _warn(self, loop: asyncio.AbstractEventLoop) -> None:
        for port in self._unprotected:
            self._observe(
                "port_unprotected",
                address=str(port),
                lacks=" and ".join(port.lacks),
                hint="every client that reaches it reads and writes everything (allow.plaintext)",
            )
        self._timer = loop.call_later(WARNING_SECONDS, self._warn, loop)


def key_source(settings: BrokerSettings, observe: Observer) -> "KeySource":
    """Return the source of the token keys. Raises `InvalidConfig` for invalid settings, a missing
    file or missing packages."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        raise InvalidConfig(
            f"sasl.enabled.mechanisms names OAUTHBEARER, which needs {_URL}: where the keys are "
            "that sign tokens, https://... or file:///PATH"
        )
    parts = urlsplit(url)
    if parts.scheme == "http" and not (
        settings.allow_plaintext or (parts.hostname or "") in _LOOPBACK
    ):
        raise InvalidConfig(
            f"{_URL} = {url!r} is refused: a host on the way could give keys of its own; use "
            "https://, or set allow.plaintext=true"
        )
    if not settings.sasl_oauthbearer_sub_claim_name:
        raise InvalidConfig("sasl.oauthbearer.sub.claim.name must not be empty")
    try:
        import cryptography  # noqa: F401 - PyJWT does without, and then knows no signatures

        from .tokens import KeySource
    except ImportError as error:
        raise InvalidConfig(
            "sasl.enabled.mechanisms names OAUTHBEARER, which needs the package "
            f"{error.name or 'jwt'}: install horolog[oauth] (PyJWT and cryptography), or leave "
            "OAUTHBEARER out"
        ) from None
    return KeySource(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000, observe)
