"""A topic that is deleted and made again under a query: never wrong rows, never "data loss"."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import (
    InvalidRequestError,
    Log,
    LogReplacedError,
    OffsetOutOfRangeError,
    TopicReplacedError,
)
from sparklog.format.checkpoint_files import format_partition_metadata
from sparklog.log.topic_names import new_topic_id
from sparklog.source.batch import BatchReader
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from sparklog.source.stream import StreamReader
from sparklog.spark_versions import ReadAllAvailable
from tests import paths

GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"
ALL = ReadAllAvailable()
WARNS = {"failOnDataLoss": "false"}
REPLACED = r"t-0 was deleted and created again"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def log(path: str) -> Iterator[Log]:
    """Topic t: one partition, offsets [0, 10), values "old"."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        append(log, "old", 10)
        yield log


def append(log: Log, value: str, count: int) -> None:
    log.append("t", pa.table({"value": [value] * count}))


def remake(log: Log, count: int) -> None:
    """Topic t, made again at its old end, with `count` values "new"."""
    log.delete_topic("t")
    log.create_topic("t")
    if count:
        append(log, "new", count)


def stream(path: str, **options: str) -> StreamReader:
    given = parse({"path": path, "subscribe": "t", **options}, streaming=True)
    return StreamReader(given, full_schema(headers=False))


def batch(path: str, **options: str) -> BatchReader:
    given = parse({"path": path, "subscribe": "t", **options}, streaming=False)
    return BatchReader(given, full_schema(headers=False))


def values(reader: Any, planned: Any) -> list[tuple[int, str]]:
    """(offset, value) of what the planned tasks read, in order."""
    rows = [rows for piece in planned for rows in reader.read(piece)]
    return [
        (offset, (value or b"").decode("latin-1"))
        for batch in rows
        for offset, value in zip(
            batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
        )
    ]


