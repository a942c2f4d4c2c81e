"""Plans and commits as Spark writes them."""

import pytest

from sparklog.checkpoint.spark_files.metadata_logs import (
    log_offset_of,
    parse_commit,
    parse_offsets,
    rows_between,
    topics_of,
)
from sparklog.errors import DataCorruptionError

METADATA = '{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}'


def test_sources_by_number() -> None:
    text = f'v1\n{METADATA}\n{{"t":{{"0":12}}}}\n-\n{{"logOffset":3}}'
    found = parse_offsets(text.encode(), batch=4, path="p")
    assert (found.version, found.watermark_ms, found.timestamp_ms, found.conf) == (
        1,
        5,
        7,
        {"a": "b"},
    )
    assert found.sources == {"0": '{"t":{"0":12}}', "1": None, "2": '{"logOffset":3}'}


def test_sources_by_name() -> None:
    text = f'v2\n{METADATA}\nmine:{{"t":{{"0":12}}}}\nother:-'
    found = parse_offsets(text.encode(), batch=4, path="p")
    assert found.sources == {"mine": '{"t":{"0":12}}', "other": None}


def test_without_metadata() -> None:
    assert parse_offsets(b"v1\n\n0", batch=0, path="p").sources == {"0": "0"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "got ''"),
        (b"v3\n{}\n-", "got 'v3'"),
        (b"v1\n{", "not valid JSON"),
        (b"v1\n[]", "not a JSON object"),
        (b"v1\n\xff", "is not valid UTF-8"),
        (b"v2\n{}\nnothing", "must have the form `source:offset`"),
        (b'v1\n{"batchTimestampMs":"x"}', "must be a number"),
    ],
)
def test_damaged_offsets(data: bytes, says: str) -> None:
    with pytest.raises(DataCorruptionError, match=says):
        parse_offsets(data, batch=1, path="checkpoint/offsets/1")


def test_commits() -> None:
    plain = parse_commit(b'v1\n{"nextBatchWatermarkMs":9}', batch=1, path="p")
    assert (plain.next_watermark_ms, plain.state_ids) == (9, None)
    with_ids = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a","b"],["c"]]}}'
    assert parse_commit(with_ids, batch=1, path="p").state_ids == {0: [["a", "b"], ["c"]]}
    assert parse_commit(b"v1", batch=1, path="p").next_watermark_ms == 0
    for bad in (b"v9\n{}", b'v2\n{"stateUniqueIds":{"0":"x"}}', b'v2\n{"stateUniqueIds":[1]}'):
        with pytest.raises(DataCorruptionError):
            parse_commit(bad, batch=1, path="p")


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        ('{"t":{"0":1,"1":5}}', '{"t":{"0":4,"1":5}}', 3),
        ('{"t":{"0":1}}', '{"t":{"0":4,"1":5}}', None),
        (None, '{"t":{"0":4}}', None),
        ('{"offset":40,"timestamp":1000}', '{"offset":80,"timestamp":2000}', 40),
        ("3", "5", None),
        ('{"logOffset":1}', '{"logOffset":2}', None),
        ('{"t":{"0":1}}', None, None),
    ],
)
def test_rows(start: str | None, end: str | None, rows: int | None) -> None:
    assert rows_between(start, end) == rows


def test_kinds_of_offsets() -> None:
    assert topics_of('{"t":{"0":1},"u":{"3":2}}') == {("t", 0): 1, ("u", 3): 2}
    for other in (None, "-", "5", '{"logOffset":3}', "{}", '{"t":{"x":1}}', "not json"):
        assert topics_of(other) is None
    assert log_offset_of('{"logOffset":3}') == 3
    assert log_offset_of("3") is log_offset_of(None) is None
