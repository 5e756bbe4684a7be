"""The rules of declaring requests."""

from typing import Any

import pytest

from horolog.protocol.api import registry, schema
from horolog.protocol.api.rights import NO_RIGHTS
from horolog.protocol.api.schema import fields_of


def test_an_integer_type_knows_its_range() -> None:
    ranges = [(t.low, t.high) for t in (schema.INT8, schema.INT16, schema.INT32, schema.INT64)]
    assert ranges == [
        (-128, 127),
        (-(2**15), 2**15 - 1),
        (-(2**31), 2**31 - 1),
        (-(2**63), 2**63 - 1),
    ]


@pytest.mark.parametrize(
    "options", [{"since": 1}, {"until": 0}, {"native": True}], ids=["since", "until", "native"]
)
def test_a_field_that_may_be_absent_needs_a_default(options: Any) -> None:
    with pytest.raises(TypeError, match="needs a default"):
        schema.int32(**options)


def test_a_native_field_stands_after_kafkas() -> None:
    with pytest.raises(TypeError, match=r"Late\.kafkas stands after a native field"):

        @schema.message
        class Late:
            ours: int = schema.int32(native=True, default=0)
            kafkas: int = schema.int32()


def test_an_attribute_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Plain\.number is not declared"):

        @schema.message
        class Plain:
            number: int


def test_a_list_default_is_not_shared() -> None:
    @schema.message
    class Holder:
        numbers: list[int] = schema.array(schema.INT32, max_items=3, default=())

    Holder().numbers.append(1)
    assert Holder().numbers == []


def test_keys_and_names_are_unique() -> None:
    apis = registry.APIS.values()
    assert [key for key, api in registry.APIS.items() if key != api.key] == []
    assert len({api.name for api in apis}) == len(apis)


def test_only_requests_that_kafka_lacks_have_keys_beyond_its_own() -> None:
    assert all(api.native == (api.key >= 1000) for api in registry.APIS.values())


@schema.message
class Grown:
    """Kafka's version 1 has a field that the native encoding has from version 0 on."""

    first: int = schema.int32()
    later: str | None = schema.nullable_string(since=1, native_since=0, default=None)
    last: bytes = schema.data(since=1, default=b"")


def names(version: int, *, native: bool) -> list[tuple[str, bool]]:
    return [(spec.name, spec.native) for spec in fields_of(Grown, version, native=native)]


def test_a_field_can_be_older_in_the_native_encoding() -> None:
    assert names(0, native=False) == [("first", False)]
    assert names(0, native=True) == [("first", False), ("later", True)]
    kafkas = [("first", False), ("later", False), ("last", False)]
    assert names(1, native=False) == names(1, native=True) == kafkas


@pytest.mark.parametrize(
    ("options", "native", "kafka"),
    [
        ({}, range(4), range(4)),
        ({"native_max_version": 1}, range(2), range(4)),
        ({"native_max_version": -1}, range(0), range(4)),
        ({"native": True}, range(4), range(0)),
    ],
    ids=["both", "fewer", "kafka-only", "native-only"],
)
def test_each_encoding_has_its_versions(options: Any, native: range, kafka: range) -> None:
    api = schema.Api(
        key=1,
        name="grown",
        min_version=0,
        max_version=3,
        request=Grown,
        response=Grown,
        doc="",
        rights=NO_RIGHTS,
        **options,
    )
    assert (api.versions(native=True), api.versions(native=False)) == (native, kafka)
