"""`LogSite`: the ASGI application with the pages and the JSON API of a log.

    /                                   the report; /content is its content, for the refresh
    /topics...                          topics and records: see `log_pages`
    /api/...                            the same data as JSON
    /healthz                            status 200, or 503 if the health of the log is red
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
    """The part of `sparklog.service.health.Health` that the pages need."""

    @property
    def level(self) -> str:
        """The level: green, amber or red."""

    def to_dict(self) -> dict[str, Any]:
        """Return the checks and findings as dicts and lists, for JSON."""


class LogSite:
    """The pages of a log. Must be used in one event loop only.

    Args:
        make: Makes the report.
        browser: Reads topics and records. Without it, the site consists of the report.
        examine: Returns the health of the log, for /healthz and the navigation bar.
        asks: Whether a token is required, so that the pages have a button to sign out.
        refresh_ms: How often a browser refreshes a page.
        jobs: Runs the reads of topics and records.
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
            except InvalidRequestError as error:  # the log existed when the server started
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
        try:
            await self._router(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - every request gets a response
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
        """Return the endpoint that calls `read` in a thread of `Jobs`.

        `fields`: the accepted query parameters.
        """

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
        """Return the health of the log; without the token only its level."""
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
            raise UnknownTopicError("this server does not examine the health of the log")
        return (await self._health.get())[0]

    def _level(self) -> str | None:
        """Return the last known health level. Start an examination if the level is old."""
        verdict = None if self._health is None else self._health.peek()
        return None if verdict is None else str(verdict.level)

    # --- responses -------------------------------------------------------------------------------

    def _shown(
        self, request: PageRequest, page: Page, level: str | None, *, is_part: bool = False
    ) -> Response:
        """Return the response with a page.

        `is_part`: only the content, which replaces the content of a page that the browser shows.
        """
        inner = page.content
        if self._browser is not None:
            # The report shows the path itself.
            path = "" if page.here == "Overview" else self._browser.path
            top = render(
                "frame.html", root=request.root, path=path, here=page.here, level=level,
                sign_out=self._asks,
            )  # fmt: skip
            inner = top + inner
        # A path that is not UTF-8 is a str with lone surrogates, which can't be encoded: "replace".
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
            _LOGGER.error("the request for %.300r failed", path, exc_info=error)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            words = INTERNAL_ERROR
        else:
            words = str(error)
            _LOGGER.info("%.300r: %.500r", path, words)
        # /healthz without the token: the text of the error may contain paths.
        if not getattr(request.state, "admitted", True):
            return PlainTextResponse("red\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if path.startswith("/api/"):
            return JsonResponse({"error": words}, status)
        asked = PageRequest.of(request)
        if asked.fields.get("part") or not (path.startswith("/topics") or _is_browser(request)):
            return PlainTextResponse(f"{words}\n".encode("utf-8", "replace"), status)
        # UnknownRecordError is a subclass: there the topic exists, and the error page links to it.
        names = {} if type(error) is UnknownTopicError else request.path_params
        inner = failed_content(
            status.phrase, words, asked, topic=names.get("topic", ""),
            place=names if path.split("/")[3:4] == ["records"] else None,
            has_topics=self._browser is not None,
        )  # fmt: skip
        page = Page(title=status.phrase, content=inner, here="", status=status)
        return self._shown(asked, page, self._level())


def _is_browser(request: Request) -> bool:
    """Return whether the client is a browser that opens a page, not a script."""
    return "text/html" in request.headers.get("Accept", "")


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    if _is_browser(Request(scope)):
        raise UnknownTopicError("This page does not exist.")
    raise UnknownTopicError("this path does not exist; /api lists the paths of the JSON API")