def at(offset: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": offset}}


@pytest.mark.parametrize("count", [0, 5])
def test_between_latest_offset_and_planning(log: Log, path: str, count: int) -> None:
    for options, reads in ((WARNS, []), ({}, None)):
        reader = stream(path, **options)
        end = reader.latestOffset(at(2), ALL)
        remake(log, count)
        if reads is None:
            with pytest.raises(TopicReplacedError, match=REPLACED):
                reader.partitions(at(2), end)
        else:
            assert values(reader, reader.partitions(at(2), end)) == reads


def test_between_planning_and_reading(log: Log, path: str, caplog: Any) -> None:
    reader, careless = stream(path), stream(path, **WARNS)
    end = reader.latestOffset(at(2), ALL)
    planned = [each.partitions(at(2), end) for each in (reader, careless)]
    remake(log, 5)
    with pytest.raises(TopicReplacedError, match=f"{REPLACED}.*offset 2.*failOnDataLoss=false"):
        values(reader, planned[0])
    with caplog.at_level(logging.WARNING):
        assert values(careless, planned[1]) == []
    assert "t-0 was deleted and created again" in caplog.text
    assert "data loss" not in caplog.text
    following = careless.latestOffset(end, ALL)
    assert values(careless, careless.partitions(end, following)) == [
        (n, "new") for n in range(10, 15)
    ]


def test_in_the_midst_of_a_task(log: Log, path: str) -> None:
    append(log, "x" * 500_000, 10)  # several record batches when read
    reader = stream(path)
    (piece,) = reader.partitions(at(0), reader.latestOffset(at(0), ALL))
    rows = reader.read(piece)
    assert next(rows).num_rows
    remake(log, 5)
    with pytest.raises(TopicReplacedError, match=REPLACED):
        list(rows)


@pytest.mark.parametrize("read", [4, 10], ids=["some of it read", "all of it read"])
def test_a_running_query_stops_or_goes_on_where_the_new_topic_begins(
    log: Log, path: str, caplog: Any, read: int
) -> None:
    reader, careless = stream(path), stream(path, **WARNS)
    for each in (reader, careless):
        each.latestOffset(at(read), ALL)
    remake(log, 5)
    with pytest.raises(TopicReplacedError, match=f"offset {read} .*begins at offset 10.*another"):
        reader.partitions(at(read), reader.latestOffset(at(read), ALL))
    with caplog.at_level(logging.WARNING):
        end = careless.latestOffset(at(read), ALL)
        planned = careless.partitions(at(read), end)
    assert values(careless, planned) == [(n, "new") for n in range(10, 15)]
    assert caplog.text.count("t-0 was deleted and created again") == 1
    assert "data loss" not in caplog.text
    assert careless.latestOffset(end, ALL) == end
    anew = stream(path)  # as with another checkpoint
    everything = anew.partitions(at(10), anew.latestOffset(at(10), ALL))
    assert values(anew, everything) == [(n, "new") for n in range(10, 15)]


def test_a_query_that_was_down_knows_by_its_offsets(log: Log, path: str) -> None:
    """The checkpoint holds offsets alone: those below the new topic's first are the old one's."""
    remake(log, 5)
    log.delete_records("t", {0: 12})  # so it isn't the log start that tells
    with pytest.raises(TopicReplacedError, match=r"offset 9 .*begins at offset 10"):
        reader = stream(path)
        reader.partitions(at(9), reader.latestOffset(at(9), ALL))
    with pytest.raises(OffsetOutOfRangeError, match=r"data loss: offsets \[10, 12\) of t-0"):
        reader.partitions(at(10), reader.latestOffset(at(10), ALL))
    careless = stream(path, **WARNS)
    end = careless.latestOffset(at(9), ALL)
    planned = careless.partitions(at(9), end)
    assert values(careless, planned) == [(n, "new") for n in range(12, 15)]
    log.close()
    with sparklog.open(path, "rw") as again:
        again.alter_topic("t", partitions=2)
        with pytest.raises(TopicReplacedError):
            stream(path).partitions(at(9), end)


def test_a_partition_that_is_new_to_a_query_lost_nothing(log: Log, path: str) -> None:
    remake(log, 5)
    planned = stream(path).partitions({}, at(15))
    assert values(stream(path), planned) == [(n, "new") for n in range(10, 15)]


def test_a_batch_read(log: Log, path: str) -> None:
    reader, careless = batch(path), batch(path, **WARNS)
    planned = [each.partitions() for each in (reader, careless)]
    assert len(values(reader, planned[0])) == 10
    remake(log, 5)
    with pytest.raises(TopicReplacedError, match=REPLACED):
        values(reader, planned[0])
    assert values(careless, planned[1]) == []
    assert values(reader, reader.partitions()) == [(n, "new") for n in range(10, 15)]


# --- the whole log dir, with the same topic ids: a copy ------------------------------------------


@pytest.mark.parametrize("make", [batch, stream])
def test_reused_workers_read_what_is_there_now(
    log: Log, path: str, tmp_path: Path, make: Any
) -> None:
    shutil.copytree(path, tmp_path / "copy")
    with sparklog.open(tmp_path / "copy", "rw") as elsewhere:
        append(elsewhere, "theirs", 5)
    append(log, "ours", 5)

    def planned(reader: Any) -> Any:
        if make is stream:  # offsets up to 15 of the other log are of another history
            return reader.partitions(at(10), reader.latestOffset(at(10), ALL))
        return reader.partitions()

    running = make(path)
    assert [value for _, value in values(running, planned(running))][-1] == "ours"
    os.rename(path, tmp_path / "gone")
    shutil.copytree(tmp_path / "copy", path)
    for reader in (running, make(path)):
        assert [value for _, value in values(reader, planned(reader))][-1] == "theirs"


def test_planned_and_then_replaced_by_an_earlier_state(log: Log, path: str, tmp_path: Path) -> None:
    """The task fails, whatever failOnDataLoss says: the next plan tells what is lost."""
    shutil.copytree(path, tmp_path / "copy")
    append(log, "ours", 5)
    reader = stream(path, **WARNS)
    planned = reader.partitions(at(0), at(15))
    os.rename(path, tmp_path / "gone")
    shutil.copytree(tmp_path / "copy", path)
    with pytest.raises(LogReplacedError, match=r"offsets \[10, 15\) .* ends at 10 now"):
        values(reader, planned)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets \[10, 15\) of t-0 .* restored"):
        stream(path).latestOffset(at(15), ALL)


def test_a_removed_log_is_no_silence(log: Log, path: str) -> None:
    reader = stream(path)
    planned = reader.partitions(at(0), at(10))
    shutil.rmtree(path)
    with pytest.raises(InvalidRequestError, match="does not exist"):
        values(reader, planned)
    with pytest.raises(InvalidRequestError, match="does not exist"):
        reader.latestOffset(at(0), ALL)


# --- a broker's topics, whose offsets begin at 0 again -------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> str:
    """A broker's log dir with topic t, a golden partition."""
    home = tmp_path / "log"
    shutil.copytree(GOLDEN / "plain.none-0", home / "t-0")
    return str(home)


def remake_as_broker(home: str, golden: str) -> None:
    shutil.rmtree(os.path.join(home, "t-0"))
    shutil.copytree(GOLDEN / golden, os.path.join(home, "t-0"))
    with open(os.path.join(home, "t-0", "partition.metadata"), "wb") as file:
        file.write(format_partition_metadata(new_topic_id(), None))


def test_a_brokers_topic_begins_at_zero_again(broker: str, caplog: Any) -> None:
    options = {"until": "log-end"}
    reader, careless = stream(broker, **options), stream(broker, **options, **WARNS)
    end = reader.latestOffset(at(0), ALL)
    before = values(reader, reader.partitions(at(0), end))
    assert before
    planned = [each.partitions(at(1), each.latestOffset(at(1), ALL)) for each in (reader, careless)]
    remake_as_broker(broker, "plain.none-1")
    with pytest.raises(TopicReplacedError, match=REPLACED):
        values(reader, planned[0])  # the same file names and offsets, other records
    with pytest.raises(TopicReplacedError, match=REPLACED):
        reader.latestOffset(end, ALL)
    assert values(careless, planned[1]) == []
    back = careless.latestOffset(end, ALL)
    assert back == at(0)
    assert careless.partitions(end, back) == []
    again = careless.latestOffset(back, ALL)
    fresh = stream(broker, **options)
    assert (
        values(careless, careless.partitions(back, again))
        == values(fresh, fresh.partitions(at(0), again))
        != before
    )
