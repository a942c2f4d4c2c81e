"""State schemas: Spark's types as Arrow's, and what is wrong with a file."""

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.state_schema import arrow_type, store_schema
from sparklog.errors import DataCorruptionError
from tests.checkpoint.conftest import Golden


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("long", pa.int64()),
        ("void", pa.null()),
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ("varchar(7)", pa.string()),
        ("timestamp_ntz", pa.timestamp("us")),
        ("interval day to second", pa.duration("us")),
        ("interval year to month", pa.int32()),
        ("time(6)", pa.time64("ns")),
        ("interval", pa.binary()),
        ("variant", pa.binary()),
        ({"type": "udt", "class": "x", "sqlType": "double"}, pa.float64()),
        (
            {"type": "array", "elementType": "date", "containsNull": False},
            pa.list_(pa.field("element", pa.date32())),
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "boolean", "valueContainsNull": True},
            pa.map_(pa.string(), pa.bool_()),
        ),
    ],
)
def test_types(given: Any, wanted: pa.DataType) -> None:
    assert arrow_type(json.loads(json.dumps(given))) == wanted


def test_names_that_come_again_are_numbered() -> None:
    fields = [{"name": n, "type": "long"} for n in ("sum", "sum", "n", "sum_2", "sum")]
    names = [field.name for field in arrow_type({"type": "struct", "fields": fields})]
    assert names == ["sum", "sum_3", "n", "sum_2", "sum_4"]


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def schema(path: Path) -> Path:
    return path / "state/0/0/_metadata/schema"


def test_the_first_format_and_long_texts(golden: Golden) -> None:
    path = golden("hdfs")
    key, value = (
        json.dumps({"type": "struct", "fields": [{"name": name, "type": "long"}]})
        for name in ("k", "x" * 70_000)
    )
    long = struct.pack(">i", 1) + utf(key) + struct.pack(">i", 2) + utf(value[:65535])
    schema(path).write_bytes(utf("v2") + long + utf(value[65535:]))
    found = store_schema(Checkpoint.open(path), 0).families["default"]
    assert (found.key.field(0).name, len(found.value.field(0).name)) == ("k", 70_000)
    schema(path).write_bytes(utf("v1") + utf(key) + utf(key))
    assert store_schema(Checkpoint.open(path), 0).families["default"].value == found.key


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the schema is incomplete"),
        (utf("v9"), "the version of the schema must be v1, v2 or v3; got 'v9'"),
        (utf("v1") + utf("{") + utf("{}"), "the file is not a state schema: Expecting"),
        (utf("v1") + utf("{}") + utf("{}"), "the file is not a state schema: 'type'"),
        (utf("v2") + struct.pack(">i", 1) + struct.pack(">H", 9), "the schema is incomplete"),
    ],
)
def test_damage(golden: Golden, data: bytes, reason: str) -> None:
    path = golden("hdfs")
    schema(path).write_bytes(data)
    with pytest.raises(DataCorruptionError, match=reason):
        store_schema(Checkpoint.open(path), 0)


def test_families_and_a_checkpoint_that_was_moved(golden: Golden) -> None:
    """The metadata name the schema's files where they were written."""
    found = store_schema(Checkpoint.open(golden("processed")), 0)
    assert (found.has_families, found.partitions) == (True, 2)
    assert sorted(found.families) == ["$rowCounter_seen", "count", "seen"]
    assert {family.layout.kind for family in found.families.values()} == {"plain"}


def test_a_store_without_metadata(golden: Golden) -> None:
    """As of Spark 3: its stores tell of themselves."""
    path = golden("join")
    (path / "state/0/_metadata/metadata").unlink()
    (path / "state/0/_metadata/.metadata.crc").unlink(missing_ok=True)
    found = store_schema(Checkpoint.open(path), 0, "left-keyToNumValues")
    assert (found.partitions, found.has_families) == (2, False)


def test_avro_stays_bytes(golden: Golden) -> None:
    from sparklog import checkpoint

    path = golden("processed")
    plan = (
        path / "offsets" / max(p.name for p in (path / "offsets").iterdir() if p.name.isdecimal())
    )
    version, metadata, *rest = plan.read_text().split("\n")
    fields = json.loads(metadata)
    fields["conf"]["spark.sql.streaming.stateStore.encodingFormat"] = "avro"
    plan.write_text("\n".join([version, json.dumps(fields), *rest]))
    (path / "offsets" / f".{plan.name}.crc").unlink(missing_ok=True)
    found = checkpoint.changes(path, column_family="count", end=1).read_all()
    assert found.column("key").type == found.column("value").type == pa.binary()
    first = found.to_pylist()[0]
    assert first["key"] == b"\0" + struct.pack("<qq", 0, 2)
    assert first["value"] == b"\0" + struct.pack("<qq", 0, 8)
