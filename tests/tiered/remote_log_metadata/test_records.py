"""Kafka's remote log metadata records: golden bytes, round trips, and Kafka's serde as a judge."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.tiered.remote_log_metadata.records import (
    MetadataRecord,
    PartitionDeleteRecord,
    PartitionDeleteState,
    SegmentRecord,
    UpdateRecord,
    parse,
    to_bytes,
    update_of,
)
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

TOPIC_ID, SEGMENT_ID = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"
SEGMENT = RemoteSegment(
    topic="t",
    topic_id=TOPIC_ID,
    partition=2,
    id=SEGMENT_ID,
    base=100,
    end=201,
    max_timestamp=1_700_000_000_000,
    size=4096,
    epochs=((0, 100), (3, 150)),
    state=SegmentState.COPY_STARTED,
    time_ms=1_700_000_000_001,
)
# Written by Kafka 4.1's RemoteLogMetadataSerde.
HEAD = "0274000102030405060708090a0b0c0d0e0f00000002 00 101112131415161718191a1b1c1d1e1f 00"
TIMES = "0000018bcfe56800 0000018bcfe56801"
GOLDEN: list[tuple[MetadataRecord, str]] = [
    (
        SegmentRecord(segment=SEGMENT),
        f"01 00 00 {HEAD} 0000000000000064 00000000000000c8 ffffffff {TIMES} 03 00000000 "
        "0000000000000064 00 00000003 0000000000000096 00 00001000 00 00 01000101",
    ),
    (
        SegmentRecord(
            segment=RemoteSegment(
                topic="t", topic_id=TOPIC_ID, partition=2, id=SEGMENT_ID, base=0, end=1,
                max_timestamp=-1, size=80, epochs=((0, 0),), state=SegmentState.COPY_FINISHED,
                time_ms=0, has_txn_index=True,
            ),
            broker=7,
            custom=b"ab",
        ),
        f"01 00 00 {HEAD} 0000000000000000 0000000000000000 00000007 ffffffffffffffff "
        "0000000000000000 02 00000000 0000000000000000 00 00000050 03 6162 01 00",
    ),
    (
        UpdateRecord(
            topic="t", topic_id=TOPIC_ID, partition=2, id=SEGMENT_ID,
            state=SegmentState.DELETE_STARTED, time_ms=5, broker=7,
        ),
        f"01 01 00 {HEAD} 00000007 0000000000000005 00 02 00",
    ),
    (
        PartitionDeleteRecord(
            topic="t", topic_id=TOPIC_ID, partition=2, state=PartitionDeleteState.FINISHED,
            time_ms=5, broker=7,
        ),
        "01 02 00 0274000102030405060708090a0b0c0d0e0f00000002 00 00000007 0000000000000005 02 00",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "raw"), GOLDEN)
def test_golden_bytes(record: MetadataRecord, raw: str) -> None:
    assert to_bytes(record).hex() == raw.replace(" ", "")
    assert parse(bytes.fromhex(raw), path="t") == record


def longs() -> st.SearchStrategy[int]:
    return st.integers(-(2**63), 2**63 - 1)


def ids() -> st.SearchStrategy[str]:
    return st.binary(min_size=16, max_size=16).map(topic_id_text)


def whose() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "topic": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        "topic_id": ids(),
        "partition": st.integers(0, 2**31 - 1),
    }


brokers = st.integers(-(2**31), 2**31 - 1)
customs = st.none() | st.binary(max_size=200)
segments = st.builds(
    RemoteSegment,
    **whose(),
    id=ids(),
    base=st.integers(0, 2**62),
    end=st.integers(1, 2**62),
    max_timestamp=longs(),
    size=st.integers(0, 2**31 - 1),
    epochs=st.lists(st.tuples(st.integers(0, 2**31 - 1), longs()), min_size=1).map(tuple),
    state=st.sampled_from(SegmentState),
    time_ms=longs(),
    has_txn_index=st.booleans(),
)
records = st.one_of(
    st.builds(SegmentRecord, segment=segments, broker=brokers, custom=customs),
    st.builds(
        UpdateRecord,
        **whose(),
        id=ids(),
        state=st.sampled_from(SegmentState),
        time_ms=longs(),
        broker=brokers,
        custom=customs,
    ),
    st.builds(
        PartitionDeleteRecord,
        **whose(),
        state=st.sampled_from(PartitionDeleteState),
        time_ms=longs(),
        broker=brokers,
    ),
)


@given(records)
def test_round_trip(record: MetadataRecord) -> None:
    assert parse(to_bytes(record), path="t") == record


@given(records, st.data())
def test_cut_short_it_is_no_record(record: MetadataRecord, data: st.DataObject) -> None:
    raw = to_bytes(record)
    size = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DataCorruptionError, match="rebuild the metadata"):
        parse(raw[:size], path="t")
    with pytest.raises(DataCorruptionError):
        parse(raw + b"\0", path="t")


@given(st.sampled_from([0, 1, 2]), st.binary(max_size=300))
def test_any_bytes_behind_a_good_header_end_in_an_error_of_ours(kind: int, raw: bytes) -> None:
    parses_or_refuses(bytes((1, kind, 0)) + raw)


@given(records, st.data())
def test_changed_fields_make_another_record_or_an_error_of_ours(
    record: MetadataRecord, data: st.DataObject
) -> None:
    """The three bytes of the header stay, so that the changes reach the parser of the fields."""
    raw = bytearray(to_bytes(record))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(3, len(raw) - 1))] = data.draw(st.integers(0, 255))
    parses_or_refuses(bytes(raw))


def parses_or_refuses(raw: bytes) -> MetadataRecord | None:
    """Parse it; a record can be written and read again. None: it was refused as damaged."""
    try:
        found = parse(raw, path="t")
    except DataCorruptionError:
        return None
    assert parse(to_bytes(found), path="t") == found
    return found


@pytest.mark.parametrize(("record", "text"), GOLDEN)
def test_no_changed_byte_of_a_field_goes_unnoticed(record: MetadataRecord, text: str) -> None:
    """Each bit of each field is flipped, and each byte becomes the bounds of a varint's."""
    raw = bytes.fromhex(text)
    is_flag = raw.endswith(bytes((1, 0, 1, 1)))  # its last byte is true whatever bit is set
    parsed = 0
    for at in range(3, len(raw) - is_flag):
        values = {raw[at] ^ 1 << bit for bit in range(8)} | {0, 0x7F, 0x80, 0xFF}
        for value in values - {raw[at]}:
            found = parses_or_refuses(raw[:at] + bytes((value,)) + raw[at + 1 :])
            assert found != record, f"byte {at} became {value}"
            parsed += found is not None
    assert parsed > 8 * 16  # at least those of the topic's id


