"""`LogBrowser`: topics and records for pages and for scripts. Each request is bounded.

A request reads the log in a thread of its own, a few at a time (`workers`), up to limits of bytes,
memory and time (`sparklog.ui.browse.limits`), and stops when the browser disconnects.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError, UnknownTopicError
from sparklog.html import Html
from sparklog.log.log import Log
from sparklog.ui.browse.figures import (
    Figures,
    TopicFigures,
    partition_figures,
    reader_rows,
    spans_of,
)
from sparklog.ui.browse.limits import MIB, Budget, Limits
from sparklog.ui.browse.record_previews import RecordPreview, record_previews
from sparklog.ui.browse.record_range import Query, RecordRange, read_range
from sparklog.ui.browse.values import SHOWN_MAX, Form
from sparklog.ui.http_messages import BYTES, HTML, HttpRequest, HttpResponse
from sparklog.ui.json_documents import (
    configs_json,
    partition_json,
    range_json,
    reader_json,
    record_json,
    topic_json,
)
from sparklog.ui.log_handle import LogHandle, Open
from sparklog.ui.record_pages import inline_bytes, record_content, records_content
from sparklog.ui.record_query import FIELDS, query_text, record_query
from sparklog.ui.topic_pages import (
    PAGE_PARTITIONS,
    TOPIC_FIELDS,
    TopicView,
    chosen_topics,
    topic_content,
    topics_content,
)
from sparklog.ui.workers import Workers

API: Final = {
    "/api/topics": "topics; q, sort, desc",
    "/api/topics/NAME": "one: partitions, configs, readers; page",
    "/api/topics/NAME/records": f"records; {', '.join(FIELDS)}, max_value_bytes",
    "/api/topics/NAME/records/PARTITION/OFFSET": "one record",
    "/api/health": "the verdict",
}
CHECK_MS: Final = 8000
_VALUE_BYTES: Final = 64 << 10  # of a value in JSON, by default
_VALUE_BYTES_MAX: Final = MIB
_ANSWER_BYTES: Final = 32 * MIB  # of all values in one response
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")
_NO_CONTENT: Final = Html("")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The contents of a page. `source`: the path from the root that refreshes it, if it is live.

    `body`: bytes for download instead of a page. `here`: the link in the frame that is marked.
    """

    title: str
    content: Html = _NO_CONTENT
    source: str = ""
    here: str = "Topics"
    body: bytes | None = None
    kind: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)


