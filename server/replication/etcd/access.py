"""The endpoints of etcd, and the broker's login there."""

import ssl
from pathlib import Path

from ....config.broker import BrokerSettings
from ....config.cluster_table import etcd_endpoints
from ....protocol.errors import InvalidConfig
from ....values import value_class


@value_class
class Access:
    """Endpoints, paths of certificate files, user and password; empty if not given."""

    endpoints: tuple[str, ...]
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for https:// endpoints, `None` without one. Raises
        `InvalidConfig`."""
        if not any(endpoint.startswith("https://") for endpoint in self.endpoints):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(f"{self.ca} (cluster.etcd.ca) cannot be used: {error}") from error
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key or None)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(
                    f"{self.certificate} (cluster.etcd.cert) with {self.key or 'its own key'} "
                    f"(cluster.etcd.key) cannot be used: {error}"
                ) from error
        return context


def access_of(settings: BrokerSettings) -> Access:
    """Return the access that the settings `cluster.etcd...` describe. Raises `InvalidConfig`."""
    endpoints = etcd_endpoints(settings.cluster_etcd)
    plain = [endpoint for endpoint in endpoints if endpoint.startswith("http://")]
    for name, value in (
        ("cluster.etcd.ca", settings.cluster_etcd_ca),
        ("cluster.etcd.cert", settings.cluster_etcd_cert),
        ("cluster.etcd.key", settings.cluster_etcd_key),
    ):
        if value and plain:
            raise InvalidConfig(
                f"{name} is {value}, which is for https://, and cluster.etcd (--etcd) has "
                f"{plain[0]}"
            )
    if settings.cluster_etcd_key and not settings.cluster_etcd_cert:
        raise InvalidConfig(
            f"cluster.etcd.key is {settings.cluster_etcd_key}, and cluster.etcd.cert, the "
            "certificate that it belongs to, is empty: give both"
        )
    user, password = read_credentials(settings.cluster_etcd_credentials)
    return Access(
        endpoints,
        settings.cluster_etcd_ca,
        settings.cluster_etcd_cert,
        settings.cluster_etcd_key,
        user,
        password,
    )


def read_credentials(path: str) -> tuple[str, str]:
    """Read user and password from the first two lines of a file; both are empty without a file.
    Raises `InvalidConfig`."""
    if not path:
        return "", ""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} (cluster.etcd.credentials) cannot be read: {error}") from error
    if len(lines) < 2 or not all(lines[:2]):
        raise InvalidConfig(
            f"{path} (cluster.etcd.credentials) has no user and password on its first two lines"
        )
    return lines[0], lines[1]
