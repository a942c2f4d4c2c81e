"""What is kept of a group: old files are read, and older sparklogs read ours."""

import pytest

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.storage.groups import (
    Committed,
    Origin,
    Reader,
    committed_by_client,
    reader_from_json,
    reader_to_json,
    touched,
    without_partitions,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD = {
    "group": "g", "kind": "group", "host": "h", "app": "", "batch": None,
    "offsets": {"t": {"0": [5, 1], "1": [7, 2]}}, "epochs": {"t": {"0": [3, 4]}},
}  # fmt: skip


def test_what_an_older_sparklog_wrote_is_read_and_written_as_it_was() -> None:
    reader = reader_from_json(OLD)
    assert reader.offsets == {T0: Committed(5, 1, Origin(3, 4)), T1: Committed(7, 2)}
    assert reader_to_json(reader) == OLD


def test_notes_are_beside_what_an_older_sparklog_reads() -> None:
    offsets = {T0: Committed(5, 1, Origin(3, 4), "note", 3), T1: Committed(7, 2, None, "", 0)}
    content = reader_to_json(Reader("g", "group", "h", offsets=offsets))
    assert reader_from_json(content).offsets == offsets
    assert content.pop("notes") == {"t": {"0": ["note", 3], "1": ["", 0]}}
    assert content == OLD


def test_the_name_of_a_query_is_beside_what_an_older_sparklog_reads() -> None:
    named = Reader("g", "group", "h", offsets=reader_from_json(OLD).offsets, name="tidy\x1b\n")
    content = reader_to_json(named)
    assert reader_from_json(content) == named
    assert content.pop("name") == "tidy\x1b\n"
    assert content == OLD
    assert reader_from_json(OLD).name == ""


def test_a_client_keeps_the_other_partitions_and_says_who_it_is() -> None:
    known = reader_from_json(OLD)
    client = Reader("g", "group", "elsewhere", "rdkafka")
    reader = committed_by_client(known, client, {T1: Committed(9, 5)})
    assert reader == Reader(
        "g", "group", "elsewhere", "rdkafka", offsets={**known.offsets, T1: Committed(9, 5)}
    )
    assert committed_by_client(None, client, {}) is None


def test_a_query_is_left_alone() -> None:
    query = Reader("q", "query", "h", "app", 3, {T0: Committed(5, 1)})
    with pytest.raises(InvalidRequestError, match="streaming query of app on host h"):
        committed_by_client(query, Reader("q", "group"), {T0: Committed(9, 5)})
    with pytest.raises(InvalidRequestError):
        without_partitions(query, {T0})


def test_touched_commits_count_as_made_now_and_never_earlier() -> None:
    known = reader_from_json(OLD)
    after = touched(known, {T0, T1}, 2)
    assert after is not None
    assert [at.time_ms for at in after.offsets.values()] == [2, 2]
    after = touched(known, {T1}, 1)
    assert after is not None
    assert after.offsets == known.offsets
    assert touched(known, {TopicPartition("u", 0)}, 9) is None
