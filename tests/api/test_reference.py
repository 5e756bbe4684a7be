"""The reference page: what is in the repository is what the declarations say."""

from pathlib import Path

import horolog
from horolog.protocol.api.native.frames import (
    decode_body,
    decode_response,
    encode_request,
    encode_response,
    open_request,
    open_response,
)
from horolog.protocol.api.reference import EXAMPLES, hex_dump, page
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import all_fields, structs_of

COMMITTED = Path(horolog.__file__).parent / "docs" / "protocol.md"


def test_the_committed_page_is_current() -> None:
    assert COMMITTED.read_text() == page(), "run: make docs"


def test_every_field_is_explained() -> None:
    unexplained = [
        f"{struct.__name__}.{spec.name}"
        for api in APIS.values()
        for message in (api.request, api.response)
        for struct in structs_of(message)
        for spec in all_fields(struct)
        if not spec.doc and "[map]" not in str(spec.type) and not hasattr(spec.type, "of")
    ]
    assert unexplained == []


def test_the_examples_are_whole_and_right() -> None:
    assert [example.api.name for example in EXAMPLES] == ["produce", "fetch"]
    for example in EXAMPLES:
        head = (example.api, example.version, example.correlation_id)
        frame = encode_request(*head, "docs", example.request)
        shown = bytes.fromhex("".join(line[:48] for line in hex_dump(frame)))
        assert shown == frame
        assert decode_body(example.api.request, head[1], open_request(shown[4:])[1]) == (
            example.request
        )
        frame = encode_response(head[2], head[0], head[1], example.response)
        shown = bytes.fromhex("".join(line[:48] for line in hex_dump(frame)))
        assert shown == frame
        assert decode_response(example.api.response, head[1], open_response(shown[4:])[1]) == (
            example.response
        )
