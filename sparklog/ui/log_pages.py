"""`LogPages`: the routes of topics and records, as HTML pages and as JSON.

    /topics                             all topics
    /topics/NAME                        one topic: partitions, readers, configs
    /topics/NAME/records                records of a topic
    /topics/NAME/records/P/OFFSET       one record; /key and /value below it download the bytes
    /api, /api/topics/...               the same data as JSON
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.responses import Response

from sparklog.errors import InvalidRequestError
from sparklog.ui.browse.limits import MIB
from sparklog.ui.browse.record_range import UnknownRecordError
from sparklog.ui.browse.values import SHOWN_MAX, Form
from sparklog.ui.json_documents import range_json, record_json, topic_document, topic_json
from sparklog.ui.log_browser import LogBrowser
from sparklog.ui.page_request import FIELDS, PageRequest, query_text, record_query
from sparklog.ui.record_pages import inline_bytes, record_content, records_content
from sparklog.ui.topic_pages import (
    PAGE_MAX,
    TOPIC_FIELDS,
    TopicView,
    chosen_topics,
    topic_content,
    topics_content,
)

API: Final = {
    "/api/report": "the report",
    "/api/topics": "topics; q, sort, desc",
    "/api/topics/NAME": "one topic: partitions, configs, readers; page",
    "/api/topics/NAME/records": f"records; {', '.join(FIELDS)}, max_value_bytes",
    "/api/topics/NAME/records/PARTITION/OFFSET": "one record; max_value_bytes",
    "/api/health": "the health of the log",
}
_VALUE_BYTES: Final = 64 << 10  # default limit of one value in JSON
_VALUE_BYTES_MAX: Final = MIB
_ANSWER_BYTES: Final = 32 * MIB  # of all values in one response
_DOWNLOAD_BYTES: Final = 1 << 31
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")
_ENCODER: Final = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page without the frame around its content.

    Attributes:
        title: The title of the browser window.
        content: The HTML of the main element.
        source: The path, from the root, of the content that a live page loads again. Empty if the
            page is not refreshed.
        here: The link of the navigation bar that is marked as current.
        status: The status of the HTTP response.
        age_s: The age of the content in seconds.
    """

    title: str
    content: Markup
    source: str = ""
    here: str = "Topics"
    status: HTTPStatus = HTTPStatus.OK
    age_s: int = 0


class JsonResponse(Response):
    """A JSON response, encoded in parts, so that the text is never in memory as a single str."""

    media_type = "application/json; charset=utf-8"

    def render(self, content: Any) -> memoryview:
        body = bytearray()
        for part in _ENCODER.iterencode(content):
            body += part.encode("utf-8", "replace")
        body += b"\n"
        return memoryview(body)


Read = Callable[..., Page | Response]
"""A handler of a request. The variable parts of the path are its further arguments. It may raise
SparklogError and OSError."""


class LogPages:
    """The routes of the topics and records of a log. Thread-safe."""

    def __init__(self, browser: LogBrowser) -> None:
        self._browser = browser

    @property
    def routes(self) -> Sequence[tuple[str, Read, Sequence[str]]]:
        """Path, handler, and accepted query parameters of each route."""
        record = "/topics/{topic}/records/{partition}/{offset}"
        return (
            ("/topics", self._topics, (*TOPIC_FIELDS, "part")),
            ("/topics/{topic}", self._topic, ("page", "part")),
            ("/topics/{topic}/records", self._records, FIELDS),
            (record, self._record, ("as",)),
            (f"{record}/{{part}}", self._download, ()),
            ("/api", lambda request: JsonResponse({"routes": API}), ()),
            ("/api/topics", self._topics_json, ("q", "sort", "desc")),
            ("/api/topics/{topic}", self._topic_json, ("page",)),
            ("/api/topics/{topic}/records", self._records_json, (*FIELDS, "max_value_bytes")),
            (f"/api{record}", self._record_json, ("max_value_bytes",)),
        )

    # --- pages ---------------------------------------------------------------------------------

    def _topics(self, request: PageRequest) -> Page:
        topics = self._browser.topics(request.stopped)
        inner = topics_content(topics, request)
        return Page(title="Topics", content=inner, source=f"topics{_live_query(request)}")

    def _topic(self, request: PageRequest, topic: str) -> Page:
        inner = topic_content(self._view(topic, request), request)
        source = f"topics/{quote(topic, safe='')}{_live_query(request)}"
        return Page(title=topic, content=inner, source=source)

    def _records(self, request: PageRequest, topic: str) -> Page:
        query = record_query(topic, request)
        found, records = self._browser.records(query, inline_bytes, request.stopped)
        inner = records_content(topic, found, records, request)
        return Page(title=f"{topic}: records", content=inner)

    def _record(self, request: PageRequest, topic: str, partition: str, offset: str) -> Page:
        form = request.fields.get("as", "")
        if form not in ("", "text", "hex"):
            raise InvalidRequestError(f"as={form[:100]}: the form must be text or hex")
        record = self._browser.record(topic, partition, offset, SHOWN_MAX, request.stopped)
        inner = record_content(topic, record, request, Form(form) if form else None)
        return Page(title=f"{topic}-{record.partition}: {record.offset}", content=inner)

    def _download(
        self, request: PageRequest, topic: str, partition: str, offset: str, part: str
    ) -> Response:
        if part not in ("key", "value"):
            raise UnknownRecordError(f"a record has no part {part[:100]}, only key and value")
        record = self._browser.record(topic, partition, offset, _DOWNLOAD_BYTES, request.stopped)
        raw = record.key if part == "key" else record.value
        if raw is None:
            raise InvalidRequestError(f"the {part} of this record is null")
        # Defence in depth: no quotes or line breaks may get into the header.
        name = _ODD.sub("_", f"{topic}-{record.partition}-{record.offset}.{part}")
        # An attachment: a record may contain HTML or scripts, which must not run on this origin.
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(raw, headers=headers, media_type="application/octet-stream")

    # --- JSON ----------------------------------------------------------------------------------

    def _topics_json(self, request: PageRequest) -> Response:
        topics = chosen_topics(self._browser.topics(request.stopped), request)
        return JsonResponse({"topics": [topic_json(topic) for topic in topics]})

    def _topic_json(self, request: PageRequest, topic: str) -> Response:
        return JsonResponse(topic_document(self._view(topic, request)))

    def _records_json(self, request: PageRequest, topic: str) -> Response:
        most = request.number("max_value_bytes", _VALUE_BYTES, 0, _VALUE_BYTES_MAX)
        found, records = self._browser.records(
            record_query(topic, request),
            # The limit of a response is shared by its records.
            lambda count: min(most, _ANSWER_BYTES // max(count, 1)),
            request.stopped,
        )
        following = query_text(request, from_=found.end) if found.ended else None
        return JsonResponse(range_json(found, records, following))

    def _record_json(
        self, request: PageRequest, topic: str, partition: str, offset: str
    ) -> Response:
        most = request.number("max_value_bytes", _VALUE_BYTES_MAX, 0, _ANSWER_BYTES)
        record = self._browser.record(topic, partition, offset, most, request.stopped)
        return JsonResponse(record_json(record))

    def _view(self, topic: str, request: PageRequest) -> TopicView:
        page = request.number("page", 1, 1, PAGE_MAX)
        return self._browser.topic(topic, page, request.stopped)


def _live_query(request: PageRequest) -> str:
    fields = {n: v for n, v in request.fields.items() if n in TOPIC_FIELDS and v}
    return f"?{urlencode({**fields, 'part': '1'})}"
