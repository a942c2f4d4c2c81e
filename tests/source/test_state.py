"""The readers of a checkpoint's state, as Spark calls them, without Spark."""

import json
import logging
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from sparklog import checkpoint
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.source.state import StateBatchReader, StateStreamReader, state_schema
from sparklog.source.state_options import StateOptions, parse
from sparklog.spark_versions import ReadAllAvailable, ReadMaxRows
from tests.checkpoint.conftest import Golden, golden, unpacked

__all__ = ["golden", "unpacked"]


def options(path: Path, **more: Any) -> StateOptions:
    return parse({"path": str(path), "stateOperator": "0", **more})


def stream(path: Path, **more: Any) -> StateStreamReader:
    given = options(path, **more)
    return StateStreamReader(given, state_schema(given))


def tasks(reader: Any, *arguments: Any) -> list[pa.Table]:
    """What each task of a plan reads, the reader pickled to it."""
    found = []
    for partition in reader.partitions(*arguments):
        there = pickle.loads(pickle.dumps(reader))
        found.append(pa.Table.from_batches(there.read(pickle.loads(pickle.dumps(partition)))))
    return found


@pytest.mark.parametrize("name", ["hdfs", "ids", "processed"])
def test_a_task_for_each_partition(golden: Golden, name: str) -> None:
    path = golden(name)
    given = options(path)
    found = tasks(StateBatchReader(given, state_schema(given)))
    whole = checkpoint.changes(path).read_all()
    assert [set(t.column("partition").to_pylist()) for t in found] == [{0}, {1}]
    sort = [("batch", "ascending"), ("partition", "ascending")]
    assert pa.concat_tables(found).sort_by(sort).to_pylist() == whole.to_pylist()


