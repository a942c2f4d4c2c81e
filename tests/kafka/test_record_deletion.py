"""Records deleted by clients."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparklog.kafka.messages import Api, ErrorCode, unknown_names
from sparklog.kafka.record_deletion import RecordDeletion
from sparklog.log.log import Log


def delete(
    log: Log, topic: str, offsets: dict[int, int], *, is_writable: bool = True
) -> dict[int, tuple[int, str]]:
    """Return {partition: (log start, error)}."""
    partitions = [SimpleNamespace(partition_index=p, offset=at) for p, at in offsets.items()]
    body = SimpleNamespace(topics=[SimpleNamespace(name=topic, partitions=partitions)])
    answer = RecordDeletion(log, is_writable=is_writable).delete_records(body)
    assert unknown_names(Api.DELETE_RECORDS, answer) == []
    (found,) = answer["topics"]
    return {
        each["partition_index"]: (each["low_watermark"], ErrorCode(each["error_code"]).name)
        for each in found["partitions"]
    }


def append(log: Log, topic: str, *partitions: int) -> None:
    for p in partitions:
        log.append(topic, pa.table({"value": [b"x"] * 10}), partition=p)


@pytest.mark.sparklog(topics={"a": 3})
def test_log_starts_rise(sparklog_log: Log) -> None:
    append(sparklog_log, "a", 0, 1)
    assert delete(sparklog_log, "a", {0: 4, 1: -1, 2: -1}) == {
        0: (4, "none"), 1: (10, "none"), 2: (0, "none"),
    }  # fmt: skip
    assert sparklog_log.offsets("a") == {0: (4, 10), 1: (10, 10), 2: (0, 0)}
    assert delete(sparklog_log, "a", {0: 2}) == {0: (4, "none")}, "what is gone stays gone"


@pytest.mark.sparklog(topics={"a": 2})
def test_each_partition_is_for_itself(sparklog_log: Log) -> None:
    append(sparklog_log, "a", 0, 1)
    assert delete(sparklog_log, "a", {0: 11, 1: 5, 2: 0}) == {
        0: (-1, "offset_out_of_range"), 1: (5, "none"), 2: (-1, "unknown_topic_or_partition"),
    }  # fmt: skip
    assert delete(sparklog_log, "a", {0: -2}) == {0: (-1, "offset_out_of_range")}
    assert sparklog_log.offsets("a") == {0: (0, 10), 1: (5, 10)}
    assert delete(sparklog_log, "b", {0: 0}) == {0: (-1, "unknown_topic_or_partition")}


@pytest.mark.sparklog(topics={"a": {"cleanup.policy": "compact"}})
def test_a_compacted_topic_keeps_its_records_as_in_kafka(sparklog_log: Log) -> None:
    data = pa.table({"key": [b"k"], "value": [b"v"]})
    sparklog_log.append("a", data)
    assert delete(sparklog_log, "a", {0: 1}) == {0: (-1, "policy_violation")}
