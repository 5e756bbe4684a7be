"""Produce requests that repeat one before them, answered in a fraction of its time.

What is asked for is the same every time, so that all there is to do is to take the record sets and
to make the answers. Requests that name one partition and want an answer are learned; whatever else
comes is left to the handler.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...protocol.api.encodings import Encoding
from ...protocol.api.forms import kafka_produce_forms, produce_forms
from ...protocol.api.forms.kafka_produce_forms import KafkaProduceForm
from ...protocol.api.forms.produce_forms import ProduceForm
from ...protocol.api.log.produce import PRODUCE, ProduceRequest, ProduceResponse
from ...protocol.api.native.frames import RequestHead
from ...protocol.api.schema import replaced
from ...protocol.limits import LENGTH_BYTES
from ..handlers.appends import DURABLE, IN_THE_LOG
from ..handlers.base import Later, Services
from ..handlers.produce import append_alone
from ..late_appends import Sender
from ..outcomes import NO_ERROR_NAME, error_name, first_error
from ..parking import Partition
from .endpoint import Frames
from .sending import Answer, Deferred, SharedWait

_FORMS_MAX: Final = 256
"""Producers and partitions that are known at a time; one more begins anew."""


class _Asked(NamedTuple):
    """Requests for one partition."""

    forms: Sequence[ProduceForm]
    numbers: Sequence[int]
    """Their correlation ids."""
    record_sets: Sequence[memoryview]
    origins: "_Origins"
    places: Sequence[int]
    """Which of all requests in hand they are."""


class _Origins:
    """Which connection each of the requests in hand is from."""

    __slots__ = ("_ends", "_senders")

    def __init__(self, ends: Sequence[int]) -> None:
        """The first connection's end at the first of `ends`, and so on."""
        self._ends = ends
        self._senders: dict[int, Sender] = {}

    def sender(self, place: int) -> Sender:
        return self._senders.setdefault(bisect_right(self._ends, place), Sender())


