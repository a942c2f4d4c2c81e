"""Segments as rows: the JVM gives what Python gives, and leaves to Python what it should."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.log import read_retry
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.storage.staging import Framing
from sparklog.testing.strategies import NOW_MS, tables
from tests import depth
from tests.jvm.probe import Probe
from tests.jvm.segments import ALL, Read, check_same
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
                log.append("t", table, framing=framing)
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

    def test_an_index_is_a_hint(self, probe: Probe, path: Path) -> None:
        bases = filled(path)
        index = segment(path, bases[1], ".index")
        sound = index.read_bytes()
        rng = random.Random(1)
        assert len(sound) >= 24
        kinds = [b"", sound[:-3], bytes(len(sound)), sound[:8] + bytes(16), rng.randbytes(64)]
        for content in [*kinds, *(rng.randbytes(8 * n) for n in range(1, 12)), None]:
            if content is None:
                index.unlink()
            else:
                rewrite(index, content)
            for first in range(bases[1] + 1, bases[2], 3):
                assert check_same(Read(path, **bounds(first, bases[3])), probe) == []
