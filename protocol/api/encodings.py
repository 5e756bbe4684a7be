"""The interface of an encoding, for brokers and clients. The packages `native` and `kafka`
implement it."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .framing import Frame
from .native.frames import Request, RequestHead, ResponseHead
from .pieces import Pieces
from .schema import Api
from .writing import AnswersEncoder, InMemory, Written

T = TypeVar("T")


class Encoding(Protocol):
    """Encodes and decodes the frames of requests and responses."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """Name of the protocol in the log."""
        ...

    @property
    def NATIVE(self) -> bool:  # noqa: N802
        """Whether requests have their native versions, not Kafka's."""
        ...

    # For brokers.

    def kind_of(self, frame: Frame) -> int | None: ...

    def reader(self, api: Api, version: int) -> Callable[[Frame], Request | None]: ...

    def open_request(self, frame: Frame) -> tuple[RequestHead, Any]: ...

    def decode_body(self, struct: type[T], version: int, raw: Any) -> T: ...

    def decode_in_pieces(self, struct: type[T], version: int, raw: Any) -> Pieces[T]: ...

    def decodes_slowly(self, struct: type[Any], version: int) -> bool: ...

    def encode_response(
        self, correlation_id: int, api: Api, version: int, body: object
    ) -> bytes: ...

    def answers_encoder(self, api: Api, version: int) -> AnswersEncoder: ...

    def answer_in_pieces(
        self, api: Api, version: int, correlation_id: int, body: object
    ) -> Pieces[Written]: ...

    def encode_refusal(
        self, head: RequestHead, api: Api | None, request: object, code: int, message: str
    ) -> bytes: ...

    def refuse_in_pieces(
        self, head: RequestHead, api: Api, request: object, code: int, message: str
    ) -> Pieces[Written]: ...

    # For clients.

    def encode_request(
        self, api: Api, version: int, correlation_id: int, client_id: str | None, body: object
    ) -> bytes: ...

    def request_parts(
        self, api: Api, version: int, correlation_id: int, client_id: str | None, body: object
    ) -> list[InMemory]: ...

    def open_response(self, frame: Frame) -> tuple[ResponseHead, Any]: ...

    def decode_response(self, struct: type[T], version: int, raw: Any) -> T: ...

    def error_message(self, raw: Any) -> str | None: ...
