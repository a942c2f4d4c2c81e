"""`LogSite`: the pages and the JSON API of a log by path, as an ASGI application. No sockets.

    /                                   the report, live; its content is at /content
    /topics...                          topics and records: see `log_pages`
    /api/...                            the same as JSON
    /healthz                            200, or 503 if the verdict is red
"""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from sparklog.clock import system_clock
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.ui.jobs import Jobs, in_thread
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.log_pages import JsonResponse, LogPages, Page, Read
from sparklog.ui.page_request import INTERNAL_ERROR, PageRequest
from sparklog.ui.record_pages import failed_content
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import content
from sparklog.ui.result_cache import CachedResult
from sparklog.ui.templating import Refresh, document, render

REFRESH_MS: Final = 5000
_LOGGER: Final = logging.getLogger("sparklog.ui")
_STATUS: Final = (
    (UnknownTopicError, HTTPStatus.NOT_FOUND),
    (InvalidRequestError, HTTPStatus.BAD_REQUEST),
    (LogReplacedError, HTTPStatus.CONFLICT),
    (TopicReplacedError, HTTPStatus.CONFLICT),
    (SparklogError, HTTPStatus.SERVICE_UNAVAILABLE),
    (OSError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class Verdict(Protocol):
    """The verdict on the log's health: `sparklog.service.health.Health`."""

    @property
    def level(self) -> str:
        """Green, amber or red."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""


class LogSite:
    """The pages of a log. They belong to the event loop of one server.

    Args: make: makes a report. browser: reads topics and records; without it there is only the
        report. examine: returns the verdict, for /healthz. asks: whether a token is required.
    """

    def __init__(
        self,
        make: Callable[[], LogReport],
        *,
        browser: LogBrowser | None = None,
        examine: Callable[[], Verdict] | None = None,
        asks: bool = False,
        refresh_ms: int = REFRESH_MS,
        jobs: Jobs | None = None,
    ) -> None:
        def made() -> tuple[LogReport, Markup]:
            try:
                report = make()
            except InvalidRequestError as error:  # there was a log when the server began
                raise StorageUnavailableError(str(error), path=error.path) from error
            return report, content(report, browse=browser is not None)

        self._report = CachedResult(made, fresh_ms=refresh_ms / 2)
        self._health = None if examine is None else CachedResult(examine, fresh_ms=refresh_ms / 2)
        self._browser, self._asks, self._refresh_ms = browser, asks, refresh_ms
        self._jobs = jobs or Jobs()
        pages = () if browser is None else LogPages(browser).routes
        routes = [
            Route("/", self._overview),
            Route("/content", self._overview),
            Route("/healthz", self._healthz),
            Route("/api/report", self._report_json),
            Route("/api/health", self._health_json),
            *(Route(path, self._reading(read, fields)) for path, read, fields in pages),
        ]
        self._router = Router(routes, redirect_slashes=False, default=_nothing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or report its error."""
        try:
            await self._router(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the browser gets its words, or a status alone
            await self._failed(Request(scope), error)(scope, receive, send)

    async def _overview(self, request: Request) -> Response:
        (_, inner), age = await self._report.get()
        page = Page(
            title="Overview", content=inner, source="content", here="Overview", age_s=age
        )  # fmt: skip
        is_part, level = request.scope["path"] == "/content", self._level()
        response = await in_thread(
            lambda: self._shown(PageRequest.of(request), page, level, is_part=is_part)
        )
        response.headers["Age"] = str(age)
        return response

    async def _report_json(self, request: Request) -> Response:
        (report, _), _ = await self._report.get()
        return await in_thread(lambda: JsonResponse(report.to_dict()))

    def _reading(self, read: Read, fields: Sequence[str]) -> Callable[..., Any]:
        """Return the endpoint whose responses `read` makes in a thread, up to limits."""

        async def endpoint(request: Request) -> Response:
            level = self._level()

            def job(stopped: Callable[[], bool]) -> Response:
                asked = PageRequest.of(request, stopped)
                asked.check_fields(*fields)
                found = read(asked, **request.path_params)
                if isinstance(found, Response):
                    return found
                return self._shown(asked, found, level, is_part=asked.flag("part"))

            return await self._jobs.run(job)

        return endpoint

    # --- health ----------------------------------------------------------------------------------

    async def _healthz(self, request: Request) -> Response:
        """Return the verdict; without the token only its colour."""
        verdict = await self._verdict()
        is_red = verdict.level == "red"
        status = HTTPStatus.SERVICE_UNAVAILABLE if is_red else HTTPStatus.OK
        if not getattr(request.state, "admitted", True):
            return PlainTextResponse(f"{verdict.level}\n", status)
        return JsonResponse(verdict.to_dict(), status)

    async def _health_json(self, request: Request) -> Response:
        return JsonResponse((await self._verdict()).to_dict())

    async def _verdict(self) -> Verdict:
        if self._health is None:
            raise UnknownTopicError("health is not examined here")
        return (await self._health.get())[0]

    def _level(self) -> str | None:
        """Return the colour of the last verdict, and have a new one made if it is old."""
        verdict = None if self._health is None else self._health.peek()
        return None if verdict is None else str(verdict.level)

    # --- responses -------------------------------------------------------------------------------

    def _shown(
        self, request: PageRequest, page: Page, level: str | None, *, is_part: bool = False
    ) -> Response:
        """Return a whole page, or the part that refreshes it."""
        inner = page.content
        if self._browser is not None:
            path = "" if page.here == "Overview" else self._browser.path  # the report names it
            top = render(
                "frame.html", root=request.root, path=path, here=page.here, level=level,
                sign_out=self._asks,
            )  # fmt: skip
            inner = top + inner
        if is_part:
            return HTMLResponse(inner.encode("utf-8", "replace"))
        refresh = None
        if page.source:
            source = f"{request.root}{page.source}"
            made_ms = system_clock() - 1000 * page.age_s
            refresh = Refresh(source=source, every_ms=self._refresh_ms, made_ms=made_ms)
        made = document(f"{page.title} - sparklog", inner, refresh=refresh, served=True)
        headers = {"Content-Security-Policy": made.policy}
        return HTMLResponse(made.text.encode("utf-8", "replace"), page.status, headers)

    def _failed(self, request: Request, error: Exception) -> Response:
        path = request.scope["path"]
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
        if status is None:
            _LOGGER.error("%.300r can't be answered", path, exc_info=error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            words = INTERNAL_ERROR
        else:
            words = str(error)
            _LOGGER.info("%.300r: %.500r", path, words)
        if not getattr(request.state, "admitted", True):  # /healthz; the words may name paths
            return PlainTextResponse("red\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if path.startswith("/api/"):
            return JsonResponse({"error": words}, status)
        asked = PageRequest.of(request)
        if asked.fields.get("part") or not (path.startswith("/topics") or _is_browser(request)):
            return PlainTextResponse(f"{words}\n".encode("utf-8", "replace"), status)
        # An UnknownTopicError of no subclass: the topic itself is missing.
        names = {} if type(error) is UnknownTopicError else request.path_params
        inner = failed_content(
            status.phrase, words, asked, topic=names.get("topic", ""),
            place=names if path.split("/")[3:4] == ["records"] else None,
            has_topics=self._browser is not None,
        )  # fmt: skip
        page = Page(title=status.phrase, content=inner, here="", status=status)
        return self._shown(asked, page, self._level())


def _is_browser(request: Request) -> bool:
    """Whether the client prefers a page to plain text: a browser that opens a link."""
    return "text/html" in request.headers.get("Accept", "")


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    if _is_browser(Request(scope)):
        raise UnknownTopicError("This page does not exist.")
    raise UnknownTopicError("there is nothing here; /api lists the paths of the JSON API")
