"""Checksums of extents: bytes of another commit are never read, verified or merged as valid.

Each case replaces what an extent lies in by valid batches of another append: the same number of
records, bytes and timestamps, so that only the checksum tells the difference.
"""

import json
from collections.abc import Callable
from dataclasses import replace

import crc32c
import pyarrow as pa
import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.checksums import WHOLE_BYTES, ExtentSum, SummedLog
from sparklog.diskless.entries import decode, encode
from sparklog.diskless.extents import Extent
from sparklog.diskless.home_object import create_home
from sparklog.diskless.names import entry_name, state_name
from sparklog.diskless.state_objects import StateObjects, decode_state, encode_state, write_state
from sparklog.diskless.view import DisklessView
from sparklog.errors import DataCorruptionError
from sparklog.service.verification.findings import Severity
from sparklog.service.verification.store_verifier import verify_store
from sparklog.tiered.reading.remote_segment_log import BytesLog
from tests.diskless.bucket_log import read_all, view_of
from tests.diskless.logs import LOG_ID, RING, T0, T1, Home, commit_by_table
from tests.logdir.partitions import batch

WRONG = "not hold the bytes that were committed|not a valid extent table|contains ledger entry"
Raws = dict[str, bytes]


def made(**given: object) -> Home:
    home = Home(**given)  # type: ignore[arg-type]
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2)
    return home.lead()


def swapped(home: Home, one: str, other: str) -> Raws:
    objects = home.bucket.objects
    return {one: objects[other][0], other: objects[one][0]}


def inline(home: Home) -> Raws:
    """The entry is the right one, the data behind it are the next entry's."""
    home.commit("a", "b")
    home.commit("c", "d")
    numbers = sorted(home.state.names_by_entry())
    names = [entry_name(LOG_ID, number) for number in numbers]
    raws = [home.bucket.objects[name][0] for name in names]
    at = decode(raws[0], number=numbers[0], path="p").data_at
    next_at = decode(raws[1], number=numbers[1], path="p").data_at
    return {names[0]: raws[0][:at] + raws[1][next_at:]}


def staged(home: Home) -> Raws:
    return swapped(home, home.stage({0: ["a"], 1: ["x"]}), home.stage({0: ["b"], 1: ["y"]}))


