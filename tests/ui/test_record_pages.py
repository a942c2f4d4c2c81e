"""The list of records and the page of a record: every content is text, and none is misstated."""

import html
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.ui.browse.record_previews import HeaderPreview, RecordPreview
from sparklog.ui.browse.record_range import RecordRange
from sparklog.ui.browse.values import Form
from sparklog.ui.page_request import PageRequest
from sparklog.ui.record_pages import record_content, records_content

HOSTILE = "</pre><script>\"'&"
RECORD = RecordPreview(
    partition=2, offset=41, timestamp_ms=1_700_000_000_000, append_time=False,
    key=b"k", key_bytes=1, value=b"v", value_bytes=1, headers=(), header_count=0,
    codec="zstd", batch_bytes=2048, producer_id=None, leader_epoch=None, transactional=False,
    aborted=False, marker=None,
)  # fmt: skip


def listed(record: RecordPreview, query: str = "", **changes: object) -> str:
    found = RecordRange(
        rows=pa.table({}), start=41, end=42, log_start=10, log_end=90, ended="records", faults=(),
    )  # fmt: skip
    request = PageRequest.parse(f"/topics/t/records{query}")
    found = replace(found, **changes)  # type: ignore[arg-type]
    return str(records_content("t", found, [record], request))


def words(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", "", page)))


def test_every_content_is_escaped() -> None:
    raw, to = HOSTILE.encode(), PageRequest.parse("/topics/t/records/2/41")
    header = HeaderPreview(HOSTILE, raw, len(raw))
    record = replace(
        RECORD, key=raw, key_bytes=len(raw), value=raw, value_bytes=len(raw), headers=(header,),
        header_count=100, codec=HOSTILE, marker=HOSTILE,
    )  # fmt: skip
    request = PageRequest.parse("/topics/t/records")
    typed = replace(request, fields={"partition": HOSTILE, "from": HOSTILE})
    found = RecordRange(
        rows=pa.table({}), start=0, end=1, log_start=0, log_end=1, ended="", faults=(HOSTILE,)
    )
    for page in (
        records_content(HOSTILE, found, [record], typed),
        record_content(HOSTILE, record, to, Form.TEXT),
    ):
        assert page.count(HOSTILE) == 0
        assert page.count("<script") == 0
        assert page.count("&lt;/pre&gt;&lt;script&gt;&#34;&#39;&amp;") >= 5
        assert "99 more headers are not shown" in words(page)


@pytest.mark.parametrize(
    ("value", "shown", "unfolded"),
    [
        (None, "<i>null</i>", "null (a tombstone if the topic is compacted)"),
        (b"", "<i>empty</i>", "Value empty"),
        (b"  ", "<bdi></bdi>", "Value The whole record"),
        (b"\0\0\4\xd2", "<bdi>00 00 04 d2</bdi>", "As a number (big-endian): 1234"),
        (b"\0\0\0\1\7\x80", "<bdi>00 00 00 01 07 80</bdi>", "Avro or Protobuf, schema id 263"),
        (b"\0\0\0\1\7{}", "<bdi>00 00 00 01 07 7b 7d</bdi>", "Value schema id 263"),
        (b"x" * 9000, f"<bdi>{'x' * 240}…</bdi>", "Only the beginning of 8.8 KiB"),
    ],
)
def test_a_value_is_shown_by_its_form(value: bytes | None, shown: str, unfolded: str) -> None:
    page = listed(replace(RECORD, value=value, value_bytes=len(value or b"")))
    assert f'<span class="value" data-name="value">{shown}</span>' in page
    assert unfolded in words(page)


def test_a_key_is_unfolded_if_its_line_is_too_short() -> None:
    assert "<h3>Key</h3>" not in listed(RECORD)
    assert "<h3>Key</h3>" in listed(replace(RECORD, key=b"k" * 61, key_bytes=61))
    assert "<h3>Key</h3>" in listed(replace(RECORD, key=b"\0", key_bytes=1))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"N14228", "Key N14228 Value"),
        (b"", "Key empty Value"),
        (None, "Key null Value"),
        (b"\x00\xff", "Key 00000000 00 ff"),
    ],
)
def test_the_page_of_a_record_shows_its_key(key: bytes | None, shown: str) -> None:
    record = replace(RECORD, key=key, key_bytes=len(key or b""))
    to = PageRequest.parse("/topics/t/records/2/41")
    assert shown in words(record_content("t", record, to, None))


def test_characters_that_reverse_the_direction_of_text_are_marked() -> None:
    raw = "paid\u202e001\u2066".encode()
    record = replace(RECORD, key=raw, key_bytes=len(raw), value=raw, value_bytes=len(raw))
    to = PageRequest.parse("/topics/t/records/2/41")
    for page in (listed(record), str(record_content("t", record, to, None))):
        assert page.count("paid\ufffd001\ufffd") >= 2
        assert not {"\u202e", "\u2066"} & set(page)


def test_what_is_known_of_a_record() -> None:
    page = words(listed(RECORD))
    assert "partition 2 · offset 41 · timestamp 1700000000000 (CreateTime) · key 1" in page
    assert "batch 2.0 KiB, zstd" in page
    assert "producer" not in page
    record = replace(
        RECORD, timestamp_ms=None, producer_id=7, transactional=True, leader_epoch=3, aborted=True,
        marker="abort",
    )  # fmt: skip
    page = words(listed(record))
    assert "timestamp" not in page
    assert "transactional producer 7 · leader epoch 3" in page
    assert "abort marker aborted" in page


def test_links_to_other_records() -> None:
    def links(query: str = "", **changes: object) -> dict[str, str]:
        found = re.findall(r'href="([^"]*)"[^>]*>([^<]*)<', listed(RECORD, query, **changes))
        return {name: html.unescape(url) for url, name in found}

    to = links("?partition=2&limit=7&from=41")
    base = "../../topics/t/records"
    assert to["Older"] == f"{base}?partition=2&from=34&limit=7"
    assert to["Newer"] == f"{base}?partition=2&from=42&limit=7"
    assert to["Newest"] == f"{base}?partition=2"
    assert to["Oldest"] == f"{base}?partition=2&from=earliest"
    assert links("?limit=500")["Older"].endswith("?limit=500&from=10")
    assert "Older" not in links(log_start=41)
    assert "Newer" not in links(log_end=42)
    assert (links()["Newest"], links()["Oldest"]) == (base, f"{base}?from=earliest")


def test_the_limit_that_ended_a_page_is_named() -> None:
    assert "1 record of offsets 41 to 41; the partition holds 10 to 89." in words(listed(RECORD))
    assert "; the time limit of one request was reached." in words(listed(RECORD, ended="time"))


@pytest.mark.parametrize(
    ("start", "end", "log_start", "log_end", "expected"),
    [
        (0, 0, 0, 0, "This partition is empty."),
        (7, 7, 7, 7, "This partition is empty; its next record gets the offset 7."),
        (90, 90, 10, 90, "0 records; the partition holds 10 to 89."),
        (10, 90, 10, 90, "0 records of offsets 10 to 89; the partition holds 10 to 89."),
    ],
)
def test_offsets_without_records(
    start: int, end: int, log_start: int, log_end: int, expected: str
) -> None:
    found = RecordRange(
        rows=pa.table({}), start=start, end=end, log_start=log_start, log_end=log_end, ended="",
        faults=(),
    )  # fmt: skip
    page = records_content("t", found, [], PageRequest.parse("/topics/t/records"))
    assert expected in words(page).replace("\N{NO-BREAK SPACE}", " ")
