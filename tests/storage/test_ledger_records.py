"""Records of the commit ledger: what is read is written again byte by byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.common import TopicPartition
from sparklog.errors import UnsupportedVersionError
from sparklog.fs import LOCAL
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import (
    AdoptRecord,
    AppendRecord,
    CommitRecord,
    DropRecord,
    ForkedFrom,
    GivenUpRange,
    InvalidRecordError,
    LastMicroBatch,
    LedgerRecord,
    PurgeRecord,
    ResetRecord,
    SnapshotRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
    decode,
    encode,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.topic_state import TopicState
from tests.paths import GOLDEN

RAW = (GOLDEN / "ledger-records.jsonl").read_bytes().splitlines()
FORMS = [pytest.param(raw, id=f"{json.loads(raw)['kind']}-{n}") for n, raw in enumerate(RAW)]


def again(raw: bytes) -> bytes:
    return encode(decode(raw, path="ledger", offset=0))


@pytest.mark.parametrize("raw", FORMS)
def test_every_form_is_written_as_it_was_read(raw: bytes) -> None:
    assert again(raw) == raw


def test_the_golden_ledger_too() -> None:
    path = GOLDEN / "sparklog-1" / "logdir" / "__sparklog_commits-0"
    reader = PartitionReader(LogDirSegments(LOCAL, str(path)))
    raws = [v for rows in reader.read(0, 15) for v in rows.column("value").to_pylist()]
    assert len(raws) == 15
    assert [again(raw) for raw in raws] == raws


# -- any record

names, numbers = st.text(max_size=4), st.integers(0, 2**40)
partitions = st.builds(TopicPartition, names, st.integers(0, 20))
ranges = st.builds(lambda first, size: OffsetRange(first, first + size), numbers, numbers)
by_number = st.dictionaries(st.integers(0, 20), numbers, max_size=3)
offsets, ends = (st.dictionaries(partitions, v, max_size=4) for v in (numbers, ranges))
range_sets = st.dictionaries(partitions, st.lists(ranges, max_size=3), max_size=3)
configs = st.dictionaries(names, names, max_size=2)
nonzero = st.dictionaries(st.integers(0, 20), st.integers(1, 99), max_size=2)
topics = st.builds(TopicState, names, configs, by_number, st.booleans(), nonzero)
lasts = st.builds(LastMicroBatch, numbers, names, numbers, st.none() | ends)
origins = st.builds(QueryOrigin, name=names, ends=st.tuples(st.none() | names))
given_up = st.builds(
    GivenUpRange, topic=names, partition=numbers, first=numbers, end=numbers, directory=names,
    why=names,
)  # fmt: skip
small = st.frozensets(st.integers(0, 20), max_size=2)
deleted = st.builds(
    DeletedTopic, name=names, topic=topics, deleted_ms=numbers, delay_ms=numbers, ends=by_number,
    starts=by_number, local_starts=by_number, idempotent=small, writers=st.frozensets(names),
    abandoned=st.none()
    | st.dictionaries(st.integers(0, 20), st.lists(ranges, max_size=2), max_size=2),
)  # fmt: skip
common: dict[str, Any] = {"time_ms": numbers, "epoch": numbers, "flushed": st.booleans()}
append: dict[str, Any] = {
    **common,
    "ends": ends,
    "source": st.none() | st.dictionaries(names, numbers | names),
    "app": names,
    "idempotent": st.booleans(),
}
sizes = st.sampled_from([{}, {"size_bytes": 5, "duration_ms": 0}])
commit: dict[str, Any] = {
    "writer": names, "batch": numbers, "fingerprint": names, "origin": st.none() | origins,
}  # fmt: skip
layout: dict[str, Any] = {
    **common,
    "topics": st.dictionaries(names, topics, max_size=2),
    "ends": offsets,
    "starts": offsets,
    "local_starts": st.none() | offsets.filter(bool),
}


@st.composite
def ledger_records(draw: st.DrawFn) -> LedgerRecord:
    kind = draw(st.integers(0, 7))
    if kind < 2:
        fields = draw(st.fixed_dictionaries(append | (commit if kind else {})))
        fields |= draw(sizes)
        fields["stamped"] = "size_bytes" in fields and draw(st.booleans())  # both are as old
        return CommitRecord(**fields) if kind else AppendRecord(**fields)
    made: Any = {
        2: st.builds(
            TopicRecord, **common, topic=names, id=names, dirs=by_number, config=configs,
            bases=by_number, adopted=st.booleans(), given_up=st.none() | given_up,
            follows=st.booleans(),
        ),
        3: st.builds(DropRecord, **common, topic=names, id=names, delay_ms=numbers)
        | st.builds(UndeleteRecord, **common, topic=names, id=names)
        | st.builds(PurgeRecord, **common, ids=st.lists(names, max_size=2).map(tuple)),
        4: st.builds(
            StartRecord, **common, starts=offsets, local_starts=st.none() | offsets.filter(bool),
            given_up=st.none() | given_up, begins_epoch=st.booleans(),
        ),
        5: st.builds(
            ResetRecord, **common, writer=names, batch=numbers,
            writers=st.none() | st.dictionaries(names, st.none() | lasts, max_size=2),
            abandoned=st.none() | range_sets,
        ),
        6: st.builds(AdoptRecord, **layout),
        7: st.builds(
            SnapshotRecord, **layout, dropped=offsets,
            writers=st.dictionaries(names, lasts, max_size=2),
            origins=st.none() | st.dictionaries(names, origins, max_size=2),
            idempotent=st.none() | st.frozensets(partitions, max_size=3),
            abandoned=st.none() | range_sets,
            fork=st.none() | st.builds(ForkedFrom, names, numbers, numbers),
            deleted=st.dictionaries(names, deleted, max_size=2),
        ),
    }[kind]  # fmt: skip
    record: LedgerRecord = draw(made)
    return record


@given(ledger_records())
def test_what_is_written_is_read(record: LedgerRecord) -> None:
    raw = encode(record)
    assert decode(raw, path="ledger", offset=0) == record
    assert again(raw) == raw


snapshots = st.builds(
    SnapshotRecord, **layout, dropped=offsets, writers=st.just({}), origins=st.just({}),
    idempotent=st.just(frozenset()), abandoned=range_sets,
)  # fmt: skip


@given(snapshots)
def test_a_state_gives_its_snapshot_again(record: SnapshotRecord) -> None:
    state = LogState()
    state.apply(record)
    assert encode(state.snapshot()) == encode(record).replace(b'"flush":"none",', b"")


# -- what is none


@pytest.mark.parametrize("raw", FORMS)
def test_a_field_that_is_missing_or_of_another_type(raw: bytes) -> None:
    whole = json.loads(raw)
    optional = {
        "v", "flush", "bytes", "ms", "source", "app", "idempotent", "origin", "local", "given_up",
        "writers" if whole["kind"] == "reset" else "", "abandoned", "origins", "fork", "adopted",
        "bases" if whole["kind"] == "snapshot" else "",
    }  # fmt: skip
    for name in whole.keys() - optional:
        rest = {key: value for key, value in whole.items() if key != name}
        with pytest.raises(InvalidRecordError, match=f"field '{name}' is missing") as caught:
            decode(rest, path="/log/ledger", offset=7)
        assert (caught.value.path, caught.value.first) == ("/log/ledger", 7)
        with pytest.raises(InvalidRecordError, match="not a ledger record"):
            decode({**whole, name: [["?"]]}, path="/log/ledger", offset=7)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"v":1}', b'{"v":1,"kind":"merge"}', b"7"])
def test_what_is_no_record(raw: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="not a ledger record"):
        decode(raw, path="ledger", offset=0)


def test_a_newer_sparklogs() -> None:
    with pytest.raises(UnsupportedVersionError, match="the commit ledger has format version 4"):
        decode(b'{"v":4,"kind":"merge"}', path="ledger", offset=0)


def test_what_a_newer_sparklog_says_besides_is_passed_over() -> None:
    raw = b'{"v":1,"kind":"drop","topic":"t","id":"x","why":"so","time":1,"epoch":0}'
    assert decode(raw, path="", offset=0) == DropRecord(topic="t", id="x", time_ms=1)
