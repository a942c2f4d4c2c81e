"""Segments as rows: the JVM gives what Python gives, and leaves to Python what it should."""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError, RecordTooLargeError
from sparklog.format.batch import seal
from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.log import read_retry
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.service import erase
from sparklog.source.input_partitions import TASKS
from sparklog.storage.staging import Framing
from sparklog.testing.strategies import NOW_MS, tables
from tests import depth
from tests.format.test_legacy import message
from tests.jvm.probe import Probe, ProbeError, pack
from tests.jvm.segments import ALL, Read, check_same
from tests.log.test_timeline import commit
from tests.logdir.cleaning import logs
from tests.logdir.cleaning.logs import CompactedLog
from tests.logdir.partitions import T0
from tests.oracle.random_logs import DELETE_RETENTION_MS, Writer, config, opened

COLUMNS = st.lists(st.sampled_from(ALL), unique=True)
COMPACT = {"cleanup.policy": "compact"}
per_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_retry, "RETRY_MS", 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def bounds(start: int, end: int) -> dict[str, str]:
    return {
        "startingOffsets": json.dumps({"t": {"0": start}}),
        "endingOffsets": json.dumps({"t": {"0": end}}),
    }


class TestSame:
    @per_example
    @given(
        st.lists(st.tuples(tables(), st.sampled_from(list(Codec))), min_size=1, max_size=5),
        st.data(),
    )
    def test_any_records_any_range_any_columns(
        self,
        probe: Probe,
        tmp_path_factory: pytest.TempPathFactory,
        parts: Any,
        data: st.DataObject,
    ) -> None:
        path = tmp_path_factory.mktemp("log")
        with sparklog.open(path, "rw", clock=ManualClock(NOW_MS)) as log:
            log.create_topic(
                "t", config={"internal.segment.bytes": "2000", "index.interval.bytes": "200"}
            )
            for table, codec in parts:
                framing = Framing(
                    codec=codec, batch_size=data.draw(st.sampled_from([1, 300, 1 << 20]))
                )
                try:
                    log.append("t", table, framing=framing)
                except RecordTooLargeError:  # a batch of all these rows is larger than a segment
                    reject()
            end = log.offsets("t")[0][1]
        first, last = sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end))))
        given = bounds(first, last) if data.draw(st.booleans()) else {}
        if data.draw(st.booleans()):
            given["maxRecordsPerPartition"] = str(data.draw(st.integers(1, end)))
        columns = data.draw(COLUMNS)
        assert check_same(Read(path, columns, **given), probe) == []
        shutil.rmtree(path)

    @pytest.mark.parametrize("seed", range(depth.JVM_LOGS))
    def test_foreign_logs(self, probe: Probe, path: Path, seed: int) -> None:
        """Transactions, idempotent producers, codecs mixed, gaps that a cleaner left."""
        rng, clock = random.Random(seed), ManualClock()
        topic = config(rng) | (COMPACT if seed % 3 else {"cleanup.policy": "delete"})
        with opened(path, clock) as log:
            log.create_topic("t", config=topic)
            writer = Writer(commits_of(log), clock, rng)
            for _ in range(rng.randint(2, 4)):
                writer.write(rng.randint(1, 6))
                if seed % 3:
                    clean_partition(commits_of(log), "t", 0)
                clock.advance(rng.choice([0, DELETE_RETENTION_MS - 1, 5 * DELETE_RETENTION_MS]))
            start, end = log.offsets("t")[0]
        for isolation in ("read_uncommitted", "read_committed"):
            named: dict[str, Any] = {"kafka.isolation.level": isolation}
            assert check_same(Read(path, **named), probe) == []
            for _ in range(12):
                first = rng.randint(start, end)
                some = named | bounds(first, rng.randint(first, end))
                some |= rng.choice([{}, {"maxRecordsPerPartition": str(rng.randint(1, 20))}])
                assert check_same(Read(path, **some), probe) == []