def batches(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset without the time of its last batch's plan."""
    return {"batch": offset["batch"]}


def test_steps_of_a_stream(golden: Golden) -> None:
    path = golden("hdfs")
    reader = stream(path, startingOffsets="earliest", maxBatchesPerTrigger="4")
    assert reader.initialOffset() == {"batch": 4}
    limit = reader.getDefaultReadLimit()
    assert batches(reader.latestOffset({"batch": 4}, limit)) == {"batch": 8}
    assert batches(reader.latestOffset({"batch": 12}, limit)) == {"batch": 14}
    assert batches(reader.latestOffset({"batch": 4}, ReadAllAvailable())) == {"batch": 14}
    assert reader.reportLatestOffset() == {"batch": 14}
    (path / "commits/13").rename(path / "commits/.13")
    reader.prepareForTriggerAvailableNow()
    (path / "commits/.13").rename(path / "commits/13")
    assert batches(reader.latestOffset({"batch": 12}, limit)) == {"batch": 13}
    assert reader.latestOffset({"batch": 13}, limit) == {"batch": 13}
    assert stream(path).initialOffset() == {"batch": 14}
    assert stream(path, startingOffsets="20").latestOffset({"batch": 20}, limit) == {"batch": 20}
    assert isinstance(stream(path).getDefaultReadLimit(), ReadAllAvailable)


def test_a_log_backed_one_is_followed(golden: Golden) -> None:
    """New records are seen, and tasks look up no more than their own files."""
    path = golden("ids")
    checkpoint.import_(path)
    reader = stream(path)
    assert batches(reader.latestOffset({"batch": 8}, ReadAllAvailable())) == {"batch": 10}
    found = pa.concat_tables(tasks(reader, {"batch": 8}, {"batch": 10}))
    assert found.num_rows == 14


def test_a_file_that_vanishes_after_planning(
    golden: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    path = golden("hdfs")
    lost = r"data loss: changes of batches \[10, 11\) of operator 0, store default of .*11\.delta"
    strict, lenient = stream(path), stream(path, failOnDataLoss="false")
    plan = strict.partitions({"batch": 9}, {"batch": 12})
    (path / "state/0/1/11.delta").unlink()
    with pytest.raises(OffsetOutOfRangeError, match=lost):
        list(strict.read(plan[1]))
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        found = pa.Table.from_batches(lenient.read(plan[1]))
    assert set(found.column("batch").to_pylist()) == {9, 11}
    assert "changes of batches [10, 11)" in caplog.text


def test_a_query_that_was_reset(golden: Golden, caplog: pytest.LogCaptureFixture) -> None:
    """Its batches come again; a micro-batch that was planned before can't be replayed."""
    path = golden("hdfs")
    for batch in (12, 13):
        (path / f"commits/{batch}").unlink()
    reader = stream(path)
    assert reader.latestOffset({"batch": 14}, ReadAllAvailable()) == {"batch": 14}
    with pytest.raises(OffsetOutOfRangeError, match=r"\[12, 14\).*last committed batch is 11"):
        reader.partitions({"batch": 11}, {"batch": 14})
    lenient = stream(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        (table, _) = tasks(lenient, {"batch": 11}, {"batch": 14})
    assert set(table.column("batch").to_pylist()) == {11}
    assert "[12, 14)" in caplog.text


def compute_anew(path: Path, first: int, end: int) -> None:
    """As if the query had been reset to before `first`, and had planned those batches again."""
    for batch in range(first, end):
        plan = path / f"offsets/{batch}"
        version, metadata, *rest = plan.read_text().split("\n")
        later = json.loads(metadata)
        later["batchTimestampMs"] += 10**6
        plan.write_text("\n".join([version, json.dumps(later), *rest]))
        (path / f"offsets/.{batch}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("end", [12, 14], ids=["computing", "beyond what was read"])
def test_what_is_computed_anew_is_read_again(
    golden: Golden, caplog: pytest.LogCaptureFixture, end: int
) -> None:
    """A reset to batch 10 after batch 12 was read, seen before and after 12 is there again."""
    path = golden("hdfs")
    before = stream(path).latestOffset({"batch": 8}, ReadAllAvailable())
    at = stream(path, maxBatchesPerTrigger="5").latestOffset({"batch": 8}, ReadMaxRows(1))
    assert batches(at) == {"batch": 13}
    assert stream(path).latestOffset(before, ReadAllAvailable()) == before
    for batch in range(end, 14):
        (path / f"commits/{batch}").unlink()
    compute_anew(path, 11, 14)
    said = r"batches \[11, 13\) of operator 0.*were read.*reset since.*failOnDataLoss=false; "
    said += "to discard the old changes, start over with another checkpoint and another sink"
    with pytest.raises(OffsetOutOfRangeError, match=said):
        stream(path).latestOffset(at, ReadAllAvailable())
    lenient = stream(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        back = lenient.latestOffset(at, ReadAllAvailable())
    assert batches(back) == {"batch": 11}
    assert "going back to batch 11" in caplog.text
    assert tasks(lenient, at, back) == []
    following = lenient.latestOffset(back, ReadAllAvailable())
    assert batches(following) == {"batch": end}
    again = pa.concat_tables(tasks(lenient, back, following))
    assert set(again.column("batch").to_pylist()) == set(range(11, end))
    # a micro-batch that was planned before and is replayed now
    with pytest.raises(OffsetOutOfRangeError, match=said):
        stream(path).partitions({"batch": 9}, at)
    replayed = pa.concat_tables(tasks(lenient, {"batch": 9}, at))
    assert set(replayed.column("batch").to_pylist()) == {9, 10}
    anew = stream(path, startingOffsets="earliest")  # with another checkpoint, to another sink
    begin = anew.initialOffset()
    whole = pa.concat_tables(tasks(anew, begin, anew.latestOffset(begin, ReadAllAvailable())))
    assert set(whole.column("batch").to_pylist()) == set(range(4, end))


def test_a_reset_under_a_clock_that_was_set_back(golden: Golden) -> None:
    path = golden("hdfs")
    at = stream(path).latestOffset({"batch": 8}, ReadAllAvailable())
    at["planned"] += 5  # as it was planned before the reset
    assert batches(stream(path, failOnDataLoss="false").latestOffset(at, ReadAllAvailable())) == {
        "batch": 4
    }


def test_schemas(golden: Golden) -> None:
    path = golden("processed")
    family = options(path, stateColumnFamily="count")
    assert state_schema(family).simpleString() == (
        "struct<batch:bigint,partition:int,change:string,key:struct<k:bigint>,"
        "value:struct<n:int>,range_end:struct<k:bigint>>"
    )
    wrong = StructType().add("change", "string").add("sum", "long")
    with pytest.raises(InvalidRequestError, match="no column sum; choose from batch, partition"):
        StateBatchReader(family, wrong)
    (found, *_) = tasks(StateBatchReader(family, StructType().add("change", "string")))
    assert found.column_names == ["change"]
    with pytest.raises(InvalidRequestError, match="no column family gone; its column families are"):
        state_schema(options(path, stateColumnFamily="gone"))


def test_beside_a_query_that_goes_on(golden: Golden) -> None:
    """No batch is taken for lost because it was written while the checkpoint was listed."""
    path = golden("hdfs-zstd")
    kept = path.with_name("kept")
    shutil.move(path, kept)
    files = [f"state/0/{p}/{b + 1}.delta" for b in range(6) for p in range(2)]
    files = [name for b in range(6) for name in (*files[2 * b : 2 * b + 2], f"commits/{b}")]
    shutil.copytree(kept, path)
    for name in files:
        (path / name).unlink()

    def go_on() -> None:
        for name in files:
            time.sleep(0.005)
            shutil.copyfile(kept / name, path / f"{name}.tmp")
            (path / f"{name}.tmp").rename(path / name)

    reader = stream(path, startingOffsets="earliest")
    at, found = reader.initialOffset(), []
    with ThreadPoolExecutor() as pool:
        done = pool.submit(go_on)
        while batches(at) != {"batch": 6}:
            end = reader.latestOffset(at, ReadAllAvailable())
            found += tasks(reader, at, end)
            at = end
            if done.done():
                done.result()  # raises what it raised
    whole = checkpoint.changes(kept).read_all()
    sort = [("batch", "ascending"), ("partition", "ascending")]
    assert pa.concat_tables(found).sort_by(sort).to_pylist() == whole.to_pylist()
