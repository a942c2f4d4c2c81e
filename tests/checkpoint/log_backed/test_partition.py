"""Partitions of a checkpoint's log dir: read while others write, cut anywhere, damaged anywhere."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append, clean, create
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.format.names import log_name
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.fs.files import LocalFile
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill

LOG = "00000000000000000000.log"
Write = Callable[..., CheckpointPartition]


def contents(partition: CheckpointPartition) -> dict[str, bytes | None]:
    return {key: partition.read(key) for key, _ in partition.live()}


def put(partition: CheckpointPartition, *records: tuple[str, bytes | None], **options: int) -> None:
    append(partition, [Record(k, v, 1_700_000_000_000) for k, v in records], **options)


@pytest.fixture
def partition(tmp_path: Path) -> CheckpointPartition:
    directory = str(tmp_path / "offsets-0")
    create(LOCAL, directory)
    return CheckpointPartition(LOCAL, directory)


def test_the_last_record_of_a_key_is_the_file(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"a"), ("1", b""), ("0", b"b" * 300), ("2", None), ("3", b"x"))
    put(partition, ("3", None))
    assert contents(partition) == {"0": b"b" * 300, "1": b""}
    assert contents(CheckpointPartition(LOCAL, partition.directory)) == contents(partition)
    assert partition.read("3") is partition.read("never") is None
    entry = partition.entries["0"]
    assert (entry.offset, entry.value_bytes, entry.timestamp) == (2, 300, 1_700_000_000_000)


def test_kafka_and_sparklog_read_it(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"a"), ("1", b"b"), ("0", None))
    with sparklog.open(Path(partition.directory).parent, until="log-end") as log:
        rows = log.read("offsets").read_all().to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, b"0", b"a"), (1, b"1", b"b"), (2, b"0", None),
    ]  # fmt: skip


def test_a_reader_sees_what_others_write(partition: CheckpointPartition) -> None:
    other = CheckpointPartition(LocalFileSystem(), partition.directory)
    put(partition, ("0", b"a"))
    other.refresh()
    assert contents(other) == {"0": b"a"}
    put(other, ("0", b"b"), ("1", b"c"))
    partition.refresh()
    assert contents(partition) == {"0": b"b", "1": b"c"}


def test_a_segment_that_was_rewritten_under_its_inode(partition: CheckpointPartition) -> None:
    """A cleaned segment may get an inode that was free again: its last batch tells."""
    put(partition, ("0", b"a" * 50), ("1", b"b"), ("1", b"c"))
    reader = CheckpointPartition(LOCAL, partition.directory)
    file = Path(partition.path(partition.segments[0]))
    rewritten = file.read_bytes()[partition.entries["1"].position :]
    file.write_bytes(rewritten)
    reader.refresh()
    assert contents(reader) == {"1": b"c"}


def test_segments_roll(partition: CheckpointPartition) -> None:
    for number in range(20):
        put(partition, (str(number % 7), b"x" * 100), segment_bytes=500)
    assert len(partition.segments) > 3
    assert partition.next_offset == 20
    again = CheckpointPartition(LOCAL, partition.directory)
    assert {k: e.offset for k, e in again.live()} == {str(n % 7): n for n in range(13, 20)}


def test_cleaning_keeps_the_live_ones_and_their_offsets(partition: CheckpointPartition) -> None:
    for number in range(60):
        put(partition, (str(number), b"x" * 2000), segment_bytes=40_000)
        if number >= 4:
            put(partition, (str(number - 4), None), segment_bytes=40_000)
    before, end = contents(partition), partition.next_offset
    reader = CheckpointPartition(LOCAL, partition.directory)
    assert clean(partition)
    assert not clean(partition)
    size = sum(p.stat().st_size for p in Path(partition.directory).glob("*.log"))
    assert size < 2 * sum(map(len, filter(None, before.values()))) + 4096
    for view in (partition, reader, CheckpointPartition(LOCAL, partition.directory)):
        view.refresh()
        assert contents(view) == before
        assert view.next_offset == end
    put(partition, ("new", b"1"))
    assert partition.entries["new"].offset == end


def test_little_is_not_cleaned(partition: CheckpointPartition) -> None:
    """A rewrite is worth it for more than 64 KiB beyond what lives."""
    for number in range(16):
        put(partition, ("0", b"x" * 4000 + b"%d" % number))
    assert not clean(partition)
    for number in range(4):
        put(partition, ("0", b"x" * 4000 + b"%d" % number))
    assert clean(partition)


def test_a_new_leader_epoch_may_begin_behind_the_last_record(tmp_path: Path) -> None:
    """A fork's does, where it leaves out the records after its batch."""
    directory = str(tmp_path / "offsets-0")
    create(LOCAL, directory, epochs=((0, 0), (4, 9)))
    partition = CheckpointPartition(LOCAL, directory)
    put(partition, ("0", b"a"), ("1", b"b"))
    assert [entry.offset for entry in partition.entries.values()] == [9, 10]
    assert (partition.epoch, partition.next_offset) == (4, 11)


