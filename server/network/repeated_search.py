"""Searches by time in one partition that repeat one before them, answered in a fraction of its
time. What takes more than a look, and what is refused, is left to the handler."""

from functools import partial

from ...protocol.api.forms import list_offsets_forms
from ...protocol.api.forms.list_offsets_forms import ListOffsetsForm, has_form
from ...protocol.api.log.list_offsets import LIST_OFFSETS, ListOffsetsRequest
from ...protocol.api.native.frames import Frame, RequestHead
from ..handlers.base import Services
from ..handlers.list_offsets import FIRST_VERSION_WITH_TIMES, found_at_once
from ..outcomes import NO_ERROR_NAME
from .known_forms import KnownForms


class RepeatedSearches:
    """Of all connections that speak one encoding."""

    def __init__(self, services: Services, *, is_native: bool) -> None:
        self._services = services
        self._wire = list_offsets_forms.NATIVE if is_native else list_offsets_forms.KAFKA
        self._known: KnownForms[ListOffsetsForm] = KnownForms(self._wire)

    def learn(self, head: RequestHead, request: ListOffsetsRequest) -> None:
        """Know requests like this one from now on."""
        if head.version < FIRST_VERSION_WITH_TIMES or not has_form(request):
            return
        (topic,) = request.topics
        (wanted,) = topic.partitions
        what = (
            *(head.version, head.client_id, topic.name, wanted.partition),
            *(wanted.current_leader_epoch, request.replica_id, request.isolation_level),
        )
        self._known.learn(what, partial(ListOffsetsForm, self._wire, head, request))

    def answer(self, frame: Frame) -> bytes | None:
        """The answer to a request that is known, if it is found at once; else `None`."""
        services = self._services
        began = services.work.time()
        known = self._known.find(frame)
        if known is None:
            return None
        form, correlation_id, target = known
        found = found_at_once(services, form.request, form.topic, form.wanted.partition, target)
        if found is None:
            return None
        answer = form.answer(correlation_id, found)
        seconds = services.work.time() - began
        services.figures.answered(LIST_OFFSETS.name, NO_ERROR_NAME, seconds)
        return answer
