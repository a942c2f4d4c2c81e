"""The JSON documents of topics and records. Scripts rely on their field names (docs/ui.md)."""

import base64
from typing import Any

from sparklog.storage.view import TopicInfo
from sparklog.tools.configs import describe_configs
from sparklog.ui.browse.figures import PartitionFigures, TopicFigures
from sparklog.ui.browse.record_previews import RecordPreview
from sparklog.ui.browse.record_range import RecordRange
from sparklog.ui.browse.values import render_value
from sparklog.ui.topic_pages import TopicView
from sparklog.ui.units import iso_text


def topic_json(topic: TopicFigures) -> dict[str, Any]:
    """Return the JSON object of a topic in the list of topics."""
    return {
        "name": topic.name,
        "id": topic.info.id,
        "partitions": topic.info.partitions,
        "offline_partitions": sorted(topic.info.offline),
        "records": topic.records,
        "bytes": topic.size_bytes,
        "records_per_second": None if topic.rate is None else round(topic.rate, 3),
        "readers": topic.readers,
        "lag": topic.lag,
        "cleanup_policy": ",".join(topic.info.config.cleanup_policy),
    }


def topic_document(view: TopicView) -> dict[str, Any]:
    """Return the JSON object of a topic with partitions, configs and readers."""
    return {
        **topic_json(view.figures),
        "partition_list": [partition_json(partition) for partition in view.partitions],
        "configs": configs_json(view.figures.info) if view.has_configs else None,
        "reader_list": [reader_json(row) for row in view.readers],
    }


def partition_json(partition: PartitionFigures) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "start": partition.start,
        "end": partition.end,
        "bytes": partition.size_bytes,
        "segments": partition.segments,
        "remote_segments": partition.remote_segments,
        "directory": partition.directory,
        "offline": partition.offline,
    }


def configs_json(info: TopicInfo) -> list[dict[str, Any]]:
    """Return all configs of a topic. `is_default` is true for configs that were not set."""
    return [
        {"name": e.name, "value": e.value, "default": e.default,
         "is_default": e.source == "DEFAULT_CONFIG"}
        for e in describe_configs(info, everything=True)
    ]  # fmt: skip


def reader_json(row: dict[str, Any]) -> dict[str, Any]:
    names = ("group", "kind", "query", "partition", "offset", "lag", "expired")
    found = {name: row[name] for name in names}
    return {**found, "time": iso_text(row["time"])}


def range_json(
    found: RecordRange, records: list[RecordPreview], following: str | None
) -> dict[str, Any]:
    """Return the JSON object of a range of records.

    `following`: the query string that selects the next records under the same path (`next`), or
    None at the end.
    """
    return {
        "records": [record_json(record) for record in records],
        "next": following,
        "ended": found.ended or "end",
        "log_start": found.log_start,
        "log_end": found.log_end,
        "faults": list(found.faults),
    }


def record_json(record: RecordPreview) -> dict[str, Any]:
    """Return the JSON object of a record.

    Keys and values that are not UTF-8 are in `key_base64` and `value_base64`. `key_cut` and
    `value_cut` are true if the key or value is longer than shown.
    """
    time = record.timestamp_ms
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": time,
        "time": None if time is None else iso_text(time),
        "timestamp_type": "LogAppendTime" if record.append_time else "CreateTime",
        **_bytes_json("key", record.key, record.key_bytes),
        **_bytes_json("value", record.value, record.value_bytes),
        "headers": [
            {"name": each.name, **_bytes_json("value", each.value, each.value_bytes)}
            for each in record.headers
        ],
        "header_count": record.header_count,
        "codec": record.codec,
        "batch_bytes": record.batch_bytes,
        "producer_id": record.producer_id,
        "leader_epoch": record.leader_epoch,
        "transactional": record.transactional,
        "aborted": record.aborted,
        "marker": record.marker,
    }


def _bytes_json(name: str, raw: bytes | None, size: int) -> dict[str, Any]:
    if raw is None:
        return {name: None, f"{name}_bytes": None}
    found: dict[str, Any] = {name: None, f"{name}_bytes": size}
    cut = len(raw) < size
    try:
        found[name] = _text_of_cut(raw) if cut else raw.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(raw).decode()
    if cut:
        found[f"{name}_cut"] = True
    schema_id = render_value(raw[:64], most=64).schema_id
    if schema_id is not None:
        found[f"{name}_schema_id"] = schema_id
    return found


def _text_of_cut(raw: bytes) -> str:
    """Decode truncated UTF-8 text, dropping an incomplete last character."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.start < len(raw) - 3:  # UTF-8 has at most 4 bytes per character
            raise
        return raw[: error.start].decode()
