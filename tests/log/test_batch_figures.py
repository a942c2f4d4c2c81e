"""Figures of batches, against kafka-dump-log's print of the same files and against plain sums."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard

import sparklog
from sparklog.format.compression import Codec, decompress
from sparklog.format.scan import scan
from sparklog.fs import LOCAL
from sparklog.fs.local import LocalFileSystem
from sparklog.log.batch_figures import BatchFigures, BatchTally, small_batches
from sparklog.log.batch_sample import RATED_BYTES, SAMPLE_BYTES, choose_partitions, sample
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.storage.staging import Framing
from tests import paths

GOLDEN = paths.GOLDEN / "kafka-4.1"
LOGS = sorted(GOLDEN.glob("logdir/*-*/*.log"))
_BATCH = re.compile(
    r"^baseOffset: .* count: (\d+) .* isControl: (\w+) .* size: (\d+) .* compresscodec: (\w+)", re.M
)


def of_kafka(log: Path) -> dict[str, tuple[int, int, int]]:
    """{codec: (batches, records, bytes)} by kafka-dump-log."""
    name = f"{log.parent.name}_{log.stem}.log.txt.gz"
    text = gzip.decompress((GOLDEN / "dump" / name).read_bytes()).decode()
    found: Counter[tuple[str, int]] = Counter()
    for count, control, size, codec in _BATCH.findall(text):
        if control == "false" and int(count):
            for at, value in enumerate((1, int(count), int(size))):
                found[codec.lower(), at] += value
    return {codec: (found[codec, 0], found[codec, 1], found[codec, 2]) for codec, _ in found}


def tally_of(log: Path) -> tuple[BatchTally, bytes]:
    data = log.read_bytes()
    tally = BatchTally()
    tally.take(scan(data, path=str(log)).table)
    return tally, data


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name}-{int(log.stem)}")
def test_a_brokers_batches_are_counted_as_its_tool_prints_them(log: Path) -> None:
    figures = tally_of(log)[0].figures(sampled=False)
    assert {f.codec: (f.batches, f.records, f.bytes) for f in figures} == of_kafka(log)


PLAIN: dict[int, Callable[[bytes], bytes]] = {
    Codec.NONE: lambda data: data,
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: lambda data: bytes(decompress(Codec.SNAPPY, data, path="", position=0)),
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_rate_is_compressed_by_plain(codec: str) -> None:
    log = GOLDEN / "logdir" / f"plain.{codec}-0" / f"{0:020d}.log"
    tally, data = tally_of(log)
    table = scan(data, path=str(log)).table
    sums: Counter[tuple[str, int]] = Counter()
    for row in table:
        packed = data[row["position"] + 61 : row["position"] + row["size"]]
        of = Codec(row["attributes"] & 7)
        sums[of.name.lower(), 0] += len(packed)
        sums[of.name.lower(), 1] += len(PLAIN[of](packed))
    assert tally.rate(table, data, 0, budget=1 << 30) > 0
    figures = tally.figures(sampled=False)
    assert codec in {f.codec for f in figures}
    for found in figures:
        assert found.compression_rate == sums[found.codec, 0] / sums[found.codec, 1]
        assert found.rated_bytes == (0 if found.codec == "none" else sums[found.codec, 0])


def test_quantiles_and_means_are_those_of_all_batches() -> None:
    rng = random.Random(1)
    counts = [rng.choice([1, 2, 90, 700, 5000]) for _ in range(3000)]
    template = scan((GOLDEN / "logdir/plain.none-0" / f"{0:020d}.log").read_bytes(), path="").table
    table = np.repeat(template[:1], len(counts))
    table["count"], table["size"] = counts, [61 + 40 * n for n in counts]
    whole = BatchTally()
    for at in range(0, len(table), 700):
        part = BatchTally()
        part.take(table[at : at + 700])
        whole.add(part)
    (found,) = whole.figures(sampled=False)
    ordered = sorted(counts)
    for quantile, given in ((0.5, found.records_p50), (0.99, found.records_p99)):
        wanted = ordered[int(quantile * len(ordered))]
        assert wanted * 0.99 <= given <= wanted
    assert found.records_avg == sum(counts) / len(counts)
    assert found.bytes_avg == 61 + 40 * found.records_avg
    assert found.bytes_p99 == pytest.approx(61 + 40 * found.records_p99, rel=0.02)


# --- the newest of a partition -------------------------------------------------------------------


def rows(count: int, text: str = "x") -> pa.Table:
    return pa.table({"value": [f"{text}{n % 7:060}" for n in range(count)]})


def write(
    log: sparklog.Log, times: int, count: int, codec: Codec = Codec.ZSTD, *, batch_size: int = 4096
) -> None:
    for _ in range(times):
        log.append("t", rows(count), framing=Framing(codec=codec, batch_size=batch_size))


def sampled(path: str, end: int, fs: LocalFileSystem = LOCAL) -> tuple[BatchFigures, ...]:
    tally = BatchTally()
    sample(LogDirSegments(fs, f"{path}/t-0"), end, tally)
    return tally.figures(sampled=True)


class Reading(LocalFileSystem):
    """Counts what is read of logs."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def open(self, path: str) -> Any:
        file = super().open(path)
        if path.endswith(".log"):
            ours = self
            pread = file.pread

            def counting(size: int, at: int) -> bytes:
                found = pread(size, at)
                ours.read += len(found)
                return found

            file.pread = counting
        return file


