"""The pages of records: a list of records, and a single record.

Records contain untrusted data, so the templates escape everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from markupsafe import Markup

from sparklog.ui.browse.limits import RECORDS_MAX
from sparklog.ui.browse.record_previews import RecordPreview
from sparklog.ui.browse.record_range import RecordRange
from sparklog.ui.browse.values import SHOWN_MAX, Form, RenderedValue, preview, render_value
from sparklog.ui.page_request import LIMIT, PageRequest, query_text
from sparklog.ui.templating import render

_KEY_LETTERS: Final = 60
_VALUE_LETTERS: Final = 240
_INLINE_MAX: Final = 4096  # bytes of a value on a page that lists records
_INLINE_ALL: Final = 1 << 20
_HEADER_MAX: Final = 1000
_ENDS: Final = {
    "bytes": "the limit of bytes for one request was reached",
    "memory": "the limit of memory for one page was reached",
    "time": "the time limit of one request was reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """The view of a record on a page: key and value as a line each, and in full.

    Attributes:
        record: The record.
        key_line: The start of the key on one line.
        value_line: The start of the value on one line.
        headers: The (name, bytes, bytes as one line) of each header.
        key: The key in full. Not set in a list of records if `key_line` shows the full key.
        value: The value in full.
    """

    record: RecordPreview
    key_line: str
    value_line: str
    headers: Sequence[tuple[str, bytes | None, str]]
    key: RenderedValue | None
    value: RenderedValue

    @classmethod
    def of(
        cls, record: RecordPreview, *, most: int, form: Form | None = None, in_list: bool = False
    ) -> "RecordView":
        """Return the view of a record.

        Args:
            record: The record.
            most: The maximum bytes of the key and of the value.
            form: The form in which the user wants the bytes, or None to choose it automatically.
            in_list: Whether the view is part of a list of records.
        """
        key = render_value(record.key, most=most, form=form, size=record.key_bytes)
        is_long = record.key and (len(record.key) > _KEY_LETTERS or key.form is not Form.TEXT)
        has_key = is_long or not in_list
        return cls(
            record=record,
            key_line=preview(record.key, _KEY_LETTERS, size=record.key_bytes),
            value_line=preview(record.value, _VALUE_LETTERS, size=record.value_bytes),
            headers=[
                (preview(each.name.encode("utf-8", "replace"), _HEADER_MAX), each.value,
                 preview(each.value, _HEADER_MAX, size=each.value_bytes))
                for each in record.headers
            ],
            key=key if has_key else None,
            value=render_value(record.value, most=most, form=form, size=record.value_bytes),
        )  # fmt: skip


def inline_bytes(records: int) -> int:
    """Return how many bytes of each value a page with `records` records shows."""
    return min(_INLINE_MAX, _INLINE_ALL // max(records, 1))


def records_content(
    topic: str, found: RecordRange, records: Sequence[RecordPreview], request: PageRequest
) -> Markup:
    """Return the HTML of a list of records, with the form that selects other records."""
    limit = request.number("limit", LIMIT, 1, RECORDS_MAX)
    older, newer = max(found.start - limit, found.log_start), found.end
    return render(
        "records.html",
        **_form_values(topic, request, request.fields),
        found=found,
        limit=_ENDS.get(found.ended),
        records=[
            RecordView.of(each, most=inline_bytes(len(records)), in_list=True) for each in records
        ],
        older=query_text(request, from_=older) if found.start > found.log_start else None,
        newer=query_text(request, from_=newer) if found.end < found.log_end else None,
    )


def record_content(
    topic: str, record: RecordPreview, request: PageRequest, form: Form | None
) -> Markup:
    """Return the HTML of a single record, truncated to the limit of a page."""
    records_url = _records_url(request, topic)
    return render(
        "record.html",
        root=request.root,
        topic=topic,
        here="",
        records_url=records_url,
        url=f"{records_url}/{record.partition}/{record.offset}",
        shown=RecordView.of(record, most=SHOWN_MAX, form=form),
        form=form or "",
    )


def failed_content(
    title: str, words: str, request: PageRequest, *, topic: str = "",
    place: Mapping[str, str] | None = None, has_topics: bool = True,
) -> Markup:  # fmt: skip
    """Return the HTML of an error page.

    Args:
        title: The heading.
        words: The text of the error.
        request: The request that failed.
        topic: The topic of the requested page, or "" if the topic does not exist.
        place: The variable parts of the path, if the request was for records. The error page then
            contains the form that selects records, with the requested values.
        has_topics: Whether the site has a page of topics.
    """
    values: dict[str, object] = {"root": request.root, "topic": topic, "here": "", "fields": ()}
    if topic and place is not None:
        filled = {"partition": place.get("partition", ""), "from": place.get("offset", "")}
        values = _form_values(topic, request, filled | dict(request.fields))
    return render("failed.html", title=title, words=words, has_topics=has_topics, **values)


def _form_values(topic: str, request: PageRequest, filled: Mapping[str, str]) -> dict[str, object]:
    """Return the values of `topic_head.html` and `records_form.html`.

    `filled`: the values of the form's fields.
    """
    partition = {n: filled[n] for n in ("partition",) if filled.get(n)}
    return {
        "root": request.root,
        "topic": topic,
        "here": "Records",
        "records_url": _records_url(request, topic),
        "fields": [
            (name, label, filled.get(name, ""), hint)
            for name, label, hint in (
                ("partition", "Partition", "0"),
                ("from", "Start (offset or time)", "latest"),
                ("limit", "Records", f"{LIMIT}, at most {RECORDS_MAX}"),
            )
        ],
        "newest": f"?{urlencode(partition)}" if partition else "",
        "oldest": f"?{urlencode(partition | {'from': 'earliest'})}",
    }


def _records_url(request: PageRequest, topic: str) -> str:
    return f"{request.root}topics/{quote(topic, safe='')}/records"
