"""Batch figures: as `verify` counts them, as the endpoint samples them, in log dirs and stores."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.compression import Codec
from sparklog.log.batch_figures import BatchFigures
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.service import verify
from sparklog.service.health import examine
from sparklog.service.metrics import Observer, batches, collect
from sparklog.service.metrics.batches import REST_MS, TOPICS_A_LOOK, BatchObserver
from sparklog.service.metrics.samples import samples
from sparklog.storage.staging import Framing
from sparklog.testing.faultstore import FaultStore
from tests.paths import GOLDEN

Capture = pytest.CaptureFixture[str]
Sums = dict[tuple[str, str], tuple[int, int, int]]
_BATCH = re.compile(
    r"^baseOffset: .* count: (\d+) .* isControl: (\w+) .* size: (\d+) .* compresscodec: (\w+)", re.M
)


def sums(figures: dict[str, tuple[BatchFigures, ...]]) -> Sums:
    """{(topic, codec): (batches, records, bytes)}"""
    return {
        (topic, each.codec): (each.batches, each.records, each.bytes)
        for topic, some in figures.items()
        for each in some
    }


def of_kafka() -> Sums:
    """What kafka-dump-log printed of the broker's logs."""
    found: dict[tuple[str, str], list[int]] = {}
    for file in (GOLDEN / "kafka-4.1" / "dump").glob("*.log.txt.gz"):
        topic = file.name.split("_")[0].rpartition("-")[0]
        for count, control, size, codec in _BATCH.findall(
            gzip.decompress(file.read_bytes()).decode()
        ):
            if control == "false" and int(count):
                of = found.setdefault((topic, codec.lower()), [0, 0, 0])
                for at, value in enumerate((1, int(count), int(size))):
                    of[at] += value
    return {key: (a, b, c) for key, (a, b, c) in found.items()}


def fill(log: sparklog.Log, topic: str, count: int = 300, codec: Codec = Codec.ZSTD) -> None:
    values = [f"{topic}-{n % 9:050}" for n in range(count)]
    log.append(topic, pa.table({"value": values}), framing=Framing(codec=codec, batch_size=2000))


# --- verify --------------------------------------------------------------------------------------


def test_verify_counts_a_brokers_batches_as_its_tool_prints_them(tmp_path: Path) -> None:
    path = shutil.copytree(GOLDEN / "kafka-4.1" / "logdir", tmp_path / "log")
    found = sums(verify(path).batches)
    assert found
    printed = of_kafka()
    assert {key: printed[key] for key in found} == found


@pytest.mark.parametrize("where", ["dir", "store"])
def test_verify_counts_all_and_decompresses_some(tmp_path: Path, where: str) -> None:
    path = str(tmp_path / "log") if where == "dir" else f"memory://{tmp_path.name}/log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 3)
        for codec in (Codec.ZSTD, Codec.NONE, Codec.ZSTD):
            fill(log, "t", codec=codec)
        log.create_topic("empty")
    report = verify(path)
    assert report.ok
    assert sorted(report.batches) in (["t"], ["empty", "t"])
    found = {each.codec: each for each in report.batches["t"]}
    assert [found["zstd"].records, found["none"].records] == [600, 300]
    assert not any(each.sampled for each in found.values())
    rate = found["zstd"].compression_rate
    assert rate is not None
    assert 0.01 < rate < 0.7
    given = json.loads(json.dumps(report.to_dict()))["batches"]["t"]
    assert given[0]["records_avg"] == report.batches["t"][0].records_avg


def test_a_repair_counts_no_batch_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        fill(log, "t")
    (tmp_path / "log/t-0" / f"{0:020d}.index").unlink()
    report = verify(path, repair=True)
    assert report.done
    assert report.batches["t"][0].records == 300


