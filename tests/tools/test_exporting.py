"""Exports that grow from time to time, and what a broker makes of an exported directory."""

import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

import sparklog
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, StorageUnavailableError
from sparklog.service import Service, verify
from sparklog.tools.moving import export_kafka, placing
from sparklog.tools.moving import export_parquet as parquet
from sparklog.tools.moving.export_delta import export_delta
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.export_parquet import export_parquet
from sparklog.tools.moving.exporting import TABLE_COLUMNS
from tests.oracle import Oracle

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table(
        {
            "key": pa.array([b"k%d" % (n % 7) for n in numbers]),
            "value": pa.array([None if n % 11 == 0 else b"v%d" % n for n in numbers], pa.binary()),
            "headers": pa.array([[("h", b"1")] if n % 3 == 0 else [] for n in numbers], HEADERS),
            "timestamp": pa.array([10**12 + n for n in numbers], pa.timestamp("ms", tz="UTC")),
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
        log.append("t", rows(0, 100), partition=0)
        log.append("t", rows(0, 50), partition=1)
        yield log


def read(log: sparklog.Log, **given: Any) -> pa.Table:
    return log.read("t", columns=TABLE_COLUMNS, **given).read_all()


def sorted_table(table: pa.Table) -> pa.Table:
    columns = pa.table({name: table[name] for name in TABLE_COLUMNS})
    return columns.sort_by([("partition", "ascending"), ("offset", "ascending")])


@pytest.mark.parametrize("kind", ["delta", "parquet", "log"])
def test_each_record_once(log: sparklog.Log, tmp_path: Path, kind: str) -> None:
    export: Any = {"delta": export_delta, "parquet": export_parquet, "log": export_log}[kind]
    to = tmp_path / "to"

    def exported() -> pa.Table:
        if kind == "delta":
            table = pa.table(deltalake.DeltaTable(str(to)).to_pyarrow_table())
            return sorted_table(table.cast(read(log).schema))
        if kind == "parquet":
            return sorted_table(pyarrow.parquet.read_table(to))
        with sparklog.open(to) as other:
            return read(other)

    assert export(log, "t", to, end={0: 60}).offsets == {0: (0, 60), 1: (0, 50)}
    assert exported().equals(read(log, end={0: 60}))
    assert export(log, "t", to).offsets == {0: (60, 100)}
    assert export(log, "t", to).offsets == {}
    assert exported().equals(read(log))
    log.append("t", rows(100, 120), partition=0)
    log.alter_topic("t", partitions=3)
    log.append("t", rows(0, 5), partition=2)
    assert export(log, "t", to).offsets == {0: (100, 120), 2: (0, 5)}
    assert exported().equals(read(log))
    log.append("t", rows(120, 140), partition=0)
    log.delete_records("t", {0: 130})  # what was to be exported next is gone
    with pytest.raises(OffsetOutOfRangeError, match="up to 120, and the log starts at 130"):
        export(log, "t", to)
    # The message advises a new place, or the offset at which the log starts.
    assert export(log, "t", tmp_path / "new").offsets == {0: (130, 140), 1: (0, 50), 2: (0, 5)}
    assert export(log, "t", to, start={0: 130}).offsets == {0: (130, 140)}
    held = exported().filter(pc.equal(exported()["partition"], 0))["offset"].to_pylist()
    assert held == [*range(120), *range(130, 140)]


def test_a_broker_loads_a_range(
    log: sparklog.Log, tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "COMMIT_BYTES", 500)
    export_log(log, "t", tmp_path / "to", start={0: 17, 1: 50}, end={0: 83})
    judged = oracle.open(tmp_path / "to" / "t-0", clean=True)
    assert (judged.start, judged.end, judged.count) == (17, 83, 66)
    assert judged.untouched
    empty = oracle.open(tmp_path / "to" / "t-1", clean=True)
    assert (empty.start, empty.end, empty.count) == (50, 50, 0)
    assert verify(tmp_path / "to").ok


def test_gaps_stay(tmp_path: Path, oracle: Oracle) -> None:
    """Of a compacted topic; what is missing in the original is missing in the copy."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 1 << 20})
        for n in range(6):
            big = pa.array([bytes([n]) * 30_000] * 30)
            keys = pa.array([b"%d %d" % (n % 2, i % 13) for i in range(30)])
            log.append("t", pa.table({"key": keys, "value": big}))
        service = Service(tmp_path / "log")
        service.compact()
        service.close()
        kept = log.read("t", columns=["offset", "key", "value"]).read_all()
        assert kept.num_rows < 100
        export_log(log, "t", tmp_path / "to", start={0: 5})
        export_log(log, "t", tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        assert copy.read("t", columns=["offset", "key", "value"]).read_all().equals(kept)
        copy.append("t", pa.table({"key": ["a"], "value": ["b"]}))
        assert copy.offsets("t") == {0: (5, 181)}
    assert verify(tmp_path / "to").ok
    judged = oracle.open(tmp_path / "to" / "t-0", clean=True)
    assert (judged.end, judged.count) == (181, kept.num_rows + 1)


def test_nobody_else_may_write_to_a_copy(log: sparklog.Log, tmp_path: Path) -> None:
    export_log(log, "t", tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        copy.append("t", pa.table({"value": ["mine"]}), partition=0)
    log.append("t", rows(100, 120), partition=0)
    with pytest.raises(InvalidRequestError, match="holds records of its own"):
        export_log(log, "t", tmp_path / "to")
    with sparklog.open(tmp_path / "to", "rw") as copy:
        run = placing.Run(100, 101, [])
        with pytest.raises(InvalidRequestError, match="ends at 101, and records from offset 100"):
            placing.commit_runs(copy, "t", {0: run}, writer="w")
        assert copy.offsets("t")[0] == (0, 101)


def test_a_place_that_is_taken(log: sparklog.Log, tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "other", "rw") as other:
        other.create_topic("t")
        other.append("t", pa.table({"value": ["mine"]}))
    advice = "t-0 holds records of its own.*: choose another name or place for the copy"
    with pytest.raises(InvalidRequestError, match=advice):
        export_log(log, "t", tmp_path / "other")
    assert export_log(log, "t", tmp_path / "free").records == 150
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidRequestError, match="is a file"):
        export_parquet(log, "t", tmp_path / "file")
    deltalake.write_deltalake(str(tmp_path / "delta"), pa.table({"a": [1]}))
    with pytest.raises(InvalidRequestError, match="other columns"):
        export_delta(log, "t", tmp_path / "delta")


def test_parquet_of_two_topics_of_one_name(log: sparklog.Log, tmp_path: Path) -> None:
    """The files of one say nothing of how far the other has been copied."""
    to = tmp_path / "to"
    export_parquet(log, "t", to, end={0: 60, 1: 0})
    with sparklog.open(tmp_path / "other", "rw") as other:
        other.create_topic("t")
        other.append("t", rows(0, 80))
        with pytest.raises(InvalidRequestError, match="came from another topic t"):
            export_parquet(other, "t", to)
    assert pyarrow.parquet.read_table(to).num_rows == 60
    log.delete_topic("t")
    log.create_topic("t", 2)
    log.append("t", rows(0, 10), partition=0)
    with pytest.raises(InvalidRequestError, match="export to another directory"):
        export_parquet(log, "t", to)
    export_parquet(log, "t", tmp_path / "another")
    assert pyarrow.parquet.read_table(tmp_path / "another").num_rows == 10
    (to / f"t-0-{60:020}-{90:020}.parquet").write_text("x")
    with pytest.raises(InvalidRequestError, match=r"t-0-0+60-0+90\.parquet is no Parquet file"):
        export_parquet(log, "t", to)


def test_two_exports_at_once(log: sparklog.Log, tmp_path: Path) -> None:
    """Who began first and ends last commits nothing."""
    to = str(tmp_path / "delta")
    export_delta(log, "t", to, end={0: 10, 1: 10})
    raced: list[int] = []

    def meanwhile(_: int, __: int) -> None:
        if not raced:
            raced.append(1)
            other = threading.Thread(target=export_elsewhere)
            other.start()
            other.join()

    def export_elsewhere() -> None:
        with sparklog.open(tmp_path / "log") as another:
            assert export_delta(another, "t", to).records == 130

    with pytest.raises(StorageUnavailableError, match="nothing was committed"):
        export_delta(log, "t", to, progress=meanwhile)
    assert deltalake.DeltaTable(to).to_pyarrow_table().num_rows == 150


def test_parquet_in_several_files(
    log: sparklog.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FILE_BYTES", 1)
    for n in range(3):
        log.append("t", rows(100 + n, 101 + n), partition=0)
    told: list[tuple[int, int]] = []
    done = export_parquet(log, "t", tmp_path / "to", progress=lambda *at: told.append(at))
    names = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert len(names) == done.files >= 2
    assert all(name.endswith(".parquet") for name in names)
    assert told[-1] == (153, 153)
    assert sorted_table(pyarrow.parquet.read_table(tmp_path / "to")).equals(read(log))


@pytest.mark.usefixtures("impatient")
def test_a_damaged_log_leaves_no_half_file(tmp_path: Path) -> None:
    from tests.service.logs import flip, logs

    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", rows(0, 50))
    flip(logs(tmp_path / "log" / "t-0")[0], 100)
    with sparklog.open(tmp_path / "log") as log:
        for export, to in (
            (export_parquet, "x.parquet"), (export_parquet, "dir"), (export_delta, "delta"),
            (export_log, "to"),
        ):  # fmt: skip
            with pytest.raises(sparklog.DataCorruptionError):
                export(log, "t", tmp_path / to)
    assert not (tmp_path / "x.parquet").exists()
    assert list((tmp_path / "dir").iterdir()) == []
    assert not list((tmp_path / "delta").rglob("*.json"))


def test_an_export_to_kafka_that_is_stopped_says_so(
    log: sparklog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after the transaction at hand, not after one of each partition."""
    sent: list[tuple[int, int]] = []

    class Target:
        def __init__(self, *_: Any) -> None: ...
        def check(self, partitions: int, source: str, *, retention_ms: str | None) -> str | None:
            return "import/c/t/id"

        def close(self) -> None: ...

        def begin(self, partitions: list[int]) -> dict[int, int]:
            return {}

        def send(self, p: int, rows: pa.RecordBatch, upto: int) -> None:
            sent.append((p, upto))

    monkeypatch.setattr(export_kafka, "_Target", Target)
    monkeypatch.setattr(export_kafka, "_TRANSACTION", 30)
    stopped: Any = lambda: len(sent) == 2  # noqa: E731
    done = export_kafka.export_kafka(log, "t", "localhost:1", stopped=stopped)
    assert (sent, done.offsets, done.stopped) == ([(0, 30), (0, 60)], {0: (0, 60)}, True)
    sent.clear()
    done = export_kafka.export_kafka(log, "t", "localhost:1")
    assert (done.records, done.stopped) == (150, False)