def test_a_read_survives_a_cleaning_in_between(partition: CheckpointPartition) -> None:
    for number in range(50):
        put(partition, (str(number % 5), b"x" * 4000 + b"%d" % number))
    reader = CheckpointPartition(LOCAL, partition.directory)
    assert clean(partition)
    assert reader.read("3") == b"x" * 4000 + b"48"


def test_a_rewritten_segment_on_the_old_inode_is_noticed(partition: CheckpointPartition) -> None:
    for number in range(50):
        put(partition, (str(number % 5), b"x" * 4000 + b"%d" % number))
    reader = CheckpointPartition(LOCAL, partition.directory)
    assert clean(partition)
    raw = (Path(partition.directory) / LOG).read_bytes()
    (Path(partition.directory) / LOG).write_bytes(raw)
    reader.segments[0].identity = LOCAL.identity(f"{partition.directory}/{LOG}")
    reader.refresh()
    assert contents(reader) == contents(partition)


class MovingFS(LocalFileSystem):
    """Calls `then` once, behind the first read of a segment of this name."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        super().__init__()
        self._name, self._then = name, then

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        file = super().open(path, create=create, write=write)
        if path.endswith(self._name):
            self._name = "done"
            file.pread(1, 0)
            data = super().open(path)
            self._then()
            return data
        return file


def test_a_cleaning_between_two_segments_brings_nothing_back(
    partition: CheckpointPartition,
) -> None:
    """The first segment read before it, the second after it: its deletion would be missing."""
    put(partition, ("gone", b"x" * 100_000), segment_bytes=1000)
    for number in range(3):
        put(partition, ("gone", None), ("other", b"%d" % number), segment_bytes=1000)
    assert len(partition.segments) == 2
    moving = MovingFS(log_name(0), lambda: clean(partition))
    reader = CheckpointPartition(moving, partition.directory)
    assert contents(reader) == {"other": b"2"}


# -- cuts and damage -------------------------------------------------------------------------------


def written(directory: str) -> tuple[bytes, list[int]]:
    """A partition of three records, the last of which replaces the first; where each ends."""
    create(LOCAL, directory)
    partition = CheckpointPartition(LOCAL, directory)
    ends = []
    for record in (("0", b"first"), ("1", b"y" * 600), ("0", b"second" * 20)):
        put(partition, record)
        ends.append(partition.segments[0].end)
    return (Path(directory) / LOG).read_bytes(), ends


def test_cut_at_every_byte_of_a_write(tmp_path: Path) -> None:
    """What was acknowledged before is there, and the next write goes well."""
    directory = str(tmp_path / "offsets-0")
    raw, ends = written(directory)
    path = Path(directory) / LOG
    for size in range(ends[1], ends[2]):
        for padding in (b"", bytes(ends[2] - size)):  # cut, or the rest never reached the disk
            if raw[:size] + padding == raw:  # it ends in a zero
                continue
            path.write_bytes(raw[:size] + padding)
            partition = CheckpointPartition(LOCAL, directory)
            assert contents(partition) == {"0": b"first", "1": b"y" * 600}
            assert partition.segments[0].is_torn == (size > ends[1] or bool(padding))
    put(partition, ("0", b"again"))
    assert contents(CheckpointPartition(LOCAL, directory)) == {"0": b"again", "1": b"y" * 600}
    assert path.stat().st_size == partition.segments[0].end


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_is_damage_where_somebody_needs_the_record(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the first record there is a newer one; the last one may be a write that was cut off."""
    directory = str(tmp_path_factory.mktemp("p") / "offsets-0")
    raw, ends = written(directory)
    place = data.draw(st.integers(0, ends[1] * 8 - 1))
    bad = bytearray(raw)
    bad[place // 8] ^= 1 << place % 8
    (Path(directory) / LOG).write_bytes(bad)
    start = max(end for end in [0, *ends] if end <= place // 8)
    at = place // 8 - start
    negative = at == 0 and place % 8 == 7  # an offset's sign
    if start and (8 <= at < 12 or at >= 16 or negative):
        with pytest.raises(DataCorruptionError) as caught:
            CheckpointPartition(LOCAL, directory)
        assert (caught.value.path, caught.value.position) == (f"{directory}/{LOG}", start)
    else:  # dead; or no CRC covers it: offset and leader epoch change no contents
        found = contents(CheckpointPartition(LOCAL, directory))
        assert found == {"0": b"second" * 20, "1": b"y" * 600}


def flip(partition: CheckpointPartition, offset: int, at: int, bit: int = 0x10) -> None:
    """Flip a bit of a batch's byte, counted from its end if negative."""
    for segment in partition.segments:
        for table in segment.tables:
            for row in table[table["base_offset"] == offset]:
                path = Path(partition.path(segment))
                raw = bytearray(path.read_bytes())
                start = int(row["position"]) + (int(row["size"]) if at < 0 else 0)
                raw[start + at] ^= bit
                path.write_bytes(raw)


@pytest.mark.parametrize("at", [10, 17, 40, 61, 66, 80, -2])
@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_dead_records_may_be_damaged(
    partition: CheckpointPartition, at: int, segment_bytes: int
) -> None:
    """Purged ones, replaced ones, deletions: read, written, cleaned on as if they were whole."""
    for number in range(12):
        put(partition, (str(number), b"x" * 90), segment_bytes=segment_bytes)
    for number in range(6):
        put(partition, (str(number), None), segment_bytes=segment_bytes)
    put(partition, ("11", b"new" * 30), ("end", b"1"), segment_bytes=segment_bytes)
    wanted = contents(partition)
    for offset in (0, 5, 11, 14):
        flip(partition, offset, min(at, 66) if offset == 14 else at)
    found = CheckpointPartition(LOCAL, partition.directory)
    assert contents(found) == wanted
    assert sum(len(segment.damaged) for segment in found.segments) == 4
    assert found.next_offset == partition.next_offset
    put(found, ("more", b"2"), segment_bytes=segment_bytes)
    assert contents(CheckpointPartition(LOCAL, partition.directory)) == {**wanted, "more": b"2"}
    put(found, *[("more", b"z" * 9_000)] * 12, segment_bytes=segment_bytes)
    assert clean(found)
    again = CheckpointPartition(LOCAL, partition.directory)
    assert contents(again) == {**wanted, "more": b"z" * 9_000}
    assert not any(segment.damaged for segment in again.segments)


def test_a_live_record_is_needed_until_a_newer_one_comes(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"x" * 90), ("1", b"y" * 90))
    flip(partition, 0, 80)
    for _ in range(2):
        with pytest.raises(DataCorruptionError, match=r"record of the file 0.*--repair") as caught:
            CheckpointPartition(LOCAL, partition.directory)
        assert (caught.value.position, caught.value.first, caught.value.end) == (0, 0, 1)
    lenient = CheckpointPartition(LOCAL, partition.directory, lenient=True)
    assert contents(lenient) == {"1": b"y" * 90}
    put(lenient, ("0", b"new"))
    assert contents(CheckpointPartition(LOCAL, partition.directory)) == {
        "0": b"new",
        "1": b"y" * 90,
    }


def test_an_older_record_of_the_file_doesnt_make_it_dead(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"old" * 30), ("0", b"new" * 30), ("1", b"y"))
    flip(partition, 1, 80)
    with pytest.raises(DataCorruptionError, match="record of the file 0 is damaged") as caught:
        CheckpointPartition(LOCAL, partition.directory)
    assert caught.value.first == 1


