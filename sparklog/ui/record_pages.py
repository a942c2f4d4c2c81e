"""The pages of records: a list, and a single record. Contents are untrusted: all is escaped."""

from collections.abc import Sequence
from typing import Final

from sparklog.html import Child, Html, el, foreign
from sparklog.ui.browse.limits import RECORDS_MAX
from sparklog.ui.browse.record_previews import RecordPreview
from sparklog.ui.browse.record_range import RecordRange
from sparklog.ui.browse.values import (
    SHOWN_MAX,
    Form,
    RenderedValue,
    as_number,
    preview,
    render_value,
)
from sparklog.ui.http_messages import HttpRequest
from sparklog.ui.record_query import LIMIT, query_text
from sparklog.ui.report.page_parts import chip, note, section
from sparklog.ui.units import (
    count_text,
    plural,
    size,
    stamp,
)
from sparklog.ui.units import size_text as bytes_text
from sparklog.ui.topic_pages import topic_head, topic_path

_KEY_LETTERS: Final = 60
_VALUE_LETTERS: Final = 240
_INLINE_MAX: Final = 4096  # bytes of a value on the page of many
_INLINE_ALL: Final = 1 << 20
_HEADER_MAX: Final = 1000
_ENDS: Final = {
    "bytes": "as many bytes were read as one request may",
    "memory": "what was found is as large as one page may be",
    "time": "the time of one request was over",
}


