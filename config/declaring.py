"""How the tables of the broker's settings declare one."""

from typing import Any

from .setting import Kind, Scope, Setting, Value


def setting(name: str, kind: Kind, default: Value, doc: str, **more: Any) -> Setting:
    """A setting of the broker; `more` as `Setting` has them."""
    return Setting(name=name, scope=Scope.BROKER, kind=kind, default=default, doc=doc, **more)


def integer(name: str, default: int, unit: str, doc: str, **more: Any) -> Setting:
    """A whole number of at least 1 unless `more` says otherwise."""
    return setting(name, Kind.INTEGER, default, doc, unit=unit, **{"minimum": 1} | more)
