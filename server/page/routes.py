"""Routes of the page, and the headers of their answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from aiohttp import web

from ...protocol.errors import (
    InvalidRequest,
    InvalidTopic,
    OffsetOutOfRange,
    StorageError,
    UnknownTopicOrPartition,
)
from ...values import value_class
from ..handlers.base import Services
from ..security.session import ANONYMOUS
from ..web.authentication import HttpPeer
from ..web.connection import OF_EVERY_ANSWER
from .access import Allowed, Everything, PageAccess, PageRefusal, Query, Viewer
from .consumers import consumers
from .download import lines
from .histogram import histogram
from .messages import find, messages
from .topics import members, segments, settings, topics
from .window import window

FOLDER: Final = Path(__file__).resolve().parents[1] / "static"

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

AT_WORK: Final = 8
"""Requests for JSON in progress at one time; further ones are refused with 503."""

SECONDS: Final = 10.0
"""Longest time for a request, needed at worst by a search in a log that is not in memory."""

DOWNLOADS: Final = 2
"""Downloads in progress at one time; further ones are refused with 503."""

STALL_SECONDS: Final = 30.0
"""Longest time in which a download takes nothing of what is sent."""

HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-cache",
    }
)

STATUSES: Final = MappingProxyType(
    {
        UnknownTopicOrPartition.code: 404,
        InvalidRequest.code: 400,
        InvalidTopic.code: 400,
        OffsetOutOfRange.code: 400,
    }
)
"""HTTP status by error code, for mistakes of the client; 500 for other errors."""

Answer = Callable[[Services, Query], Awaitable[Mapping[str, object]]]

ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "topics": topics,
        "segments": segments,
        "messages": messages,
        "find": find,
        "histogram": histogram,
        "window": window,
        "consumers": consumers,
        "members": members,
        "settings": settings,
    }
)


@value_class
class StaticFile:
    """One file in the form in which it is sent."""

    content_type: str
    content: bytes
    etag: str
    """Entity tag, without quotes."""


def read_files() -> dict[str, StaticFile]:
    """Return all files by name. Raises `OSError`."""
    found = {}
    for path in FOLDER.iterdir():
        if path.suffix in TYPES:
            content = path.read_bytes()
            etag = sha256(content).hexdigest()[:16]
            found[path.name] = StaticFile(TYPES[path.suffix], content, etag)
    return found


class Page:
    """Adds the page to a web application. The page changes nothing, and only answers GET and
    HEAD."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._files: Mapping[str, StaticFile] = {}
        self._at_work = 0
        self._downloads = 0

    def add_to(self, application: web.Application) -> None:
        router = application.router
        router.add_get("/", partial(self._file, "index.html"))
        router.add_get("/login", partial(self._file, "login.html"))
        router.add_get("/static/{name}", self._named_file)
        for name, answer in ANSWERS.items():
            router.add_get(f"/page/{name}", partial(self._json, name, answer))
        router.add_get("/page/download", self._download, allow_head=False)

    async def _named_file(self, request: web.Request) -> web.StreamResponse:
        return await self._file(request.match_info["name"], request)

    async def _file(self, name: str, request: web.Request) -> web.StreamResponse:
        if not self._files:
            self._files = await self._services.work.in_reading_thread(read_files)
        file = self._files.get(name)
        if file is None:
            return _text(404, "there is no such file\n")
        headers = {**HEADERS, "ETag": f'"{file.etag}"'}
        known = request.if_none_match or ()
        if any(tag.value == file.etag for tag in known):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = file.content_type
        return web.Response(body=file.content, headers=headers)

    async def _json(self, name: str, answer: Answer, request: web.Request) -> web.StreamResponse:
        if _is_of_other_site(request):
            return _refused(403, OTHER_SITE)
        if self._at_work >= AT_WORK:
            return _refused(503, f"{AT_WORK} requests of pages are being worked on already")
        self._at_work += 1
        peer = cast(HttpPeer, request.protocol)
        peer.cancel_when_lost(asyncio.current_task())
        topic = request.query.get("topic", "")
        topic_id = self._topic_id(topic)
        try:
            async with asyncio.timeout(SECONDS):
                found = await answer(self._services, self._query(name, request, peer))
        except TimeoutError:
            return _refused(503, f"it took longer than {SECONDS:g} s")
        except Exception as error:
            if isinstance(error, OSError | StorageError) and self._topic_id(topic) != topic_id:
                return _refused(404, f"topic {topic!r} was deleted meanwhile")
            return self._refusal(error)
        finally:
            peer.cancel_when_lost(None)
            self._at_work -= 1
        return _sent(200, found)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if _is_of_other_site(request):
            return _refused(403, OTHER_SITE)
        if self._downloads >= DOWNLOADS:
            return _refused(503, f"{DOWNLOADS} downloads are in progress already; try again later")
        self._downloads += 1
        peer = cast(HttpPeer, request.protocol)
        peer.cancel_when_lost(asyncio.current_task())
        response: web.StreamResponse | None = None
        try:
            query = self._query("download", request, peer)
            async for piece in lines(self._services, query):
                if response is None:
                    response = await _begun(request, query)
                async with asyncio.timeout(STALL_SECONDS):
                    await response.write(piece)
            if response is None:
                response = await _begun(request, query)
            async with asyncio.timeout(STALL_SECONDS):
                await response.write_eof()
        except Exception as error:
            stalled = response is not None and isinstance(error, (ConnectionError, TimeoutError))
            refusal = None if stalled else self._refusal(error)
            if response is None:
                assert refusal is not None
                return refusal
            # The browser must see that the file is not complete.
            if request.transport is not None:
                request.transport.abort()
        finally:
            peer.cancel_when_lost(None)
            self._downloads -= 1
        return response

    def _topic_id(self, name: str) -> str:
        entry = self._services.directory.topics().get(name)
        return "" if entry is None else entry.topic_id

    def _query(self, name: str, request: web.Request, peer: HttpPeer) -> Query:
        access = self._access(name, request, peer)
        return Query(request.query, access, self._viewer(peer))

    def _refusal(self, error: Exception) -> web.Response:
        """Return the answer for an error of a request."""
        if isinstance(error, PageRefusal):
            return _refused(error.status, error.message)
        code, message = self._services.outcomes.of(error, api="page")
        return _refused(STATUSES.get(code, 500), message)

    def _viewer(self, peer: HttpPeer) -> Viewer:
        known = peer.principal != ANONYMOUS or self._services.security.authorization
        return Viewer(peer.principal if known else None, peer.has_session)

    def _access(self, name: str, request: web.Request, peer: HttpPeer) -> PageAccess:
        """Return what the viewer may see. Raises `PageRefusal` for a topic that the viewer may not
        see, and when the ACLs of this broker may be out of date."""
        if not self._services.security.authorization:
            return Everything()
        old = self._services.replication.rules_may_be_old()
        if old:
            raise PageRefusal(503, old)
        allowed = Allowed(self._services, peer.principal, peer.address)
        topic = request.query.get("topic", "")
        if topic:
            allowed.check(name, topic)
        return allowed


OTHER_SITE: Final = "this is for the page itself, not for other sites"


def _is_of_other_site(request: web.Request) -> bool:
    return request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")


async def _begun(request: web.Request, query: Query) -> web.StreamResponse:
    """Return the answer of a download, whose head is sent."""
    from_ms, until_ms = query.window()
    end = "" if query.no_end else f"-{until_ms}"
    name = f"{query.text('topic')}-{from_ms}{end}.jsonl"
    headers = {
        **HEADERS,
        "Cache-Control": "no-store",
        "Content-Type": "application/jsonl; charset=utf-8",
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    response = web.StreamResponse(headers=headers)
    response.headers.update(OF_EVERY_ANSWER)
    await response.prepare(request)
    return response


def _refused(status: int, message: str) -> web.Response:
    return _sent(status, {"error": message})


def _sent(status: int, found: Mapping[str, object]) -> web.Response:
    body = json.dumps(found, separators=(",", ":")).encode()
    headers = {**HEADERS, "Cache-Control": "no-store", "Content-Type": "application/json"}
    return web.Response(status=status, body=body, headers=headers)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=HEADERS)
