"""`LogSite`: the pages by path, and the responses to errors. No sockets.

    /                                   the report, live; /content, /report.json
    /topics                             all topics
    /topics/NAME                        one: partitions, readers, configs
    /topics/NAME/records                its records
    /topics/NAME/records/P/OFFSET       one; its bytes are at /key and /value below it
    /api/...                            the same as JSON
    /healthz                            200, or 503 if the verdict is red
"""

import json
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from sparklog.clock import Clock, system_clock
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.html import Html, el, foreign
from sparklog.ui.http_messages import HTML, JSON, TEXT, HttpRequest, HttpResponse
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import content
from sparklog.ui.report.page_parts import note, section
from sparklog.ui.report.page_shell import asset, document
from sparklog.ui.result_cache import CachedResult
from sparklog.ui.topic_pages import frame
from sparklog.ui.workers import GoneError

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


def _made(make: Callable[[], LogReport]) -> LogReport:
    try:
        return make()
    except InvalidRequestError as error:  # there was a log when the server began
        raise StorageUnavailableError(str(error), path=error.path) from error


class Verdict(Protocol):
    """The verdict on the log's health: `sparklog.service.health.Health`."""

    @property
    def level(self) -> str:
        """Green, amber or red."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""


class LogSite:
    """The pages of a log. Threads may share it.

    Args: make: makes a report. browser: shows topics and records; without it there is only the
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
        clock: Clock = system_clock,
    ) -> None:
        self._report = CachedResult(partial(_made, make), fresh_ms=refresh_ms / 2)
        self._health = None if examine is None else CachedResult(examine, fresh_ms=refresh_ms / 2)
        self._browser, self._asks = browser, asks
        self._refresh_ms, self._clock = refresh_ms, clock

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response for a path, or for an error. Raises: GoneError."""
        try:
            return self._found(request)
        except GoneError:
            raise
        except Exception as error:
            for kind, status in _STATUS:
                if isinstance(error, kind):
                    _LOGGER.info("%.300r: %.500r", request.path, str(error))
                    return self._failed(request, status, str(error))
            _LOGGER.exception("%.300r can't be answered", request.path)
            said = "this failed with an internal error; the server's log has it"
            return self._failed(request, HTTPStatus.INTERNAL_SERVER_ERROR, said)

    def _found(self, request: HttpRequest) -> HttpResponse:
        parts = request.parts
        if parts == ("healthz",):
            return self._healthz(request)
        if parts == ("",):
            return self._page(request, "Overview", self._overview(), source="content")
        if parts == ("content",):
            report, age = self._report.get()
            inner = self._framed(request, self._overview_of(report), "Overview")
            return HttpResponse(body=inner, kind=HTML, headers={"Age": str(age)}, live=True)
        if parts == ("report.json",):
            text = json.dumps(self._report.get()[0].to_dict(), indent=2, ensure_ascii=False)
            return HttpResponse(body=text, kind=JSON)
        browser = self._browser
        if browser is None or not parts or parts[0] not in ("topics", "api"):
            return self._failed(request, HTTPStatus.NOT_FOUND, "there is nothing here")
        if parts[0] == "api":
            if parts[1:] == ("health",) and self._health is not None:
                return HttpResponse.of_json(self._health.get()[0].to_dict())
            return browser.api(request)
        page = browser.page(request)
        if page.body is not None:
            return HttpResponse(body=page.body, kind=page.kind, headers=page.headers)
        if request.flag("part"):
            inner = self._framed(request, page.content, page.here)
            return HttpResponse(body=inner, kind=HTML, live=True)
        source = f"{request.root}{page.source}" if page.source else None
        return self._page(request, page.title, page.content, source=source, here=page.here)

    def _overview(self) -> Html:
        return self._overview_of(self._report.get()[0])

    def _overview_of(self, report: LogReport) -> Html:
        return content(report, browse=self._browser is not None)

    def _page(
        self, request: HttpRequest, title: str, inner: Html, *, source: str | None,
        here: str = "Overview",
        status: HTTPStatus = HTTPStatus.OK,
    ) -> HttpResponse:  # fmt: skip
        """A whole page. `source`: the path that refreshes a live page."""
        script = asset("browse.js", "sparklog.ui")
        text = document(
            f"{title} - sparklog",
            self._framed(request, inner, here),
            refresh_ms=None if source is None else self._refresh_ms,
            source=source or "",
            styles=[asset("browse.css", "sparklog.ui")],
            scripts=[script],
            forms=True,
        )
        return HttpResponse(
            body=text, status=status, live=source is not None, scripts=(script,), forms=True
        )

    def _framed(self, request: HttpRequest, inner: Html, here: str) -> Html:
        if self._browser is None:
            return inner
        verdict = None if self._health is None else self._health.peek()
        level = None if verdict is None else str(verdict.level)
        path = "" if here == "Overview" else self._browser.path  # which has the path itself
        top = frame(request.root, path, here, level=level, sign_out=self._asks)
        return Html.join([top, inner])

    def _healthz(self, request: HttpRequest) -> HttpResponse:
        """The verdict; without the token only its colour."""
        if self._health is None:
            return HttpResponse.of_text("health is not examined here", HTTPStatus.NOT_FOUND)
        verdict = self._health.get()[0]
        status = HTTPStatus.SERVICE_UNAVAILABLE if verdict.level == "red" else HTTPStatus.OK
        if not request.admitted:
            return HttpResponse.of_text(str(verdict.level), status)
        return HttpResponse.of_json(verdict.to_dict(), status)

    def _failed(self, request: HttpRequest, status: HTTPStatus, words: str) -> HttpResponse:
        if request.parts[:1] == ("api",):
            return HttpResponse.of_json({"error": words}, status)
        if request.parts[:1] != ("topics",) or request.flag("part"):
            return HttpResponse(body=f"{words}\n", kind=TEXT, status=status)
        back = note(el("a", "All topics", href=f"{request.root}topics"))
        inner = section("failed", status.phrase, el("p", foreign(words)), back)
        return self._page(request, status.phrase, inner, source=None, here="", status=status)