def test_damage_that_hides_whose_it_was(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"x" * 90), ("1", b"y" * 90), ("0", None))
    for at in (25, 61, 70, 90):
        flip(partition, 0, at)
    with pytest.raises(DataCorruptionError, match="belongs to is unknown") as caught:
        CheckpointPartition(LOCAL, partition.directory)
    assert (caught.value.first, caught.value.end) == (0, 1)


def test_damage_in_a_segment_that_is_not_the_last(partition: CheckpointPartition) -> None:
    for number in range(6):
        put(partition, (str(number), b"x" * 300), segment_bytes=700)
    first = Path(partition.directory) / LOG
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(DataCorruptionError, match="valid batches follow") as caught:
        CheckpointPartition(LOCAL, partition.directory)
    assert caught.value.path == str(first)
    assert (caught.value.first, caught.value.end) == (1, 2)


def test_a_damaged_record_found_when_it_is_read(partition: CheckpointPartition) -> None:
    put(partition, ("0", b"a" * 100), ("1", b"b"))
    path = Path(partition.directory) / LOG
    bad = bytearray(path.read_bytes())
    bad[100] ^= 1
    path.write_bytes(bad)
    with pytest.raises(DataCorruptionError, match="CRC"):
        partition.read("0")


def test_records_with_headers(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"v"}]], kind)
    with sparklog.open(tmp_path / "log", mode="rw") as log:
        log.create_topic("offsets")
        log.append("offsets", pa.table({"key": ["a"], "value": ["1"], "headers": headers}))
    with pytest.raises(DataCorruptionError, match="the record has headers"):
        CheckpointPartition(LOCAL, str(tmp_path / "log" / "offsets-0"))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 20) + 1])