def inline_bytes(records: int) -> int:
    """Return how many bytes of each value a page of so many records shows."""
    return min(_INLINE_MAX, _INLINE_ALL // max(records, 1))


def records_content(
    topic: str, found: RecordRange, records: Sequence[RecordPreview], request: HttpRequest
) -> Html:
    """Some records of a partition, and the form that requests others."""
    to = f"{topic_path(request.root, topic)}/records"
    rows = [_record(record, to, inline_bytes(len(records))) for record in records]
    listed: Child = [_heads(), el("ol", rows, class_="records")] if rows else None
    faults = None
    if found.faults:
        items = [el("li", foreign(fault)) for fault in found.faults]
        told = section("faults", "Not all could be read", el("ul", items))
        faults = el("div", told, class_="alert")
    return Html.join([
        topic_head(topic, request.root, "Records"),
        _form(request, to),
        faults,
        el("section", _summary(found, len(records)), listed, _ways(found, request, to)),
    ])  # fmt: skip


def _heads() -> Html:
    when = el("span", "time, ", el("span", "UTC", class_="zone nb"))
    names = (when, el("span", "partition:offset"), el("span", "key"), el("span", "value"))
    return el("div", names, class_="heads", aria_hidden="true")


def _form(request: HttpRequest, to: str) -> Html:
    def text(name: str, label: str, hint: str) -> Html:
        return el(
            "div", el("label", label, for_=f"f-{name}"),
            el("input", type="text", name=name, id=f"f-{name}", value=request.fields.get(name, ""),
               placeholder=hint, autocomplete="off", spellcheck="false"),
        )  # fmt: skip

    parts = [
        text("partition", "Partition", "0"),
        text("from", "From offset or time", "latest"),
        text("limit", "Records", f"{LIMIT}, at most {RECORDS_MAX}"),
    ]
    fields = {"partition": request.fields.get("partition", "")}
    partition = query_text(HttpRequest(parts=(), fields=fields))
    oldest = f"{partition}{'&' if partition else '?'}from=earliest"
    hint = note(
        "An offset, or a time such as ", el("code", "2013-07-03T14:00Z"), "; without a zone it is "
        "UTC. Without either the last records are shown.",
    )  # fmt: skip
    return el(
        "form", el("div", parts, class_="fields"),
        el("p", el("button", "Show", class_="primary"), " ",
           el("a", "Newest", href=to + partition, class_="button"), " ",
           el("a", "Oldest", href=to + oldest, class_="button")),
        hint,
        method="get", action=to, class_="ask wide",
    )  # fmt: skip


def _summary(found: RecordRange, count: int) -> Html:
    """How many records are shown, and which offsets there are."""
    words: list[Child] = [
        el("strong", plural(count, "record")), f" of offsets {found.start} to {found.end}; the "
        f"partition holds {found.log_start} to {found.log_end}",
    ]  # fmt: skip
    if found.ended in _ENDS:
        words.append(f"; {_ENDS[found.ended]}")
    return el("p", words, ".", class_="found", role="status")


def _ways(found: RecordRange, request: HttpRequest, to: str) -> Html:
    limit = request.number("limit", LIMIT, 1, RECORDS_MAX)
    older = to + query_text(request, from_=max(found.start - limit, found.log_start))
    newer = to + query_text(request, from_=found.end)
    return el(
        "p",
        el("a", "Older", href=older, class_="button", rel="prev")
        if found.start > found.log_start else None,
        " ",
        el("a", "Newer", href=newer, class_="button", rel="next")
        if found.end < found.log_end else None,
        class_="pager",
    )  # fmt: skip


def _record(record: RecordPreview, to: str, most: int) -> Html:
    place = f"{record.partition}:{record.offset}"
    key = preview(record.key, _KEY_LETTERS, size=record.key_bytes)
    value = preview(record.value, _VALUE_LETTERS, size=record.value_bytes)
    head = el(
        "summary",
        el("span", stamp(record.timestamp_ms, seconds=True), class_="when"),
        el("span", place, class_="place", title=f"partition {record.partition}, "
                                                f"offset {record.offset}"),
        el("span", _chips(record),
           foreign(key) if record.key else el("i", _no_bytes(record.key)), class_="key"),
        el("span", foreign(value) if record.value else el("i", _no_bytes(record.value)),
           class_="value"),
    )  # fmt: skip
    whole = el("a", "The whole record", href=f"{to}/{record.partition}/{record.offset}")
    inner = el(
        "div",
        _body(record, most=most),
        el("p", whole, " · ", _facts(record), class_="facts"),
    )
    return el("li", el("details", head, inner, data_key=f"r-{place}"))


def _no_bytes(raw: bytes | None) -> str:
    return "null" if raw is None else "empty"


def _chips(record: RecordPreview) -> list[Child]:
    found: list[Child] = []
    if record.marker is not None:
        words = {"abort": "abort marker", "commit": "commit marker"}
        found.append(chip(words.get(record.marker, "control record")))
    if record.aborted:
        found.append(chip("aborted", "is-amber"))
    return [[mark, " "] for mark in found]


def _facts(record: RecordPreview) -> list[Child]:
    parts: list[Child] = [
        f"partition {record.partition}", f"offset {record.offset}",
        None if record.timestamp_ms is None else f"timestamp {record.timestamp_ms}",
        "time of append" if record.append_time else "time of its producer",
        f"key {bytes_text(record.key_bytes)}", f"value {bytes_text(record.value_bytes)}",
        f"batch {bytes_text(record.batch_bytes)}, {record.codec}",
    ]  # fmt: skip
    if record.producer_id is not None:
        kind = "transactional producer" if record.transactional else "producer"
        parts.append(f"{kind} {record.producer_id}")
    if record.leader_epoch is not None:
        parts.append(f"leader epoch {record.leader_epoch}")
    told = [part for part in parts if part is not None]
    return [[" · " if at else None, part] for at, part in enumerate(told)]


def _body(record: RecordPreview, *, most: int, form: Form | None = None) -> list[Child]:
    """Headers, key and value, up to `most` bytes of each."""
    found: list[Child] = []
    if record.headers:
        rows = [
            [el("dt", foreign(preview(each.name.encode("utf-8", "replace"), _HEADER_MAX))),
             el("dd", foreign(preview(each.value, _HEADER_MAX, size=each.value_bytes))
                if each.value else el("i", _no_bytes(each.value)))]
            for each in record.headers
        ]  # fmt: skip
        left = record.header_count - len(record.headers)
        more = note(f"{count_text(left)} more aren't shown.") if left else None
        found += [el("h3", "Headers"), el("dl", rows, class_="headers"), more]
    key = render_value(record.key, most=most, form=form, size=record.key_bytes)
    if record.key and (len(record.key) > _KEY_LETTERS or key.form is not Form.TEXT):
        found += [el("h3", "Key"), _value(key, record.key)]
    value = render_value(record.value, most=most, form=form, size=record.value_bytes)
    return [*found, el("h3", "Value"), _value(value, record.value)]


def _value(value: RenderedValue, raw: bytes | None) -> list[Child]:
    if value.form in (Form.NULL, Form.EMPTY):
        words = "null (a tombstone where the topic is compacted)" if raw is None else "empty"
        return [el("p", el("i", words))]
    found: list[Child] = []
    if value.schema_id is not None:
        kind = "" if value.form is Form.JSON else "Avro or Protobuf, "
        found.append(el("p", chip(f"{kind}schema id {value.schema_id}"),
                        " as a schema registry frames it", class_="note"))  # fmt: skip
    said = as_number(raw) if not value.cut else None
    if said is not None:
        found.append(el("p", "As a number (big-endian): ", el("code", str(said)), class_="note"))
    label = {Form.JSON: "JSON", Form.HEX: "bytes in hexadecimal"}.get(value.form, "text")
    found.append(el("pre", foreign(value.text), class_=f"raw is-{value.form}", tabindex="0",
                    role="region", aria_label=label))  # fmt: skip
    if value.cut:
        found.append(note("The beginning of ", size(value.size), "."))
    return found


def record_content(
    topic: str, record: RecordPreview, request: HttpRequest, form: Form | None
) -> Html:
    """A record, as much of it as a page may show."""
    to = topic_path(request.root, topic)
    here = f"{to}/records/{record.partition}/{record.offset}"
    forms = [
        el("a", words, href=f"{here}?as={value}" if value else here,
           aria_current="true" if form == (value or None) else None)
        for value, words in ((None, "As it looks"), ("text", "Text"), ("hex", "Hex"))
    ]  # fmt: skip
    sides = f"partition={record.partition}&from={record.offset}"
    raw = [
        [el("a", f"Download the {name}", href=f"{here}/{name}", class_="button"), " "]
        for name, there in (("key", record.key), ("value", record.value)) if there
    ]  # fmt: skip
    return Html.join([
        topic_head(topic, request.root, ""),
        el("section",
           el("h2", f"Partition {record.partition}, offset {record.offset}"),
           el("p", stamp(record.timestamp_ms, seconds=True), " ", _chips(record)),
           el("p", _facts(record), class_="facts"),
           el("nav", forms, aria_label="Form", class_="order"),
           _body(record, most=SHOWN_MAX, form=form),
           el("p", raw, el("a", "From here on", href=f"{to}/records?{sides}", class_="button"),
              class_="pager")),
    ])  # fmt: skip
