"""Erasures in each home: which records, what is listed as unfinished, topics that come back."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless import erasure_notes
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.fs import LOCAL
from sparklog.logdir import erasures_file
from sparklog.opening import url_of
from sparklog.service import Service, erase
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.tiered.target import open_store

ALICE, BOB = b"alice", b"bob"


class All:
    """Selects all records; calls a function first, each time."""

    columns = ("key",)

    def __init__(self, first: Callable[[], object]) -> None:
        self._first = first

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        self._first()
        return pa.array([True] * len(records), pa.bool_())


def write(log: sparklog.Log, *keys: bytes, partition: int = 0) -> None:
    """Append records as a batch."""
    values = [b"value-of-" + key for key in keys]
    log.append("t", pa.table({"key": list(keys), "value": values}), partition)


def everything(path: str) -> bytes:
    """The bytes of all files or objects."""
    url = url_of(path)
    if url is None:
        return b"".join(file.read_bytes() for file in Path(path).rglob("*") if file.is_file())
    store = open_store(url, None)
    return b"".join(store.get(each.name) for each in store.list(""))


def kept(path: str) -> list[tuple[int, int]]:
    """(partition, offset) of each record."""
    with sparklog.open(path) as log:
        rows = log.read("t").read_all()
    return sorted(
        zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    )


def unfinished(path: str) -> list[UnfinishedErasure]:
    url = url_of(path)
    if url is None:
        return erasures_file.unfinished_erasures(LOCAL, path)
    return erasure_notes.unfinished_erasures(open_store(url, None))


def test_records_below_the_bound_alone(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", 2)
        for partition in (0, 1):
            write(log, ALICE, BOB, ALICE, partition=partition)
    report = erase(log_path, "t", [ALICE], before=2)
    assert report.complete
    assert [part.end for part in report.partitions] == [2, 2]
    assert kept(log_path) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [part.end for part in erase(log_path, "t", [ALICE], before=9).partitions] == [3, 3]
    assert kept(log_path) == [(0, 1), (1, 1)]


def test_old_bytes_are_deleted(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"compression.type": "uncompressed"})
        write(log, ALICE, BOB)
        write(log, BOB)
        write(log, ALICE)
    assert everything(log_path).count(b"value-of-alice") == 2
    rehearsed = erase(log_path, "t", [ALICE], dry_run=True)
    assert everything(log_path).count(b"value-of-alice") == 2
    assert len(kept(log_path)) == 4
    report = erase(log_path, "t", [ALICE])
    assert report.complete
    assert report.records == rehearsed.records == 2
    (part,), (counted,) = report.partitions, rehearsed.partitions
    assert part.offsets == counted.offsets
    assert part.bytes_read == counted.bytes_read
    assert sum(each.records for each in part.erased_from) == 2
    assert all(each.bytes_after < each.bytes_before for each in part.erased_from if each.records)
    assert b"value-of-alice" not in everything(log_path)
    assert kept(log_path) == [(0, 1), (0, 2)]


def test_segments_that_are_deleted_meanwhile(log_path: str) -> None:
    """All of them are read again: none is rewritten that another process has replaced."""
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 100, "file.delete.delay.ms": 0})
        for _ in range(4):
            write(log, ALICE)

        def delete_once() -> None:
            if log.offsets("t")[0][0] == 0:
                log.delete_records("t", {0: 2})
                Service(log_path).retain()

        report = erase(log_path, "t", predicate=All(delete_once))
        assert report.complete, (report.pending, report.errors, report.partitions)
        assert report.partitions[0].offsets.ranges == [(2, 4)]
    assert kept(log_path) == []


def test_records_that_are_written_meanwhile_stay(log_path: str) -> None:
    """Of any partition, also of one whose turn is still to come."""
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t", 2)
        for partition in (0, 1):
            write(log, ALICE, partition=partition)

        def write_once() -> None:
            if log.offsets("t")[1][1] == 1:
                write(log, BOB, partition=1)

        report = erase(log_path, "t", predicate=All(write_once))
        assert report.complete, (report.pending, report.errors)
        assert [part.end for part in report.partitions] == [1, 1]
    assert kept(log_path) == [(1, 1)]


def test_an_erasure_is_listed_until_it_is_complete(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        write(log, ALICE, BOB)
    listed: list[UnfinishedErasure] = []

    def look() -> None:
        listed[:] = unfinished(log_path)

    erase(log_path, "t", predicate=All(look), dry_run=True)
    assert not listed
    with pytest.raises(ZeroDivisionError):
        erase(log_path, "t", predicate=All(lambda: 1 // 0))
    (failed,) = unfinished(log_path)
    assert failed.left == ("the erasure did not finish: ZeroDivisionError('integer division or "
                           "modulo by zero')",)  # fmt: skip
    assert erase(log_path, "t", predicate=All(look), before=1).complete
    assert {each.request for each in listed} > {failed.request}  # another request, in progress
    assert unfinished(log_path) == [failed]
    assert erase(log_path, "t", predicate=All(look)).complete
    assert listed == [failed]
    assert not unfinished(log_path)
    assert kept(log_path) == []


def test_a_deleted_topic_that_can_be_restored(log_path: str) -> None:
    with sparklog.open(log_path, "rw") as log:
        log.create_topic("t")
        write(log, ALICE)
        log.delete_topic("t")
        with pytest.raises(InvalidRequestError, match="was deleted and can be restored"):
            erase(log_path, "t", [ALICE])
        with pytest.raises(UnknownTopicError):
            erase(log_path, "u", [ALICE])
        log.create_topic("t")
        write(log, ALICE)
    report = erase(log_path, "t", [ALICE])
    assert report.records == 1
    assert "was deleted and can be restored" in report.pending[0]
    (listed,) = unfinished(log_path)
    assert listed.left == tuple(text[:400] for text in report.pending[:3])
