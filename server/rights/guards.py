"""Handlers that answer what may be done, and refuse the rest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...protocol.api.kafka.refusals import named_field, refused_each
from ...protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.pieces import Pieces
from ...protocol.api.rights import How, Need
from ...protocol.api.schema import Api, replaced
from ...protocol.api.topics.metadata import METADATA
from ...protocol.errors import CodedError
from ..handlers.base import Services
from ..handlers.produce import NO_ANSWER
from ..outcomes import CloseConnection
from ..requests import Call, Handler, in_turns, then
from .checked_request import CheckedRequest


def guarded(api: Api, handler: Handler) -> Handler:
    """`handler` for clients that have the rights of the request."""
    whole = [need for need in api.rights if need.how is How.WHOLE]
    each = [need for need in api.rights if need.how is How.EACH]

    def handle(services: Services, request: Any, call: Call) -> Any:
        checked = CheckedRequest(services, api, request, call)
        for need in whole:
            name = whole_name(request)
            if not checked.may(need, name):
                return refused_whole(checked, need, name)
        return answer_each(checked, each, handler) if each else handler(services, request, call)

    return handle


def whole_name(request: Any) -> str:
    """The topic or group that a request is about as a whole; empty for one about neither."""
    for field in ("group_id", "topic", "key"):
        name = getattr(request, field, None)
        if isinstance(name, str):
            return name
    return ""


def refused_whole(checked: CheckedRequest, need: Need, name: str) -> Any:
    """Refuses the request. Raises the error, where there is no other way that Kafka has."""
    error = checked.refusal(need, name)
    if checked.api is DESCRIBE_LOG_DIRS and checked.call.kafka:
        return DescribeLogDirsResponse(results=[])
    raise error


def answer_each(checked: CheckedRequest, needs: Sequence[Need], handler: Handler) -> Any:
    """The answer for those that the request names and that may be asked about; beside each of the
    others stands its error."""
    return in_turns(checked.services.work, _answer_each(checked, needs, handler))


def _answer_each(checked: CheckedRequest, needs: Sequence[Need], handler: Handler) -> Pieces[Any]:
    services, request, call = checked.services, checked.request, checked.call
    context = services.creations.context
    field = named_field(type(request))
    kept: list[Any] = []
    refused: list[tuple[Any, CodedError]] = []
    for item in getattr(request, field) or ():
        error = _error_of(checked, needs, item)
        if error is None:
            kept.append(item)
        else:
            refused.append((item, error))
        yield
    services.creations.context = context
    if not refused:
        return handler(services, request, call)
    if checked.api is PRODUCE and request.acks == NO_ANSWER:
        return _unanswered(checked, handler, kept, refused[0][1])
    name, results = yield from refused_each(checked.api.response, refused)
    services.creations.context = context
    if not kept and checked.api is METADATA:
        call = replace(call, version=max(call.version, 1))  # In version 0 none means all.
    elif not kept:
        return checked.api.response(**{name: results})
    smaller = replaced(request, **{field: kept})

    def add(response: Any) -> Any:
        getattr(response, name).extend(results)
        return response

    return then(handler(services, smaller, call), add)


def _error_of(checked: CheckedRequest, needs: Sequence[Need], item: Any) -> CodedError | None:
    name = item_name(item)
    for need in needs:
        if checked.applies(need, item, name) and not checked.may(need, name):
            return checked.refusal(need, name)
    return None


def item_name(item: Any) -> str:
    """What something is called that a request names."""
    if isinstance(item, str):
        return item
    found = getattr(item, "name", None)
    return str(item.resource_name if found is None else found)


def _unanswered(
    checked: CheckedRequest, handler: Handler, kept: Sequence[Any], error: CodedError
) -> Any:
    """A produce with acks=0: what may be appended is, and then the connection is closed."""
    closing = CloseConnection(f"a produce with acks=0 was refused: {error.message}", error.code)

    def close(_: Any) -> Any:
        raise closing

    if not kept:
        raise closing
    smaller = replaced(checked.request, topics=list(kept))
    return then(handler(checked.services, smaller, checked.call), close)