def test_batches_behind_damage_count_and_the_damaged_one_does_not(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        fill(log, "t")
    (whole,) = verify(path).batches["t"]
    file = tmp_path / "log/t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    report = verify(path)
    assert not report.ok
    assert report.batches["t"][0].batches == whole.batches - 1


def lonely(path: str, topics: int = 1) -> None:
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        for n in range(topics):
            log.create_topic(f"t{n}")
            values = [sha256(b"%d" % i).hexdigest() for i in range(9000)]
            framing = Framing(codec=Codec.ZSTD, batch_size=1)
            log.append(f"t{n}", pa.table({"value": values}), framing=framing)


def test_lonely_records_are_a_warning_that_names_what_helps(
    tmp_path: Path, capsys: Capture
) -> None:
    lonely(str(tmp_path / "log"))
    report = verify(tmp_path / "log")
    (finding,) = report.findings
    assert report.ok
    assert (finding.severity, finding.topic) == ("warning", "t0")
    assert "1.0 records" in finding.what
    assert "linger.ms" in finding.what
    assert run(["verify", str(tmp_path / "log")]) == 0
    text = capsys.readouterr().out
    assert re.search(r"t0 +zstd +1\.0 +1 +1 +\d+ B", text)


def test_the_table_of_many_topics_is_printed_when_it_is_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        for n in range(6):
            log.create_topic(f"t{n}")
            fill(log, f"t{n}")
    assert run(["verify", str(tmp_path / "log")]) == 0
    assert "records a batch" not in capsys.readouterr().out
    assert run(["verify", "--batches", str(tmp_path / "log")]) == 0
    text = capsys.readouterr().out
    assert "records a batch" in text
    assert all(f" t{n} " in text for n in range(6))
    assert run(["metrics", "--table", str(tmp_path / "log")]) == 0
    assert "records a batch" in capsys.readouterr().out


# --- the endpoint --------------------------------------------------------------------------------


def test_the_endpoint_tells_what_verify_counts(tmp_path: Path, clock: ManualClock) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        fill(log, "t")
        look = Observer(path, clock=clock).observe()
        assert not look.errors
        assert sums(look.batches) == sums(verify(path).batches)
    assert list(look.batches) == ["t"]  # the ledger's batches are nobody's to tune
    given = {(s.metric.name, s.labels): s.value for s in samples(look, process=False)}
    (figures,) = look.batches["t"]
    assert given["sparklog_batch_records_avg", ("t", "zstd")] == figures.records_avg
    assert given["sparklog_batch_size_bytes", ("t", "zstd", "0.99")] == figures.bytes_p99
    assert given["sparklog_batch_compression_rate_avg", ("t", "zstd")] == figures.compression_rate


def test_a_verdict_samples_nothing(
    many: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "sample", None)
    assert examine(many, clock=clock).checks
    assert Observer(many, batches=False, clock=clock).observe().batches == {}


class Partitions:
    """Topics of one partition each that hold `end` records, in a log that is there."""

    def __init__(self, path: str, topics: int) -> None:
        self.spans = {TopicPartition(f"t{n}", 0): (0, 300) for n in range(topics)}
        self.path, self.asked = path, Counter[str]()

    def segments(self, key: TopicPartition) -> LogDirSegments:
        from sparklog.fs import LOCAL

        self.asked[key.topic] += 1
        return LogDirSegments(LOCAL, f"{self.path}/{key.topic}-0")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """60 topics of 300 records."""
    path = str(tmp_path_factory.mktemp("many") / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        for n in range(60):
            log.create_topic(f"t{n}")
            fill(log, f"t{n}")
    return path


def test_a_look_samples_a_few_topics_and_all_in_turn(many: str, clock: ManualClock) -> None:
    partitions, observer = Partitions(many, 60), BatchObserver(clock)
    for look in range(1, 5):
        found = observer.observe(partitions.spans, partitions.segments)
        assert len(found) == min(60, look * TOPICS_A_LOOK)
        clock.advance(15_000)
    assert partitions.asked.total() == 60
    observer.observe(partitions.spans, partitions.segments)
    assert partitions.asked.total() == 60  # nothing was written


def test_a_busy_topic_does_not_keep_others_from_being_sampled(
    many: str, clock: ManualClock
) -> None:
    """Each topic is written to between any two looks: the longest ago comes first."""
    partitions, observer = Partitions(many, 60), BatchObserver(clock)
    for look in range(40):
        partitions.spans = dict.fromkeys(partitions.spans, (0, 100 + look))
        observer.observe(partitions.spans, partitions.segments)
        clock.advance(REST_MS // 3)
    assert max(partitions.asked.values()) - min(partitions.asked.values()) <= 1
    assert min(partitions.asked.values()) >= 9


def test_a_topic_rests_between_samples(many: str, clock: ManualClock) -> None:
    partitions, observer = Partitions(many, 1), BatchObserver(clock)
    (key,) = partitions.spans
    for look in range(REST_MS // 5000):
        partitions.spans[key] = (0, 100 + look)
        observer.observe(partitions.spans, partitions.segments)
        clock.advance(5000)
    assert partitions.asked.total() == 1
    clock.now_ms -= 3600_000  # a clock that was set back doesn't make it rest for an hour
    partitions.spans[key] = (0, 300)
    observer.observe(partitions.spans, partitions.segments)
    assert partitions.asked.total() == 2


def test_a_topic_that_goes_is_forgotten_and_a_new_one_of_its_name_is_another(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        fill(log, "t")
        observer = Observer(path, clock=clock)
        assert observer.observe().batches["t"][0].codec == "zstd"
        log.delete_topic("t")
        assert observer.observe().batches == {}
        log.create_topic("t")
        assert observer.observe().batches == {}
        fill(log, "t", codec=Codec.LZ4)
        assert observer.observe().batches["t"][0].codec == "lz4"
        log.delete_records("t", {0: log.offsets("t")[0][1]})
        assert observer.observe().batches == {}


def test_a_partition_that_cannot_be_read_leaves_the_others(
    many: str, tmp_path: Path, clock: ManualClock
) -> None:
    path = str(shutil.copytree(many, tmp_path / "log"))
    shutil.rmtree(f"{path}/t3-0")
    (tmp_path / "log/t4-0" / f"{0:020d}.log").write_bytes(b"rubbish" * 40)
    found = collect(path, clock=clock).batches
    assert len(found) == 60
    assert found["t3"] == found["t4"] == ()
    assert found["t5"][0].records == 300


def test_a_store_is_asked_seldom(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparklog.diskless.home import open_log
    from sparklog.service.metrics.store_observer import StoreObserver

    store, url = FaultStore(clock=clock), "memory://b/l"
    with open_log(url, mode="rw", store=store, clock=clock) as log:
        for n in range(6):
            log.create_topic(f"t{n}")
            fill(log, f"t{n}")
        observer = StoreObserver(
            url, url, options=None, clock=clock, connect=lambda: store
        )
        assert len(observer.observe().batches) == 4
        found = observer.observe().batches
        assert len(found) == 6
        assert {each.records for (each,) in found.values()} == {300}
        for n in range(6):
            fill(log, f"t{n}")
        sampled: list[object] = []
        monkeypatch.setattr(batches, "sample", lambda *given: sampled.append(given))
        clock.advance(300_000)
        observer.observe()
        assert not sampled
        clock.advance(300_000)
        observer.observe()
        assert len(sampled) == 4