class RepeatedProduces:
    """The forms of requests that are known, of all connections that speak one encoding."""

    def __init__(self, services: Services, encoding: Encoding) -> None:
        self._services = services
        self._encoding = encoding
        self._form = ProduceForm if encoding.NATIVE else KafkaProduceForm
        self._split = (produce_forms if encoding.NATIVE else kafka_produce_forms).split
        self._forms: dict[Any, ProduceForm] = {}
        self._learned: set[tuple[object, ...]] = set()
        self._latest: ProduceForm | None = None
        """Of the last burst: the next one is most likely of the same."""

    def learn(self, head: RequestHead, request: ProduceRequest) -> None:
        """Know requests like this one from now on."""
        if request.acks not in (IN_THE_LOG, DURABLE) or len(request.topics) != 1:
            return
        if request.transactional_id is not None:
            return
        (topic,) = request.topics
        if len(topic.partitions) != 1:
            return
        named = topic.name, topic.partitions[0].partition
        key = *named, head.version, head.client_id, request.acks, request.timeout_ms
        if key in self._learned:
            return  # it comes in another form
        if len(self._learned) >= _FORMS_MAX:
            self._forms.clear()
            self._learned.clear()
        self._learned.add(key)
        form = self._form(head, request)
        self._forms[form.around] = form

    def answer_burst(self, received: memoryview, most: int) -> tuple[int, Sequence[Answer]]:
        """Answer the requests at the front of frames with their lengths, up to so many, if several
        of one form are there that is known: how many bytes they take, and their answers, as one if
        all are made."""
        began = self._services.work.time()
        form = self._latest
        end, numbers, record_sets = (0, (), ()) if form is None else form.burst(received, most)
        if not numbers:
            form = self._first_in(received)
            if form is None:
                return 0, ()
            self._latest = form
            end, numbers, record_sets = form.burst(received, most)
        if form is None or len(numbers) < 2 or not self._services.creations.exists(form.topic):
            return 0, ()
        count = len(numbers)
        asked = _Asked([form] * count, numbers, record_sets, _Origins((count,)), range(count))
        answers = self._answers((form.topic, form.partition), asked, began)
        made = [answer for answer in answers if isinstance(answer, bytes)]
        return end, answers if len(made) < len(answers) else (b"".join(made),)

    def _first_in(self, received: memoryview) -> ProduceForm | None:
        """The form of the first request of frames with their lengths, if it is whole and known."""
        end = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "big")
        parts = self._split(received[LENGTH_BYTES:end]) if end < len(received) else None
        return None if parts is None else self._forms.get(parts[0])

    def answer(self, frames: Frames, most: int, most_bytes: int) -> Sequence[Answer]:
        """Take the requests that are known off the front of `frames` and answer them.

        At most so many, and none once they have `most_bytes`.
        """
        (answers,) = self.answer_all(((frames, most),), most_bytes)
        return answers

    def answer_all(  # noqa: C901 - one loop over requests
        self, sources: Sequence[tuple[Frames, int]], most_bytes: int
    ) -> list[list[Answer]]:
        """As `answer`, for several connections, each with its own frames and how many of them may
        be taken: what they bring for one partition is appended at once."""
        began = self._services.work.time()
        found: list[tuple[ProduceForm, int, memoryview]] = []
        ends = []
        by_partition: dict[Partition, list[int]] = {}
        split, exists = self._split, self._services.creations.exists
        for frames, most in sources:
            begin, size = len(found), 0
            for frame in frames:
                if len(found) - begin >= most or size >= most_bytes:
                    break
                parts = split(frame)
                form = None if parts is None else self._forms.get(parts[0])
                if parts is None or form is None:
                    break
                alike = by_partition.get((form.topic, form.partition))
                if alike is None:
                    if not exists(form.topic):
                        break  # The handler has it made.
                    alike = by_partition[form.topic, form.partition] = []
                elif not form.asks_as(found[alike[0]][0]):
                    break  # To be appended behind those, in order.
                alike.append(len(found))
                found.append((form, parts[1], parts[2]))
                size += len(frame)
            for _ in range(len(found) - begin):
                frames.popleft()
            ends.append(len(found))
        answers: list[Answer] = [None] * len(found)
        origins = _Origins(ends)
        for partition, places in by_partition.items():
            forms, numbers, record_sets = zip(*[found[place] for place in places], strict=True)
            asked = _Asked(forms, numbers, record_sets, origins, places)
            made = self._answers(partition, asked, began)
            for place, answer in zip(places, made, strict=True):
                answers[place] = answer
        return [answers[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _answers(self, partition: Partition, asked: _Asked, began: float) -> Sequence[Answer]:
        """The answers to what was sent to one partition, whatever happens."""
        services = self._services
        try:
            return self._append(partition, asked, began)
        except Exception as error:
            code, message = services.outcomes.of(error, api=PRODUCE.name)
            self._count(error_name(code), began, len(asked.forms))
            return [
                self._encoding.encode_refusal(
                    RequestHead(PRODUCE.key, form.version, number, None),
                    PRODUCE,
                    form.request,
                    code,
                    message,
                )
                for form, number in zip(asked.forms, asked.numbers, strict=True)
            ]

    def _append(self, partition: Partition, asked: _Asked, began: float) -> Sequence[Answer]:
        forms, numbers, record_sets, origins, places = asked
        form = forms[0]
        outcome = append_alone(
            *(self._services, partition, record_sets, form.acks, form.timeout_ms),
            lambda number: origins.sender(places[number]),
        )
        if isinstance(outcome, list):
            return [self._answer(*one, began) for one in zip(forms, numbers, outcome, strict=True)]
        appended, response = outcome
        told = appended.append_time_ms, appended.log_start_offset
        make = form.answers(*told)
        if forms.count(form) == len(forms):
            answers = list(map(make, numbers, appended.first_offsets))
        else:
            answers = []
            for of, number, first_offset in zip(
                forms, numbers, appended.first_offsets, strict=True
            ):
                if of is not form:
                    form, make = of, of.answers(*told)
                answers.append(make(number, first_offset))
        if isinstance(response, Later):
            return self._answers_later(response, asked, appended.first_offsets, answers, began)
        self._count(NO_ERROR_NAME, began, len(answers))
        return answers

    def _answers_later(
        self,
        later: Later,
        asked: _Asked,
        first_offsets: Sequence[int],
        answers: Sequence[bytes],
        began: float,
    ) -> list[Answer]:
        """Answers that are given once the wait is over; others, if it did not end well."""
        forms, numbers = asked.forms, asked.numbers
        wait = SharedWait()
        refused: list[ProduceResponse] = []

        def end(_: object) -> None:
            response = later.make()
            result = error_name(first_error(response))
            if result != NO_ERROR_NAME:
                refused.append(response)
            self._count(result, began, len(answers))
            wait.end()

        def answer(place: int) -> bytes:
            if not refused:
                return answers[place]
            response = _from(refused[0], first_offsets[place])
            return self._encoding.encode_response(
                numbers[place], PRODUCE, forms[place].version, response
            )

        later.ready.add_done_callback(end)
        return [Deferred(wait, partial(answer, place)) for place in range(len(answers))]

    def _answer(
        self,
        form: ProduceForm,
        correlation_id: int,
        response: ProduceResponse | Later,
        began: float,
    ) -> Answer:
        if isinstance(response, Later):
            return Deferred(
                response.ready,
                lambda: self._answer(form, correlation_id, response.make(), began),
                alone=response.alone,
                held_bytes=response.held_bytes,
            )
        self._count(error_name(first_error(response)), began, 1)
        return self._encoding.encode_response(correlation_id, PRODUCE, form.version, response)

    def _count(self, result: str, began: float, requests: int) -> None:
        services = self._services
        seconds = services.work.time() - began
        services.figures.answered(PRODUCE.name, result, seconds, requests)


def _from(response: ProduceResponse, first_offset: int) -> ProduceResponse:
    """A response for one partition with the offset of another's set."""
    (topic,) = response.topics
    (result,) = topic.partitions
    own = replaced(result, base_offset=first_offset)
    return replaced(response, topics=[replaced(topic, partitions=[own])])