@pytest.mark.parametrize(
    ("at", "good", "bad", "message"),
    [
        (3, "0274", "00", "the topic's name is null"),
        (3, "0274", "02ff", "codec can't decode"),
        (3, "0274", "828080800074", None),  # five bytes of a varint are read
        (3, "0274", "82808080800074", "more than 5 bytes"),
        (-2, "02", "03", "3 is not a valid PartitionDeleteState"),
        (-2, "02", "ff", "-1 is not a valid PartitionDeleteState"),
    ],
)
def test_a_field_that_kafka_does_not_write(
    at: int, good: str, bad: str, message: str | None
) -> None:
    record, text = GOLDEN[3]
    raw = bytes.fromhex(text)
    start, old = at % len(raw), bytes.fromhex(good)
    assert raw[start : start + len(old)] == old
    changed = raw[:start] + bytes.fromhex(bad) + raw[start + len(old) :]
    if message is None:
        assert parse(changed, path="t") == record
    else:
        with pytest.raises(DataCorruptionError, match=message):
            parse(changed, path="t")


def test_newer_records_are_refused() -> None:
    for head in (b"\x02\x00\x00", b"\x01\x03\x00", b"\x01\x00\x01"):
        with pytest.raises(UnsupportedVersionError, match="newer"):
            parse(head + to_bytes(GOLDEN[0][0])[3:], path="t")


def test_unknown_tags_are_skipped() -> None:
    """A newer Kafka may add tagged fields to the same version."""
    raw = to_bytes(GOLDEN[0][0])
    assert raw.endswith(bytes((1, 0, 1, 1)))
    more = raw[:-4] + bytes((2, 0, 1, 1, 9, 2, 5, 5))
    assert parse(more, path="t") == GOLDEN[0][0]


# --- Kafka's own serde -------------------------------------------------------------------------


def fields(record: MetadataRecord) -> dict[str, Any]:
    """A record in the words of LogOracle.java."""
    of: Any = record.segment if isinstance(record, SegmentRecord) else record
    found = {
        name: getattr(of, name)
        for name in (
            "topic", "topic_id", "partition", "time_ms", "id", "base", "end", "max_timestamp",
            "size", "state", "has_txn_index",
        )
        if hasattr(of, name)
    }  # fmt: skip
    found["broker"] = record.broker
    if isinstance(record, SegmentRecord):
        found["epochs"] = [list(entry) for entry in sorted(dict(of.epochs).items())]
    if not isinstance(record, PartitionDeleteRecord):
        custom = record.custom
        found["custom"] = None if custom is None else base64.b64encode(custom).decode()
    return found


def judged(oracle: Any, raw: list[bytes]) -> dict[str, Any]:
    found: dict[str, Any] = oracle.call(
        "metadata", values=[base64.b64encode(value).decode() for value in raw]
    )
    return found


@pytest.mark.kafka
def test_kafka_reads_ours_and_writes_the_same(oracle: Any) -> None:
    records = [record for record, _ in GOLDEN]
    raw = [to_bytes(record) for record in (*records, SegmentRecord(segment=SEGMENT))]
    # Its store wants a copy's first record before the others; the last is of no interest.
    order = [4, 2, 3]
    found = judged(oracle, [raw[at] for at in order])
    assert found["read"] == [fields([*records, records[0]][at]) for at in order]
    assert [base64.b64decode(value) for value in found["written"]] == [raw[at] for at in order]


@pytest.mark.kafka
@given(st.lists(segments, min_size=1, max_size=20, unique_by=lambda s: s.id))
def test_kafka_agrees_with_any_history(oracle: Any, drawn: list[RemoteSegment]) -> None:
    """Copies that start and go on to the state that was drawn: Kafka's store holds the same."""
    history: list[MetadataRecord] = []
    left = {}
    for n, one in enumerate(drawn):
        base, end = n * 10, n * 10 + 10
        segment = RemoteSegment(
            topic="t", topic_id=TOPIC_ID, partition=0, id=one.id, base=base, end=end,
            max_timestamp=one.max_timestamp, size=one.size, epochs=((0, base),),
            state=SegmentState.COPY_STARTED, time_ms=one.time_ms, has_txn_index=one.has_txn_index,
        )  # fmt: skip
        history.append(SegmentRecord(segment=segment))
        for state in list(SegmentState)[1 : one.state + 1]:
            segment = segment.become(state, one.time_ms)
            history.append(update_of(segment))
        if segment.state is not SegmentState.DELETE_FINISHED:
            left[segment.id] = int(segment.state)
    raw = [to_bytes(record) for record in history]
    found = judged(oracle, raw)
    assert found["read"] == [fields(record) for record in history]
    assert [base64.b64decode(value) for value in found["written"]] == raw
    assert {row["id"]: row["state"] for row in found["listed"]} == left
