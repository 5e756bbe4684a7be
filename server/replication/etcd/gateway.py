"""Reads, transactions and leases of etcd, typed."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from ....values import value_class
from .client import EtcdClient
from .errors import EtcdMisconfigured


@value_class
class KeyValue:
    """One key as etcd has it."""

    key: str
    value: bytes
    revision: int
    """Of its last change."""
    lease_id: int
    """0: on no lease."""


@value_class
class FoundKey:
    """What was there at one revision of etcd."""

    revision: int
    values: tuple[KeyValue, ...]
    succeeded: bool = True
    """Of a transaction: whether its conditions held."""


@value_class
class Put:
    """A key that a transaction writes."""

    key: str
    value: bytes
    lease_id: int = 0


class Gateway:
    """What a cluster needs of etcd. All calls raise `EtcdError`."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def range(self, prefix: str) -> FoundKey:
        """All keys that begin so, linearizably."""
        answer = await self._client.call("/v3/kv/range", _prefix(prefix))
        return FoundKey(_revision(answer), _key_values(answer))

    async def transact(
        self,
        unchanged: Sequence[tuple[str, int]],
        puts: Sequence[Put],
        *,
        read: str,
        deletes: Sequence[str] = (),
    ) -> FoundKey:
        """Write if each key still has its revision (0: is not there). Reads a prefix afterwards, in
        the same transaction, whether it wrote or not."""
        reading = {"request_range": _prefix(read)}
        body = {
            "compare": [
                {
                    "key": _encoded(key),
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": str(revision),
                }
                for key, revision in unchanged
            ],
            "success": [
                *({"request_put": _put(put)} for put in puts),
                *({"request_delete_range": {"key": _encoded(key)}} for key in deletes),
                reading,
            ],
            "failure": [reading],
        }
        answer = await self._client.call("/v3/kv/txn", body)
        responses = answer.get("responses")
        if not isinstance(responses, list) or not responses:
            raise EtcdMisconfigured("etcd answers a transaction without what was read in it")
        last = responses[-1]
        found = _either(last, "response_range", "responseRange") if isinstance(last, dict) else None
        if not isinstance(found, dict):
            raise EtcdMisconfigured("etcd answers a transaction without what was read in it")
        return FoundKey(_revision(answer), _key_values(found), answer.get("succeeded") is True)

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """A new lease, and for how many seconds it was given."""
        answer = await self._client.call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return _number(answer, "ID"), _number(answer, "TTL")

    async def keep_alive(self, lease_id: int) -> int | None:
        """Renew a lease; for how many seconds from now on, `None` if etcd does not know it."""
        answer = await self._client.call("/v3/lease/keepalive", {"ID": str(lease_id)})
        result = answer.get("result")
        if not isinstance(result, dict):
            raise EtcdMisconfigured("etcd answers the renewal of a lease without a result")
        return _number(result, "TTL") if int(result.get("TTL", 0)) > 0 else None

    async def revoke(self, lease_id: int) -> None:
        """End a lease. Its keys go."""
        await self._client.call("/v3/lease/revoke", {"ID": str(lease_id)})

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await self._client.call("/v3/kv/deleterange", {"key": _encoded(key)})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _prefix(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": _encoded(prefix), "range_end": _encoded(end)}


def _put(put: Put) -> dict[str, Any]:
    value = base64.b64encode(put.value).decode("ascii")
    return {"key": _encoded(put.key), "value": value, "lease": str(put.lease_id)}


def _either(document: dict[str, Any], *names: str) -> Any:
    """A field, in whichever of its two spellings a release of etcd has it."""
    for name in names:
        if name in document:
            return document[name]
    return None


def _number(document: dict[str, Any], *names: str) -> int:
    value = _either(document, *names)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise EtcdMisconfigured(f"etcd answers {names[0]} {str(value)[:80]!r}") from error


def _revision(answer: dict[str, Any]) -> int:
    header = answer.get("header")
    if not isinstance(header, dict):
        raise EtcdMisconfigured("etcd answers without a header")
    return _number(header, "revision")


def _key_values(answer: dict[str, Any]) -> tuple[KeyValue, ...]:
    found = answer.get("kvs", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise EtcdMisconfigured("etcd answers with keys that are no list")
    return tuple(_key_value(each) for each in found)


def _key_value(document: dict[str, Any]) -> KeyValue:
    try:
        key = base64.b64decode(document["key"]).decode("utf-8", "replace")
        value = base64.b64decode(document.get("value", ""))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise EtcdMisconfigured(
            f"etcd answers with a key that is not in base64: {error}"
        ) from error
    lease_id = int(document.get("lease", 0) or 0)
    return KeyValue(key, value, _number(document, "mod_revision", "modRevision"), lease_id)
