"""What can be wrong with etcd."""

from ....protocol.errors import HorologError


class EtcdError(HorologError):
    """etcd refused a request."""


class EtcdUnreachable(EtcdError):
    """None of the endpoints answered in time, or etcd has no leader; it may later."""

    retriable = True


class EtcdMisconfigured(EtcdError):
    """What answers is not what was configured: no etcd, no gateway, no right to do this."""


class LeaseNotFound(EtcdError):
    """etcd does not know the lease (any more)."""


class BadValue(EtcdError):
    """A value in etcd cannot be understood."""
