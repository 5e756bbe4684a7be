"""Requests of connections without a login: the broker answers only those with `before_login`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...protocol.api.encodings import Encoding
from ...protocol.api.framing import Frame, ProtocolError
from ...protocol.api.native.frames import RequestHead
from ...protocol.api.registry import APIS
from ...protocol.errors import CodedError, IllegalSaslState, SaslAuthenticationFailed
from ...protocol.limits import LENGTH_BYTES
from ..dispatch import Dispatcher
from ..network.endpoint import Caller, Frames, Source
from ..network.sending import Answer
from ..requests import PendingAnswer
from .logins import Logins
from .session import LoginSession, LoginState, Step

_ANSWERED: Final = frozenset(api.key for api in APIS.values() if api.before_login)


class Gate:
    """Answers requests of connections that have not logged in, or whose session has ended."""

    def __init__(self, dispatcher: Dispatcher, encoding: Encoding, logins: Logins) -> None:
        self._dispatcher = dispatcher
        self._encoding = encoding
        self._logins = logins

    def waits_for_others(self, frame: Frame) -> bool:
        return False

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request and answer it. Raises `ProtocolError` for a request that needs a
        login, if the protocol has no answer for that."""
        frame = frames.popleft()
        session = caller.session
        assert session is not None
        if session.state is LoginState.FAILED:
            raise ProtocolError("a request behind a login that failed")
        if session.raw:
            return (self._answer_raw(session, frame),)
        head, _ = self._encoding.open_request(frame)
        if head.api_key in _ANSWERED:
            return (self._dispatcher.answer_one(frame, caller),)
        api = APIS.get(head.api_key)
        name = f"request {head.api_key}" if api is None else api.name
        why = "the login of this connection has ended" if session.name else "there was none"
        error = IllegalSaslState(f"{name} needs a login at this address, and {why}")
        if not self._encoding.NATIVE:
            # As in Kafka, whose clients are configured for SASL or cannot log in.
            raise ProtocolError(error.message)
        return self._refused(head, error)

    def _refused(self, head: RequestHead, error: CodedError) -> Iterator[Answer]:
        """Answer with the error, and close the connection."""
        yield self._encoding.encode_refusal(head, None, None, error.code, error.message)
        raise ProtocolError(error.message)

    def answer_in_bulk(self, sources: Sequence[Source]) -> Sequence[tuple[int, Iterable[Answer]]]:
        return [(0, ()) for _ in sources]

    def _answer_raw(self, session: LoginSession, frame: Frame) -> Answer:
        """Return the answer to a SASL message without a request header. A refused login has no
        answer: the connection is closed."""
        try:
            step = self._logins.step(session, bytes(frame))
        except IllegalSaslState as error:
            raise ProtocolError(error.message) from None
        if isinstance(step, Step):
            return _raw(step)

        def make() -> Answer:
            try:
                return _raw(step.result())
            except SaslAuthenticationFailed:
                session.fail()
                return None

        return PendingAnswer(step, make, alone=True)


def _raw(step: Step) -> bytes:
    return len(step.content).to_bytes(LENGTH_BYTES, "big") + step.content
