"""The table of all requests, by key: every `Api` declared by a module in a subfolder of this
package."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType
from typing import Final

from . import broker, cluster, groups, log, security, topics
from .schema import Api

_FOLDERS: Final = (broker, cluster, groups, log, security, topics)


def _declared(folders: tuple[ModuleType, ...]) -> Iterator[Api]:
    for folder in folders:
        for module in iter_modules(folder.__path__, f"{folder.__name__}."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, Api):
                    yield value


def _by_key(apis: Iterator[Api]) -> dict[int, Api]:
    found: dict[int, Api] = {}
    for api in apis:
        other = found.setdefault(api.key, api)
        assert other is api, f"{other.name} and {api.name} have the key {api.key}"
    return dict(sorted(found.items()))


APIS: Final[Mapping[int, Api]] = MappingProxyType(_by_key(_declared(_FOLDERS)))