def batch(first: int, count: int = 5, codec: Codec = Codec.NONE) -> bytes:
    """A batch of records whose values say their offsets."""
    values = [b"%06d" % n * 8 for n in range(first, first + count)]
    rows = pa.table({"key": [b"k"] * count, "value": values})
    return bytes(encode(rows, codec=codec, timestamp_ms_default=T0).data)


def filled(
    path: Path, *, segments: int = 4, codec: Codec = Codec.NONE, policy: str = "delete"
) -> list[int]:
    """Topic t of segments of 4 batches of 5 records each; returns their base offsets."""
    made = CompactedLog(path, cleanup_policy=policy)
    for base in range(0, 20 * segments, 20):
        made.write(*(batch(n, codec=codec) for n in range(base, base + 20, 5)), roll=True)
    made.log.close()
    return list(range(0, 20 * segments, 20))


def segment(path: Path, base: int, suffix: str = ".log") -> Path:
    return path / "t-0" / f"{base:020d}{suffix}"


def rewrite(file: Path, content: bytes) -> None:
    """Other bytes in the same file."""
    with open(file, "r+b") as opened:
        opened.write(content)
        opened.truncate()


@pytest.mark.usefixtures("impatient")
class TestDamage:
    """What the JVM gave before, and Python's rows and error from there on, are Python's own."""

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    def test_any_bit(self, probe: Probe, path: Path, codec: Codec) -> None:
        bases = filled(path, codec=codec)
        file = segment(path, bases[1])
        sound = file.read_bytes()
        rng = random.Random(str(codec))
        for bit in rng.sample(range(len(sound) * 8), depth.FLIPS):
            damaged = bytearray(sound)
            damaged[bit // 8] ^= 1 << bit % 8
            rewrite(file, bytes(damaged))
            at = bases[1] + 5 * (bit // 8 * 4 // len(sound))  # of the damaged batch
            for first in (0, at, at + 3):
                last = rng.randint(first, bases[-1])
                handovers = check_same(Read(path, **bounds(first, last)), probe)
                assert [place.at for place in handovers] in ([], [max(first, at)])

    def test_any_length(self, probe: Probe, path: Path) -> None:
        bases = filled(path)
        file = segment(path, bases[1])
        sound = file.read_bytes()
        size = len(sound) // 4
        for length in sorted({*range(0, len(sound), 37), size - 1, size, size + 12, size + 17}):
            read = Read(path)
            rewrite(file, sound[:length])
            whole = bases[1] + 5 * (length // size)
            assert read.in_jvm(probe)[2] == [(0, whole)]
            check_same(read, probe)
            rewrite(file, sound)

    @pytest.mark.parametrize("number", range(4))
    def test_a_batch_is_missing(self, probe: Probe, path: Path, number: int) -> None:
        """The batches around it are sound, but without compaction there are no gaps."""
        bases = filled(path)
        file = segment(path, bases[1])
        sound = file.read_bytes()
        size = len(sound) // 4
        rewrite(file, sound[: number * size] + sound[(number + 1) * size :])
        at = bases[1] + 5 * number
        for first in (0, at, at + 3):
            read = Read(path, ["offset"], **bounds(first, bases[-1]))
            _, expected = read.in_python()
            rows, error, handovers = read.in_jvm(probe)
            assert handovers == [(0, max(first, at))]
            assert rows == [(offset,) for offset in range(first, at)]
            assert isinstance(expected, DataCorruptionError)
            assert isinstance(error, DataCorruptionError)

    def test_a_segment_that_reaches_into_the_next_one(self, probe: Probe, path: Path) -> None:
        """A longer segment of another log: its records are not those of the offsets behind it."""
        with sparklog.open(path, "rw") as log:
            log.create_topic("t", config={"internal.segment.bytes": 1000})
            for first in range(0, 80, 5):
                log.append("t", pa.table({"value": [f"{n:060}" for n in range(first, first + 5)]}))
        bases = sorted(int(file.stem) for file in (path / "t-0").glob("*.log"))
        assert bases[:3] == [0, 10, 20]
        file = segment(path, 10)
        rewrite(file, file.read_bytes() + segment(path, 20).read_bytes())
        for last, good in ((15, 4), (16, 4), (20, 4), (21, 4), (30, 4)):
            rows, error = Read(path, **bounds(11, last)).in_python()
            assert [len(rows), error is None] == [good, last == 15]
            handovers = check_same(Read(path, **bounds(11, last)), probe)
            assert [place.at for place in handovers] == ([] if last == 15 else [15])

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    def test_an_index_is_a_hint(self, probe: Probe, path: Path, policy: str) -> None:
        """Records must not be missed behind it, where gaps in the offsets are no fault either."""
        bases = filled(path, policy=policy)
        index = segment(path, bases[1], ".index")
        sound = index.read_bytes()
        rng = random.Random(1)
        assert len(sound) >= 24
        kinds = [b"", sound[:-3], bytes(len(sound)), sound[:8] + bytes(16), rng.randbytes(64)]
        size = segment(path, bases[1]).stat().st_size // 4
        # Of a later batch, and of bytes that are no batch.
        kinds += [struct.pack(">ii", 1, size * n + more) for n in range(1, 4) for more in (0, 7)]
        for content in [*kinds, *(rng.randbytes(8 * n) for n in range(1, 12)), None]:
            if content is None:
                index.unlink()
            else:
                rewrite(index, content)
            for first in range(bases[1] + 1, bases[2], 3):
                assert check_same(Read(path, **bounds(first, bases[3])), probe) == []


def newer_topic(path: Path) -> None:
    """Make topic t again; its files get the same names."""
    with sparklog.open(path, "rw") as log:
        log.delete_topic("t")
        log.create_topic("t")
        log.append("t", pa.table({"value": ["new"] * 100}))


def swapped(path: Path) -> None:
    """An earlier state of the log takes its place, as a copy of a backup would."""
    os.rename(path, f"{path}.old")
    shutil.copytree(f"{path}.old", path)


def remade_lock(path: Path) -> None:
    content = (path / "sparklog.lock").read_bytes()
    held = open(path / "sparklog.lock")  # noqa: SIM115 - so that its inode is not given again
    os.unlink(path / "sparklog.lock")
    (path / "sparklog.lock").write_bytes(content)
    held.close()


def remade_directory(path: Path) -> None:
    os.rename(path / "t-0", path / "t-0.away")
    shutil.copytree(path / "t-0.away", path / "t-0")
    shutil.rmtree(path / "t-0.away")


def other_id(path: Path) -> None:
    (path / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 22}")


def no_id(path: Path) -> None:
    (path / "t-0" / "partition.metadata").unlink()


def all_gone(path: Path) -> None:
    shutil.rmtree(path)


def partition_gone(path: Path) -> None:
    shutil.rmtree(path / "t-0")


def third_segment_gone(path: Path) -> None:
    segment(path, 40).unlink()


def earlier_records_deleted(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        log.delete_records("t", {0: 65})
    for base in (0, 20, 40):
        segment(path, base).unlink()


CHANGES: list[Callable[[Path], None]] = [
    newer_topic, swapped, remade_lock, remade_directory, other_id, no_id, all_gone,
    partition_gone, third_segment_gone, earlier_records_deleted,
]  # fmt: skip


class TestChanges:
    """What happens to a log between planning and reading, and while it is read."""

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_before_it_is_read(
        self, probe: Probe, path: Path, change: Callable[[Path], None], fails: bool
    ) -> None:
        filled(path)
        read = Read(path, failOnDataLoss=str(fails).lower())
        change(path)
        handovers = check_same(read, probe)
        at = 40 if change is third_segment_gone else 0
        assert handovers == ([] if change is remade_directory else [(0, at)])

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (newer_topic, "t-0 was deleted and created again"),
            (swapped, "log.lock was replaced during the read"),
            (remade_lock, "log.lock was replaced during the read"),
            (remade_directory, ""),
            (other_id, "t-0 was deleted and created again"),
            (no_id, "t-0 was deleted"),
            (all_gone, "log.lock was replaced during the read"),
            (partition_gone, "t-0"),
            (third_segment_gone, "offset"),
            (earlier_records_deleted, "offsets [40, 65)"),
        ],
    )
    def test_while_it_is_read(
        self, probe: Probe, path: Path, change: Callable[[Path], None], said: str
    ) -> None:
        """Of what was read already all is given out, from there on Python judges."""
        filled(path)
        read = Read(path)
        rows, error, handovers = read.in_jvm(probe, (25, lambda: change(path)))
        assert handovers == [(0, 40)]
        offsets = [row[ALL.index("offset")] for row in rows]
        if said:
            assert said in str(error)
            assert offsets == list(range(40))
        else:
            assert error is None
            assert offsets == list(range(80))

    def test_it_grows_and_rolls(self, probe: Probe, path: Path) -> None:
        made = CompactedLog(path, cleanup_policy="delete")
        made.write(*(batch(n) for n in range(0, 20, 5)))

        def grow() -> None:
            made.write(batch(20), roll=True)
            made.write(batch(25))

        for reading in range(2):
            read = Read(path)
            end = len(read.in_python()[0])
            rows, error, handovers = read.in_jvm(probe, (3, grow))
            assert (error, handovers) == (None, [])
            assert [row[ALL.index("offset")] for row in rows] == list(range(end))
            grow()
            assert check_same(read, probe) == [], reading
        made.log.close()

    def test_it_is_compacted(self, probe: Probe, path: Path) -> None:
        """Segments are swapped for others: what is open is read on, what is gone is Python's."""
        made = CompactedLog(path)
        for base in range(0, 60, 5):
            made.write(batch(base), roll=True)
        read = Read(path)
        assert len(read.in_jvm(probe)[0]) == 60
        rows, error, handovers = read.in_jvm(probe, (12, made.clean))
        assert error is None
        found = [row[ALL.index("offset")] for row in rows]
        assert found == sorted(set(found))
        assert {*range(15), 59} <= set(found)
        assert len(handovers) == 1
        check_same(read, probe)
        assert check_same(Read(path), probe) == []
        for _ in range(2):  # the last that is left lies before many segments of nothing
            first, last = 16, 55
            assert check_same(Read(path, **bounds(first, last)), probe) == []
            made.write(batch(0), roll=True)
            made.clean()
        made.log.close()

    def test_compaction_left_nothing_up_to_the_end_unless_it_is_at_work(
        self, probe: Probe, path: Path
    ) -> None:
        made = CompactedLog(path, internal_segment_bytes=250)  # the first by itself
        made.segment(("x", "1"), ("a", "1"), ("b", "1"))
        made.segment(("a", "2"))
        made.segment(("b", "2"), ("c", "2"))
        made.clean()
        assert (made.bases()[:2], made.offsets()) == ([0, 3], [0, 3, 4, 5])
        read = Read(path, **bounds(0, 3))
        assert check_same(read, probe) == []

        def swap() -> None:
            file = segment(path, 0)
            os.rename(file, f"{file}.kept")
            shutil.copy(f"{file}.kept", file)

        assert read.in_jvm(probe, (1, swap))[2] == [(0, 1)]
        assert read.in_jvm(probe, (1, lambda: segment(path, 2).touch()))[2] == [(0, 1)]
        made.log.close()


class _Of:
    """The records of these offsets, by their values."""

    columns = ("value",)

    def __init__(self, *offsets: int) -> None:
        self._values = pa.array([b"%06d" % offset * 8 for offset in offsets])

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        return pc.is_in(records["value"], value_set=self._values)


def moved(path: str) -> None:
    _, *others = path.split(",")
    with sparklog.open(path, "rw") as log:
        log.move_partition("t", 0, *others)


def moved_and_back(path: str) -> None:
    moved(path)
    with sparklog.open(path, "rw") as log:
        log.move_partition("t", 0, path.split(",")[0])


def erased(path: str) -> None:
    assert erase(path, "t", predicate=_Of(22, 50)).records == 2


def moved_and_erased(path: str) -> None:
    moved(path)
    erased(path)


def given_back(path: str) -> None:
    with sparklog.open(path, "rw") as log:
        log.delete_topic("t")
        log.undelete_topic("t")


@pytest.mark.deep
class TestCare:
    """What its owner does to a log while queries run: all that stays is read, and once."""

    @pytest.mark.parametrize("rows", [0, 25])
    @pytest.mark.parametrize(
        ("change", "leaves", "ends"),
        [
            (moved, True, True),  # its directory is another one: Python looks where it is
            (moved_and_back, True, False),
            (erased, False, False),
            (moved_and_erased, True, True),
            (given_back, False, False),
        ],
    )
    def test_it(
        self,
        probe: Probe,
        path: Path,
        rows: int,
        change: Callable[[str], None],
        leaves: bool,
        ends: bool,
    ) -> None:
        """`leaves`: whether Python reads on where some `rows` were read; `ends`: or none."""
        filled(path)
        both = f"{path},{path}2"
        sparklog.open(both, "rw").close()
        read = Read(both)
        got, error, handovers = read.in_jvm(probe, (rows, lambda: change(both)))
        assert error is None
        at = 40 if rows else 0  # a segment that is open is read to its end
        assert handovers == ([(0, at)] if (leaves if rows else ends) else [])
        gone = {n for n in (22, 50) if n >= at and "erased" in change.__name__}
        assert [row[ALL.index("offset")] for row in got] == sorted({*range(80)} - gone)
        assert check_same(read, probe) == ([(0, 0)] if ends else [])
        assert check_same(Read(both), probe) == []


class TestKinds:
    """What the JVM reads none of, and what is large, or empty, or left out."""

    @pytest.mark.parametrize("magic", [0, 1])
    def test_older_formats_are_pythons(self, probe: Probe, path: Path, magic: int) -> None:
        filled(path, segments=2)
        file = segment(path, 20)
        older = b"".join(message(n, b"k", b"v%d" % n, magic=magic, time=T0) for n in range(20, 30))
        size = file.stat().st_size
        rewrite(file, older + file.read_bytes()[size // 2 :])
        assert check_same(Read(path), probe) == [(0, 20)]
        assert check_same(Read(path, **bounds(31, 40)), probe) == [(0, 31)]

    @pytest.mark.parametrize("size", [70_000, 3 << 20, 33 << 20])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_large_records(self, probe: Probe, path: Path, size: int, codec: Codec) -> None:
        made = CompactedLog(path, cleanup_policy="delete", internal_segment_bytes=1 << 30)
        value = random.Random(size).randbytes(1 << 16) * (size >> 16)
        rows = pa.table({"value": [value, b""]})
        large = encode(rows, codec=codec, timestamp_ms_default=T0, max_message_bytes=1 << 30).data
        for data in (batch(0), bytes(large), batch(0), bytes(large)):
            made.write(data)
        made.log.close()
        is_pythons = size > 32 << 20
        assert check_same(Read(path), probe) == ([(0, 5)] if is_pythons else [])
        assert check_same(Read(path, ["offset"]), probe) == ([(0, 5)] if is_pythons else [])
        if not is_pythons:
            assert check_same(Read(path, **bounds(6, 8)), probe) == []

    def test_header_keys_of_any_bytes(self, probe: Probe, path: Path) -> None:
        made = CompactedLog(path, cleanup_policy="delete")
        rng = random.Random(5)
        for text in ("abc", "\u00e9\u20ac", "\U0001f600 \ud7ff", ""):
            for _ in range(8):
                raw = bytearray(text.encode() * 3)
                headers = [[{"key": "K" * len(raw), "value": None}, {"key": "", "value": b"x"}]]
                rows = pa.table({"value": ["v"], "headers": pa.array(headers, HEADERS_TYPE)})
                data = bytearray(encode(rows, codec=Codec.NONE, timestamp_ms_default=T0).data)
                for _ in range(rng.randrange(3) if raw else 0):
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
                at = bytes(data).find(b"K" * len(raw), 61)
                data[at : at + len(raw)] = raw
                seal(data)
                made.write(bytes(data))
        made.log.close()
        assert check_same(Read(path, includeHeaders="true"), probe) == []

    def test_spans_that_are_left_out(self, probe: Probe, path: Path) -> None:
        with sparklog.open(path, "rw") as log:
            log.create_topic("t", 2, config={"index.interval.bytes": "100"})
            rng, batch = random.Random(3), 0
            for n in range(40):
                commit(log, batch, f"run {n}", count=rng.choice([1, 3, 50, 5000]))
                if batch > 3 and rng.random() < 0.2:
                    batch -= rng.randint(1, 3)
                    log.reset("q", batch)
                batch += 1
        read = Read(path, ["offset", "partition"], timeline="current")
        (piece,) = json.loads(read.partitions[0].value[0])["pieces"]
        assert len({end - first > 4096 for first, end in piece["without"]}) == 2
        assert check_same(read, probe) == []
        for most in (900, 6000):
            split = Read(path, ["offset"], timeline="current", maxRecordsPerPartition=most)
            assert check_same(split, probe) == []

    def test_a_marker_that_the_cleaner_took_away(self, probe: Probe, path: Path) -> None:
        """The producer's next transaction isn't aborted, though no marker ends the one before."""
        made = CompactedLog(path)
        for sequence, kind in enumerate((0, 1)):  # aborted, committed
            record = (f"{sequence}", "v")
            sent = logs.batch(record, producer=9, sequence=sequence, transactional=True)
            made.write(sent, logs.marker(kind, 9), roll=kind == 1)
        made.log.close()
        file = segment(path, 0)
        content = file.read_bytes()
        abort = content[len(sent) :][: len(logs.marker(0, 9))]
        assert len(content) == 2 * (len(sent) + len(abort))
        rewrite(file, content.replace(abort, b""))
        read = Read(path, ["offset"], kafka_isolation_level="read_committed")
        assert read.in_python() == ([(2,)], None)
        assert check_same(read, probe) == []

    def test_an_interrupt_ends_it(self, probe: Probe, path: Path) -> None:
        """Nobody goes on in Python then, and no file stays open."""
        filled(path)
        read = Read(path)
        for taken in (0, 3, 20, 41):
            read.open(probe)
            assert len(read.take(probe, taken)) == taken
            answer = probe.call("interrupt")
            assert answer[-4:] == bytes(4)
            name = answer[2:-4].decode()
            assert name in ("ClosedByInterruptException", "InterruptedIOException")
            assert str(path) not in probe.call("close").decode()
        assert check_same(read, probe) == []

    def test_an_interrupt_ends_it_where_python_would_go_on(self, probe: Probe, path: Path) -> None:
        """The damaged batch is in memory already: no call to the system notices the interrupt."""
        filled(path)
        file = segment(path, 0)
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        rewrite(file, bytes(content))
        read = Read(path)
        read.open(probe)
        assert len(read.take(probe, 15)) == 15
        assert probe.call("interrupt")[2:] == b"InterruptedIOException" + bytes(4)
        probe.call("close")
        assert check_same(read, probe) == [(0, 15)]

    def test_several_partitions_in_one_task(self, probe: Probe, path: Path) -> None:
        """Records of the same offset, each with headers of its own; some pieces are Python's."""
        with sparklog.open(path, "rw") as log:
            log.create_topic("t", 5 * TASKS)
            for number in range(5 * TASKS):
                headers = pa.array([[{"key": f"h{number}", "value": None}]], HEADERS_TYPE)
                rows = pa.table({"value": ["v"], "headers": headers})
                log.append("t", rows.append_column("partition", pa.array([number], pa.int32())))
        read = Read(path, ["partition", "headers"], includeHeaders="true")
        plan, task = read.partitions[0].value
        planned = json.loads(plan)
        assert len(planned["pieces"]) == 5
        assert check_same(read, probe) == []
        for number in (1, 2, 4):
            planned["pieces"][number]["python"] = "it is remote"
        read.partitions = [InputPartition((json.dumps(planned).encode(), task))]
        assert check_same(read, probe) == [(1, 0), (4, 0)]

    def test_a_plan_of_another_version(self, probe: Probe) -> None:
        with pytest.raises(ProbeError, match="the same sparklog version"):
            probe.call("open", pack([b'{"version": 2}', b"key"]))
