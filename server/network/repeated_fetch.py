"""Fetches of one partition that repeat one before them, answered in a fraction of its time.

All there is to do for them is to find the bytes. Whatever is not as usual, from a wait to an error,
is left to the handler, which meets the same.
"""

from functools import partial

from ...protocol.api.forms import fetch_forms
from ...protocol.api.forms.fetch_forms import FetchForm, has_form
from ...protocol.api.log.fetch import FETCH, READ_COMMITTED, FetchRequest
from ...protocol.api.native.frames import Frame, RequestHead
from ..handlers.base import Services
from ..handlers.fetch import (
    FIRST_VERSION_WITH_MAX_BYTES,
    FIRST_VERSION_WITH_V1,
    budget_bytes,
    newest_format,
    records_of,
)
from ..outcomes import NO_ERROR_NAME
from .known_forms import KnownForms
from .sending import Answer, AnswerInParts


class RepeatedFetches:
    """Of all connections that speak one encoding."""

    def __init__(self, services: Services, *, is_native: bool) -> None:
        self._services = services
        self._wire = fetch_forms.NATIVE if is_native else fetch_forms.KAFKA
        self._known: KnownForms[FetchForm] = KnownForms(self._wire)

    def learn(self, head: RequestHead, request: FetchRequest) -> None:
        """Know requests like this one from now on."""
        if head.version < FIRST_VERSION_WITH_V1 or not has_form(request):
            return
        (topic,) = request.topics
        (wanted,) = topic.partitions
        what = (
            *(head.version, head.client_id, topic.name, wanted.partition),
            *(wanted.partition_max_bytes, wanted.log_start_offset, wanted.current_leader_epoch),
            *(request.max_wait_ms, request.min_bytes, request.max_bytes),
            *(request.isolation_level, request.session_id, request.session_epoch),
        )
        self._known.learn(what, partial(FetchForm, self._wire, head, request))

    def answer(self, frame: Frame) -> Answer:
        """The answer to a request that is known, if there is enough to be read; else `None`."""
        began = self._services.work.time()
        found = self._known.find(frame)
        if found is None:
            return None
        try:
            answer = self._read(*found)
        except Exception:
            return None  # The handler tells the client.
        if answer is not None:
            seconds = self._services.work.time() - began
            self._services.figures.answered(FETCH.name, NO_ERROR_NAME, seconds)
        return answer

    def _read(self, form: FetchForm, correlation_id: int, offset: int) -> Answer:
        services, request, wanted = self._services, form.request, form.wanted
        log = services.logs.find(form.topic, wanted.partition)
        committed = request.isolation_level == READ_COMMITTED
        aborted = committed and log.producers.states.aborted
        if aborted or not log.prepared or not log.located(offset):
            return None
        most = budget_bytes(services.settings, request, form.version)
        found = log.read(
            offset,
            max(min(wanted.partition_max_bytes, most), 0),
            whole_first=form.version >= FIRST_VERSION_WITH_MAX_BYTES,
            committed=committed,
        )
        available = min(found.size, wanted.partition_max_bytes)
        if not found.size or available < request.min_bytes:
            return None  # It may have to wait.
        if found.magic > newest_format(form.version):
            return None
        records = records_of(found)
        size = len(records)
        numbers = found.high_watermark, log.last_stable_offset, log.log_start_offset
        head = form.answer_head(correlation_id, numbers, size)
        services.figures.topic(form.topic).bytes_out += size
        if isinstance(records, (bytes, bytearray)):
            return b"".join((head, records))
        return AnswerInParts((head, records))