def test_sizes_at_which_varints_grow(partition: CheckpointPartition, size: int) -> None:
    put(partition, ("k" * 64, b"v" * size), ("k", None), ("x", b"z" * max(0, size - 7)))
    assert contents(CheckpointPartition(LOCAL, partition.directory)) == {
        "k" * 64: b"v" * size,
        "x": b"z" * max(0, size - 7),
    }


def test_records_of_somebody_else(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", mode="rw") as log:
        log.create_topic("offsets")
        log.append("offsets", pa.table({"key": ["a", "b"], "value": ["1", "2"]}))
    with pytest.raises(DataCorruptionError, match="a batch of a checkpoint has one record"):
        CheckpointPartition(LOCAL, str(tmp_path / "log" / "offsets-0"))


# -- crashes ---------------------------------------------------------------------------------------


def small(fs: CrashFS) -> CheckpointPartition:
    fs.mkdir("/logs")
    fs.sync_dir("/")
    create(fs, "/logs/offsets-0")
    fs.sync_dir("/logs")
    return CheckpointPartition(fs, "/logs/offsets-0")


def test_a_failed_write_is_undone() -> None:
    fs = CrashFS()
    partition = small(fs)
    put(partition, ("0", b"a" * 9000))
    for fault in (Fault.NO_SPACE, Fault.IO_ERROR):
        for ops in ({"pwrite"}, {"sync"}):
            if (fault, ops) == (Fault.NO_SPACE, {"sync"}):
                continue
            fs.fail_at(1, fault, ops=ops)
            with pytest.raises(StorageUnavailableError):
                put(partition, ("1", b"b" * 9000))
            fs.heal()
            assert contents(CheckpointPartition(fs, partition.directory)) == {"0": b"a" * 9000}
    put(partition, ("1", b"c"))
    assert contents(partition) == {"0": b"a" * 9000, "1": b"c"}


@pytest.mark.parametrize("what", ["append", "clean"])
def test_killed_at_every_call(what: str) -> None:
    """After a kill, and after a power cut there, all that was acknowledged is to be read."""
    number = 0
    while True:
        number += 1
        fs = CrashFS()
        partition = small(fs)
        for n in range(30):
            put(partition, (str(n % 4), b"x" * 5000 + b"%d" % n), segment_bytes=60_000)
        put(partition, ("3", None), segment_bytes=60_000)
        acked = contents(partition)
        fs.fail_at(number, Fault.KILL)
        try:
            if what == "clean":
                assert clean(partition)
            else:
                put(partition, ("0", b"new"), ("9", b"y" * 70_000), segment_bytes=60_000)
        except SimulatedKill:
            is_over = False
        else:
            is_over = True
        for after in (fs.kill_clone(), fs.crash_clone(mode="strict"), fs.crash_clone(mode="all")):
            found = CheckpointPartition(after, "/logs/offsets-0")
            now = contents(found)
            assert {key: now.get(key) for key in acked if key != "0"} == {
                key: value for key, value in acked.items() if key != "0"
            }
            assert now["0"] in (acked["0"], b"new")
            put(found, ("after", b"1"))
            clean(found)
            assert found.read("after") == b"1"
            assert not [n for n in after.listdir(found.directory) if n.endswith(".cleaned")]
        if is_over:
            break
    assert number > 3
