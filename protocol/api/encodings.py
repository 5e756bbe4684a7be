"""What a dispatcher needs of an encoding. There are two: the modules `native` and `kafka`."""

from typing import Any, Protocol, TypeVar

from .native import Frame, RequestHead
from .packing import Elsewhere
from .schema import Api

T = TypeVar("T")


class Encoding(Protocol):
    """Requests out of frames, and frames out of responses."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """What the log calls it."""
        ...

    @property
    def NATIVE(self) -> bool:  # noqa: N802
        """Which versions of requests it has."""
        ...

    def likely_api_key(self, frame: Frame) -> int | None: ...

    def open_request(self, frame: Frame) -> tuple[RequestHead, Any]: ...

    def decode_body(self, struct: type[T], version: int, raw: Any) -> T: ...

    def encode_response(
        self, correlation_id: int, api: Api, version: int, body: object
    ) -> bytes: ...

    def encode_answer(
        self, correlation_id: int, api: Api, version: int, body: object
    ) -> bytes | list[bytes | Elsewhere]: ...

    def encode_refusal(
        self, head: RequestHead, api: Api | None, request: object, code: int, message: str
    ) -> bytes: ...