def partitions_of_one_object(home: Home) -> Raws:
    name = home.stage({0: ["a"], 1: ["x"]})
    raw = home.bucket.objects[name][0]
    return {name: raw[len(raw) // 2 :] + raw[: len(raw) // 2]}


def pieces(home: Home) -> Raws:
    one, other, _ = commit_by_table(home, {0: ["a", "b"], 1: ["x", "y"]})
    return swapped(home, one, other)


def tables(home: Home) -> Raws:
    """Two tables of the same objects' names and shape: rows of another order."""
    commit_by_table(home, {0: ["a", "b", "c", "d"], 1: ["x", "y"]})
    table = home.state.extents[T0][-1].object
    *_, other = commit_by_table(home, {0: ["e", "f", "g", "h"], 1: ["v", "w"]})
    return {other: home.bucket.objects[table][0]}


def segments(home: Home) -> Raws:
    """Segments of two partitions with the same offsets."""
    home.stage({0: ["a", "b"], 1: ["x", "y"]})
    home.merge_all()
    first, second = (home.state.extents[key][0].object for key in (T0, T1))
    home.stage({0: ["c"], 1: ["z"]})
    return swapped(home, first, second)


KINDS = [inline, staged, partitions_of_one_object, pieces, tables, segments]
Damage = Callable[[Home], Raws]


def put(home: Home, raws: Raws) -> Raws:
    """Put these bytes into objects; returns what they were."""
    before = {name: home.bucket.objects[name][0] for name in raws}
    for name, raw in raws.items():
        assert raw != before[name]
        home.bucket.objects[name] = raw, home.bucket.objects[name][1]
    return before


def view(home: Home) -> DisklessView:
    return view_of(home.store.reopen(), keyring=home.keyring, log_id=LOG_ID)


def read(home: Home, key: TopicPartition = T0) -> list[tuple[int, bytes]]:
    return read_all(view(home), key)


def fresh_merge(home: Home) -> None:
    for merge in home.due(merge_interval_ms=0):
        home.merger.merge(merge, home.state)


@pytest.mark.parametrize("damage", KINDS, ids=lambda kind: kind.__name__)
def test_a_reader_refuses_what_was_not_committed(damage: Damage) -> None:
    home = made()
    raws = damage(home)
    good = {key: read(home, key) for key in (T0, T1)}
    put(home, raws)
    with pytest.raises(DataCorruptionError, match=WRONG) as caught:
        read(home)
    assert caught.value.first is not None or damage is tables
    assert "restore the object from a copy of the bucket" in str(caught.value)
    assert good[T0] != []


@pytest.mark.parametrize("damage", KINDS, ids=lambda kind: kind.__name__)
def test_verify_reports_what_was_not_committed(damage: Damage) -> None:
    home = made()
    raws = damage(home)
    store = home.store.reopen()
    assert verify_store(store.url, store=store, threads=1).ok
    before = put(home, raws)
    found = verify_store(store.url, store=store, threads=1).findings
    assert {f.severity for f in found} >= {Severity.DAMAGE}
    put(home, before)
    assert verify_store(store.url, store=store, threads=1).ok


@pytest.mark.parametrize("damage", KINDS, ids=lambda kind: kind.__name__)
def test_a_merge_never_takes_what_was_not_committed(damage: Damage) -> None:
    """Nothing is merged, and after the right objects are restored all of it is right again."""
    home = made()
    raws = damage(home)
    good, before = {key: read(home, key) for key in (T0, T1)}, home.state.extents
    old = put(home, raws)
    logs = {name for name in home.bucket.names() if name.endswith(".log")}
    if damage is segments:
        merge = replace(home.due(merge_interval_ms=0)[0], sources=home.state.extents[T0])
        with pytest.raises(DataCorruptionError, match=WRONG):
            home.merger.merge(merge, home.state)
    else:
        with pytest.raises(DataCorruptionError, match=WRONG):
            for merge in home.due(merge_interval_ms=0):
                home.merger.merge(merge, home.state)
    assert home.state.extents[T0] == before[T0]
    assert {name for name in home.bucket.names() if name.endswith(".log")} == logs
    put(home, old)
    fresh_merge(home)
    assert {key: read(home, key) for key in (T0, T1)} == good
    assert verify_store(home.store.url, store=home.store.reopen(), threads=1).ok


def test_a_reader_of_inline_data_asks_for_its_own_entry() -> None:
    """Of entries without checksums the number tells: two neighbours were swapped."""
    home = made()
    home.commit("a", "b")
    home.commit("c", "d")
    seen = view(home)
    one, other = (e.object for e in home.state.extents[T0])
    extents = seen.state.extents
    extents[T0] = tuple(extent._replace(crc=-1) for extent in extents[T0])
    put(home, swapped(home, one, other))
    with pytest.raises(DataCorruptionError, match="contains ledger entry"):
        read_all(seen)


@pytest.mark.parametrize("keyring", [None, RING], ids=["plain", "encrypted"])
def test_each_extent_has_the_checksum_of_its_plain_bytes(keyring: object) -> None:
    home = made(keyring=keyring)
    home.commit("a", "b")
    (extent,) = home.state.extents[T0]
    assert extent.crc == crc32c.crc32c(batch("a", "b", one_each=True))
    home.commit("c")
    home.merge_all()
    (merged,) = home.state.extents[T0]
    (manifest,) = home.manifests()
    assert merged.crc == manifest.crc32c >= 0


def test_a_state_object_keeps_them() -> None:
    home = made()
    home.commit("a")
    write_state(home.store, home.state)
    found = StateObjects(home.store.reopen(), lambda: LOG_ID).newest()
    assert found is not None
    assert found.extents == home.state.extents


def test_a_state_of_an_older_version_has_none() -> None:
    """It is read without checksums, and `verify` takes it for what it is."""
    home = made()
    home.commit("a")
    raw = encode_state(home.state)
    line, _, body = raw.partition(b"\n")
    head = json.loads(line.removeprefix(b"sparklog-state "))
    size = head["json"][0]
    table = pa.ipc.open_stream(body[size:]).read_all().drop_columns(["crc"])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    extents = bytes(out.getvalue())
    head["extents"] = [len(extents), crc32c.crc32c(extents)]
    old = b"sparklog-state " + json.dumps(head).encode() + b"\n" + body[:size] + extents
    (extent,) = decode_state(old, path="p").extents[T0]
    assert extent == home.state.extents[T0][0]._replace(crc=-1)
    home.store.put(state_name(LOG_ID, home.state.number), old)
    assert verify_store(home.store.url, store=home.store.reopen(), threads=1).ok


def test_entries_of_older_versions_have_none() -> None:
    """They are read and merged as they are; what is merged has a checksum from then on."""
    home = made()
    home.commit("a")
    number = home.state.number
    name = entry_name(LOG_ID, number)
    raw = home.bucket.objects[name][0]
    entry = decode(raw, number=number, path="p")
    plain = replace(
        entry, extents=tuple((key, extent._replace(crc=-1)) for key, extent in entry.extents)
    )
    old = encode(number, plain, raw[entry.data_at :])
    assert b"crcs" in raw
    assert b"crcs" not in old
    put(home, {name: old})
    again = home.another().lead()
    assert again.state.extents[T0][0].crc == -1
    good = read(again)
    fresh_merge(again)
    assert read(again) == good
    assert again.state.extents[T0][0].crc >= 0


# --- the checksum itself ------------------------------------------------------------------------


def extent_of(data: bytes, crc: int | None = None) -> Extent:
    return Extent(0, 9, "o", 0, len(data), 0, 0, 0, crc=crc32c.crc32c(data) if crc is None else crc)


def test_a_small_extent_is_compared_before_any_byte_of_it_is_returned() -> None:
    data = bytes(range(200))
    log = SummedLog(BytesLog("p", data), extent_of(data, crc=1), "p")
    with pytest.raises(DataCorruptionError, match=WRONG):
        log.pread(10, 150)
    assert SummedLog(BytesLog("p", data), extent_of(data), "p").pread(10, 150) == data[150:160]


def test_a_damaged_batch_excuses_no_other_bytes() -> None:
    """Earlier batches are returned only where all have the layout of the commit."""
    data = batch("a", "b", "c", one_each=True)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    committed = extent_of(data)._replace(end=3)
    assert SummedLog(BytesLog("p", damaged), committed, "p").pread(10, 0) == damaged[:10]
    other = committed._replace(end=2)
    with pytest.raises(DataCorruptionError):
        SummedLog(BytesLog("p", damaged), other, "p").pread(10, 0)


def test_a_large_extent_is_compared_at_its_end() -> None:
    data = bytes(WHOLE_BYTES + 1000)
    log = SummedLog(BytesLog("p", data), extent_of(data, crc=1), "p")
    assert log.pread(WHOLE_BYTES, 0)
    with pytest.raises(DataCorruptionError, match=WRONG):
        log.pread(2000, WHOLE_BYTES - 500)
    with pytest.raises(DataCorruptionError, match=WRONG):  # again, and not only once
        for at in range(0, len(data), 1 << 16):
            log.pread(1 << 16, at)


def test_reads_may_overlap_begin_again_and_skip() -> None:
    data = bytes(range(100))
    wrong = data[:60] + b"\0" + data[61:]
    known = ExtentSum(extent_of(data))
    for at, size in ((0, 30), (20, 30), (0, 40), (40, 60), (50, 50)):
        known.take(data[at : at + size], at, path="p")
    known.take(wrong[70:], 70, path="p")  # bytes are missing before: not compared
    with pytest.raises(DataCorruptionError, match=WRONG):
        for at, size in ((0, 50), (50, 50)):
            known.take(wrong[at : at + size], at, path="p")