class LogBrowser:
    """Pages and JSON of a log. Threads may share it.

    Args: path: the log's, to be shown. opened: opens it for reading. keeps_configs: whether the log
       is our own: a broker keeps topic configs elsewhere, an archive does not keep them.
    """

    def __init__(
        self, path: str, opened: Open, *, workers: Workers | None = None,
        keeps_configs: Callable[[], bool] = lambda: True, clock: Clock = system_clock,
    ) -> None:  # fmt: skip
        self.path = path
        self._keeps_configs = keeps_configs
        self._handle = LogHandle(opened)
        self._workers = workers or Workers()
        self._figures = Figures(clock)
        self._clock = clock

    # --- pages ---------------------------------------------------------------------------------

    def page(self, request: HttpRequest) -> Page:
        """Return the page of a path below /topics. Raises: SparklogError, OSError, GoneError."""
        parts = request.parts[1:]
        if parts in ((), ("",)):
            request.check_fields(*TOPIC_FIELDS, "part")
            found = self._run(request, self._topics)
            inner = topics_content(found, request)
            return Page(title="Topics", content=inner, source=f"topics{_live_query(request)}")
        topic = parts[0]
        if len(parts) == 1:
            request.check_fields("page", "part")
            view = self._view(topic, request)
            source = f"{'/'.join(_quoted(request))}{_live_query(request)}"
            return Page(title=topic, content=topic_content(view, request), source=source)
        if parts[1:] == ("records",):
            request.check_fields(*FIELDS)
            query = record_query(topic, request)
            found_range, records = self._records(query, request, inline_bytes)
            inner = records_content(topic, found_range, records, request)
            return Page(title=f"{topic}: records", content=inner)
        if len(parts) == 4 and parts[1] == "records":
            request.check_fields("as")
            form = _form(request.fields.get("as", ""))
            record = self._record(topic, parts[2:4], request, SHOWN_MAX)
            title = f"{topic}-{record.partition}: {record.offset}"
            return Page(title=title, content=record_content(topic, record, request, form))
        if len(parts) == 5 and parts[1] == "records" and parts[4] in ("key", "value"):
            return self._download(topic, parts[2:4], parts[4], request)
        raise UnknownTopicError(f"there is no page {request.path[:200]}")

    def _download(
        self, topic: str, place: tuple[str, ...], part: str, request: HttpRequest
    ) -> Page:
        record = self._record(topic, place, request, 1 << 31)
        raw = record.key if part == "key" else record.value
        if raw is None:
            raise InvalidRequestError(f"the {part} of this record is null")
        name = _ODD.sub("_", f"{topic}-{record.partition}-{record.offset}.{part}")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Page(title=name, body=raw, kind=BYTES, headers=headers)

    # --- JSON ----------------------------------------------------------------------------------

    def api(self, request: HttpRequest) -> HttpResponse:
        """Return the document of a path below /api. Raises: SparklogError, OSError, GoneError."""
        parts = request.parts[1:]
        if parts in ((), ("",)):
            return HttpResponse.of_json({"routes": API})
        if parts == ("topics",):
            request.check_fields("q", "sort", "desc")
            found = chosen_topics(self._run(request, self._topics), request)
            return HttpResponse.of_json({"topics": [topic_json(topic) for topic in found]})
        if len(parts) == 2 and parts[0] == "topics":
            request.check_fields("page")
            view = self._view(parts[1], request)
            return HttpResponse.of_json(_topic_document(view))
        if len(parts) == 3 and parts[0] == "topics" and parts[2] == "records":
            request.check_fields(*FIELDS, "max_value_bytes")
            most = request.number("max_value_bytes", _VALUE_BYTES, 0, _VALUE_BYTES_MAX)
            query = record_query(parts[1], request)
            found_range, records = self._records(
                query, request, lambda count: min(most, _ANSWER_BYTES // max(count, 1))
            )
            following = query_text(request, from_=found_range.end) if found_range.ended else None
            return HttpResponse.of_json(range_json(found_range, records, following))
        if len(parts) == 5 and parts[0] == "topics" and parts[2] == "records":
            request.check_fields("max_value_bytes")
            most = request.number("max_value_bytes", _VALUE_BYTES_MAX, 0, _ANSWER_BYTES)
            record = self._record(parts[1], parts[3:], request, most)
            return HttpResponse.of_json(record_json(record))
        raise UnknownTopicError(
            f"there is nothing at {request.path[:200]}; /api lists all paths"
        )

    # --- reading -------------------------------------------------------------------------------

    def _run(self, request: HttpRequest, job: Callable[[Log, Budget], T]) -> T:
        """Run a job with the log, in a thread that may hang."""

        def work(stopped: Callable[[], bool]) -> T:
            budget = Budget(Limits(time_ms=CHECK_MS), gone=stopped)
            with _open_errors():
                return job(self._handle.log(lambda: budget.stopped), budget)

        return self._workers.run(work, request.gone)

    def _topics(self, log: Log, budget: Budget) -> list[TopicFigures]:
        return self._figures.topics(log, lambda: budget.stopped)

    def _view(self, name: str, request: HttpRequest) -> TopicView:
        start = (request.number("page", 1, 1, 1_000_000) - 1) * PAGE_PARTITIONS
        return self._run(request, lambda log, budget: self._topic(log, name, start, budget))

    def _topic(self, log: Log, name: str, start: int, budget: Budget) -> TopicView:
        topic = self._figures.topic(log, name, lambda: budget.stopped)
        info = topic.info
        numbers = sorted(info.dirs)[start : start + PAGE_PARTITIONS]
        here = replace(info, dirs={p: info.dirs[p] for p in numbers})
        spans = spans_of(log, {name: here})[name]
        partitions = []
        for p in numbers:
            if budget.over:
                break
            partitions.append(partition_figures(log, info, p, spans.get(p, (0, 0))))
        return TopicView(
            figures=topic,
            partitions=partitions,
            start=start,
            readers=reader_rows(log, name),
            now_ms=self._clock(),
            has_configs=self._keeps_configs(),
        )

    def _records(
        self, query: Query, request: HttpRequest, most_bytes: Callable[[int], int]
    ) -> tuple[RecordRange, list[RecordPreview]]:
        def work(stopped: Callable[[], bool]) -> tuple[RecordRange, list[RecordPreview]]:
            budget = Budget(query.limits, gone=stopped)
            with _open_errors():
                log = self._handle.log(lambda: budget.stopped)
                found = read_range(log, query, budget)
            most = most_bytes(found.rows.num_rows)
            return found, list(record_previews(found.rows, most_bytes=most))

        return self._workers.run(work, request.gone)

    def _record(
        self, topic: str, place: tuple[str, ...], request: HttpRequest, most_bytes: int
    ) -> RecordPreview:
        """Return a record.

        Raises: UnknownTopicError: it does not exist; StorageUnavailableError: it can't be read.
        """
        partition, offset = (_number(text) for text in place)
        query = Query(
            topic=topic,
            partition=partition,
            start=offset,
            limits=Limits(records=1, read_bytes=1, time_ms=CHECK_MS),
        )
        found, records = self._records(query, request, lambda count: most_bytes)
        if records and records[0].offset == offset:
            return records[0]
        if found.faults:
            raise StorageUnavailableError("; ".join(found.faults))
        start, end = found.log_start, found.log_end
        what = "compaction removed it" if start <= offset < end else f"it holds [{start}, {end})"
        raise UnknownTopicError(f"{topic}-{partition} has no record at offset {offset}: {what}")


@contextlib.contextmanager
def _open_errors() -> Iterator[None]:
    """Turn InvalidRequestError into StorageUnavailableError: the log existed at the start."""
    try:
        yield
    except UnknownTopicError:
        raise
    except InvalidRequestError as error:
        raise StorageUnavailableError(str(error), path=error.path) from error


def _topic_document(view: TopicView) -> dict[str, Any]:
    return {
        **topic_json(view.figures),
        "partition_list": [partition_json(partition) for partition in view.partitions],
        "configs": configs_json(view.figures.info) if view.has_configs else None,
        "reader_list": [reader_json(row) for row in view.readers],
    }


def _form(text: str) -> Form | None:
    if text not in ("", "text", "hex"):
        raise InvalidRequestError(f"as={text[:100]}: want text or hex")
    return Form(text) if text else None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequestError(f"{text[:100]}: want a partition and an offset")
    return int(text)


def _quoted(request: HttpRequest) -> list[str]:
    return [quote(part, safe="") for part in request.parts]


def _live_query(request: HttpRequest) -> str:
    fields = {n: v for n, v in request.fields.items() if n in TOPIC_FIELDS and v}
    return f"?{urlencode({**fields, 'part': '1'})}"