@pytest.mark.parametrize("indexed", [True, False])
def test_a_sample_is_the_end_of_the_log_whatever_lies_before(tmp_path: Path, indexed: bool) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"compression.type": "producer"})
        write(log, 1, 40_000, Codec.NONE)
        write(log, 1, 12_000, Codec.NONE, batch_size=900)
        end = log.offsets("t")[0][1]
        if not indexed:
            (tmp_path / "log/t-0" / f"{0:020d}.index").unlink()
        (found,) = sampled(path, end)
    whole = (tmp_path / "log/t-0" / f"{0:020d}.log").stat().st_size
    assert whole > 3 * SAMPLE_BYTES
    assert found.sampled
    if indexed:
        assert SAMPLE_BYTES <= found.bytes <= SAMPLE_BYTES + 8192
        assert found.bytes_p99 <= 1000
    else:
        assert found.bytes == whole


def test_a_sample_costs_the_same_of_a_large_log(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        write(log, 1, 200_000, Codec.LZ4, batch_size=16_000)
        fs = Reading()
        (found,) = sampled(path, log.offsets("t")[0][1], fs)
    assert SAMPLE_BYTES <= fs.read <= SAMPLE_BYTES + (64 << 10)
    assert found.compression_rate is not None
    assert 0 < found.compression_rate < 0.7
    assert RATED_BYTES <= found.rated_bytes <= RATED_BYTES + 16_000


def test_what_is_not_committed_is_not_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        write(log, 5, 10)
        (all_of_it,) = sampled(path, 50)
        (some,) = sampled(path, 49)
        assert (all_of_it.records, some.records) == (50, 40)
        assert sampled(path, 0) == ()


def test_an_empty_segment_leads_to_the_one_before(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        assert sampled(path, 0) == ()
        write(log, 3, 10)
    (tmp_path / "log/t-0" / f"{30:020d}.log").touch()
    (found,) = sampled(path, 30)
    assert found.records == 30


def test_damage_gives_fewer_batches_and_no_error(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        write(log, 10, 10)
        file = tmp_path / "log/t-0" / f"{0:020d}.log"
        whole = file.read_bytes()
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        assert sum(f.batches for f in sampled(path, 100)) <= 10


def test_a_batch_that_is_larger_than_what_is_read_tells_by_its_header(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"max.message.bytes": 64 << 20})
        noise = random.Random(5).randbytes(6 << 20)
        log.append("t", pa.table({"value": [noise]}), framing=Framing(codec=Codec.LZ4))
        (found,) = sampled(path, 1)
    assert (found.batches, found.records) == (1, 1)
    assert found.bytes > 6 << 20
    assert found.compression_rate is None


def test_partitions_are_spread_over_the_topic() -> None:
    assert choose_partitions([0, 3]) == [0, 3]
    assert choose_partitions(list(range(100))) == [0, 25, 50, 75]
    assert choose_partitions([]) == []


def test_a_word_where_compression_has_nothing_to_work_on(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        write(log, 30, 1)
        lonely = sampled(path, 30)
        write(log, 30, 200, batch_size=65536)
        dense = sampled(path, 30 + 6000)
    hint = small_batches(lonely, 2 << 20)
    assert hint is not None
    assert "linger.ms" in hint
    assert "1.0 records" in hint
    assert small_batches(lonely, 4000) is None  # nobody minds a small topic
    assert small_batches(dense, 2 << 20) is None
