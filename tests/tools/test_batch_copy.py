"""What `export` to a log copies: the batches themselves, in any state that a log can be in."""

import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import FencedError
from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.format.compression import Codec
from sparklog.format.scan import scan
from sparklog.fs import LOCAL
from sparklog.logdir.home import commits_of
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, read_offsets
from sparklog.service import Service, verify
from sparklog.storage.staging import Framing
from sparklog.tools.moving import preserved_offsets
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import TopicRange
from tests.format.test_legacy import message, wrapper
from tests.oracle import Oracle, random_logs
from tests.paths import GOLDEN

LOGDIR = GOLDEN / "kafka-4.1" / "logdir"
TOPICS = sorted({path.parent.name.rpartition("-")[0] for path in LOGDIR.glob("*/*.log")})
COLUMNS = ("key", "value", "headers", "timestamp", "timestampType", "offset", "partition")


def batches(directory: Path) -> list[tuple[bytes, np.void]]:
    """The batches of a partition directory, whole, with their row of a scan."""
    found = []
    for path in sorted(directory.glob("*.log")):
        raw = path.read_bytes()
        table = scan(raw, path=str(path)).table
        found += [(raw[row["position"] : row["position"] + row["size"]], row) for row in table]
    return found


def as_they_are(directory: Path) -> list[bytes]:
    """Without the leader epoch, and batches that stand for a gap."""
    return [raw[:12] + raw[16:] for raw, row in batches(directory) if not is_gap(row)]


def is_gap(row: np.void) -> bool:
    return bool(row["count"] == 0 and row["producer_id"] < 0 and row["max_timestamp"] == -1)


def read(log: sparklog.Log, topic: str, **given: Any) -> pa.Table:
    return log.read(topic, columns=COLUMNS, **given).read_all()


@pytest.fixture
def broker_dir(tmp_path: Path) -> Path:
    shutil.copytree(LOGDIR, tmp_path / "broker")
    return tmp_path / "broker"


@pytest.mark.parametrize("topic", TOPICS)
def test_what_a_broker_wrote(
    broker_dir: Path, tmp_path: Path, oracle: Oracle, topic: str
) -> None:
    """Byte for byte, but for the leader epoch; and what is trimmed, from the log start on."""
    with sparklog.open(broker_dir) as log:
        spans = log.offsets(topic)
        done = export_log(TopicRange(log, topic, isolation="read_uncommitted"), tmp_path / "to")
        assert done.records == read(log, topic).num_rows
        with sparklog.open(tmp_path / "to") as copy:
            assert copy.offsets(topic) == spans
            for isolation in ("read_uncommitted", "read_committed"):
                assert read(copy, topic, isolation=isolation).equals(
                    read(log, topic, isolation=isolation)
                )
    assert verify(tmp_path / "to").ok
    for p, (start, end) in spans.items():
        ours, theirs = tmp_path / "to" / f"{topic}-{p}", broker_dir / f"{topic}-{p}"
        copied, held = as_they_are(ours), as_they_are(theirs)
        if topic != "trimmed":
            assert copied == held
        else:
            assert copied[1:] == held[-len(copied) + 1 :]
        judged, before = oracle.open(ours), oracle.open(theirs, log_start=start)
        assert (judged.start, judged.end, judged.lso) == (start, end, end)
        assert judged.aborted == before.aborted
        assert judged.producers == before.producers
        assert judged.untouched


def test_kafkas_dump_says_the_same(broker_dir: Path, tmp_path: Path, oracle: Oracle) -> None:
    with sparklog.open(broker_dir) as log:
        for topic in ("txn", "plain.lz4"):
            export_log(TopicRange(log, topic, isolation="read_uncommitted"), tmp_path / "to")
    for name in ("txn-0", "plain.lz4-0"):
        said = []
        for home in (tmp_path / "to", broker_dir):
            logs = sorted((home / name).glob("*.log"))
            text = "".join(
                oracle.dump("--files", log, "--print-data-log", "--deep-iteration") for log in logs
            )
            lines = [line for line in text.splitlines() if line.startswith(("base", "|"))]
            drop = r"partitionLeaderEpoch: \d+|position: \d+"
            said.append([re.sub(drop, "", line) for line in lines])
        assert said[0] == said[1]
        assert len(said[0]) > 20


@pytest.mark.parametrize("seed", range(12))
def test_random_logs(tmp_path: Path, oracle: Oracle, seed: int) -> None:
    """Compacted ones with all codecs, producers and transactions; in several steps of any length.

    The copy reads as the original, whoever reads it, and a broker loads it.
    """
    rng = random.Random(seed)
    clock = ManualClock(system_clock())
    home, to = tmp_path / "log", tmp_path / "to"
    with random_logs.opened(home, clock) as log:
        log.create_topic("t", config=random_logs.config(rng))
        writer = random_logs.Writer(commits_of(log), clock, rng)
        writer.write(rng.randint(2, 6))
        if seed % 3:
            service = Service(home, clock=clock)
            service.compact()
            service.close()
        end = log.offsets("t")[0][1]
        isolation = rng.choice(["read_committed", "read_uncommitted"])
        cuts = sorted(rng.randint(0, end) for _ in range(4))
        for cut in (*cuts[1:], end):
            export_log(TopicRange(log, "t", {0: cuts[0]}, {0: cut}, isolation), to)
        left = {"start": {0: cuts[0]}}
        with sparklog.open(to) as copy:
            assert copy.offsets("t") == {0: (cuts[0], end)}
            committed = read(log, "t", isolation="read_committed", **left)
            assert read(copy, "t", isolation="read_committed").equals(committed)
            for_all = read(log, "t", isolation=isolation, **left)
            assert read(copy, "t").equals(for_all)
        url = f"memory://{tmp_path}/store"
        export_log(TopicRange(log, "t", start={0: cuts[0]}, end={0: cuts[2]}), url)
        export_log(TopicRange(log, "t"), url)
        with sparklog.open(url) as stored:
            assert read(stored, "t").equals(committed)
            assert read(stored, "t", isolation="read_committed").equals(committed)
    assert verify(to).ok
    judged = oracle.open(to / "t-0")
    assert (judged.start, judged.end) == (cuts[0], end)
    assert judged.untouched


def test_the_ends_of_a_range(tmp_path: Path, oracle: Oracle) -> None:
    """A batch over an end is cut; those between stay, and a producer's sequences go on."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        framing = Framing(codec=Codec.ZSTD)
        for n in range(3):
            rows = pa.table({"value": [f"{n} {i}" * 20 for i in range(10)]})
            log.append("t", rows, partition=0, producer=(7, 1, 10 * n), framing=framing)
        to = tmp_path / "to"
        for end in (13, 15, 25, 30):
            export_log(TopicRange(log, "t", start={0: 4}, end={0: end}), to)
        with sparklog.open(to, "rw") as copy:
            assert read(copy, "t").equals(read(log, "t", start={0: 4}))
            again = pa.table({"value": ["x"] * 5})  # what the producer sent last, for us
            assert copy.append("t", again, partition=0, producer=(7, 1, 25)) == {
                "t": {0: (25, 30)}
            }
            with pytest.raises(FencedError):
                copy.append("t", again, partition=0, producer=(7, 0, 0))
            assert copy.append("t", again, partition=0, producer=(7, 1, 30)) == {
                "t": {0: (30, 35)}
            }
    rows = [row for _, row in batches(to / "t-0")][:-1]
    assert [(int(r["base_offset"]), int(r["base_sequence"])) for r in rows] == [
        (n, n) for n in (4, 10, 13, 15, 20, 25)
    ]
    assert {int(r["attributes"]) for r in rows} == {int(Codec.ZSTD)}
    assert {int(r["producer_id"]) for r in rows} == {7}
    assert oracle.open(to / "t-0").untouched


def test_a_store_keeps_codec_and_producers(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        rows = pa.table({"value": ["a" * 100] * 200})
        for n in range(12):
            log.append("t", rows, partition=0, producer=(7, 1, 200 * n),
                       framing=Framing(codec=Codec.LZ4))  # fmt: skip
        url = f"memory://{tmp_path}/to"
        export_log(TopicRange(log, "t", start={0: 50}), url)
        with sparklog.open(url, "rw") as copy:
            assert read(copy, "t").equals(read(log, "t", start={0: 50}))
            assert copy.append("t", rows, partition=0, producer=(7, 1, 2200)) == {
                "t": {0: (2200, 2400)}
            }
            assert copy.append("t", rows, partition=0, producer=(7, 1, 2400)) == {
                "t": {0: (2400, 2600)}
            }
        export_log(TopicRange(log, "t"), tmp_path / "local")
        back = Path(tmp_path / "back")
        with sparklog.open(url) as copy:
            export_log(TopicRange(copy, "t", end={0: 2400}), back)
    assert as_they_are(back / "t-0")[1:] == as_they_are(tmp_path / "local" / "t-0")[1:]


def test_transactions_in_a_store(broker_dir: Path, tmp_path: Path) -> None:
    """It has none: what was committed lies there as plain records, nothing else does."""
    with sparklog.open(broker_dir) as log:
        url = f"memory://{tmp_path}/to"
        export_log(TopicRange(log, "txn"), url)
        export_log(TopicRange(log, "txn"), tmp_path / "to")
        committed = read(log, "txn", isolation="read_committed")
    with sparklog.open(url) as copy:
        assert read(copy, "txn").equals(committed)
        assert read(copy, "txn", isolation="read_committed").equals(committed)
        export_log(TopicRange(copy, "txn"), tmp_path / "back")
    rows = [row for _, row in batches(tmp_path / "back" / "txn-0")]
    assert not any(row["attributes"] & (TRANSACTIONAL | CONTROL) for row in rows)
    assert any(row["producer_id"] >= 0 and row["count"] for row in rows)
    kept = [row for _, row in batches(tmp_path / "to" / "txn-0")]
    assert any(row["attributes"] & CONTROL for row in kept)
    with sparklog.open(tmp_path / "to") as copy:  # aborted ones are left out there, too
        assert read(copy, "txn").equals(committed)


def test_an_open_transaction(tmp_path: Path, oracle: Oracle) -> None:
    """read_committed ends before it; read_uncommitted copies it, and it goes on with the next."""
    clock = ManualClock(system_clock())
    with random_logs.opened(tmp_path / "log", clock) as log:
        log.create_topic("t")
        writer = random_logs.Writer(commits_of(log), clock, random.Random(1))
        writer.append([writer.data(), writer.data(producer=1, transactional=True), writer.data()])
        end = log.offsets("t")[0][1]
        lso = oracle.open(tmp_path / "log" / "t-0", clean=False).lso
        assert lso < end
        done = export_log(TopicRange(log, "t", isolation="read_uncommitted"), tmp_path / "a")
        assert done.offsets == {0: (0, end)}
        assert export_log(TopicRange(log, "t"), tmp_path / "b").offsets == {0: (0, lso)}
        assert oracle.open(tmp_path / "a" / "t-0").lso == lso
        writer.append([writer.data(producer=1, transactional=True), writer.marker(1)])
        for name, isolation in (("a", "read_uncommitted"), ("b", "read_committed")):
            export_log(TopicRange(log, "t", isolation=isolation), tmp_path / name)
            judged = oracle.open(tmp_path / name / "t-0")
            assert judged.lso == judged.end == log.offsets("t")[0][1]
            with sparklog.open(tmp_path / name) as copy:
                assert read(copy, "t", isolation="read_committed").equals(
                    read(log, "t", isolation="read_committed")
                )


def test_old_magics_become_v2(broker_dir: Path, tmp_path: Path, oracle: Oracle) -> None:
    """Their records keep offsets, times and codec; those beside them stay as they are."""
    part = broker_dir / "plain.gzip-0"
    end = read_offsets(LOCAL, str(broker_dir), HIGH_WATERMARK)[TopicPartition("plain.gzip", 0)]
    new = b"".join(raw for raw, row in batches(part) if row["base_offset"] >= 8)
    first = int(next(row for _, row in batches(part) if row["base_offset"] >= 8)["base_offset"])
    inner = b"".join(message(n, b"k", b"w%d" % n, time=10**12 + n) for n in range(first - 6))
    old = message(0, None, b"zero", magic=0) + message(1, b"k", None, time=10**12)
    old += wrapper(first - 1, inner, Codec.GZIP, time=10**12 + first)
    for path in part.glob("0*"):
        path.unlink()
    (part / f"{0:020d}.log").write_bytes(old + new)
    with sparklog.open(broker_dir) as log:
        before = read(log, "plain.gzip", partitions=[0])
        export_log(TopicRange(log, "plain.gzip", end={1: 0}), tmp_path / "to")
        assert before["offset"][:3].to_pylist() == [0, 1, 6]
    with sparklog.open(tmp_path / "to") as copy:
        after = read(copy, "plain.gzip", partitions=[0])
        assert copy.offsets("plain.gzip")[0] == (0, end)
        assert after.drop_columns(["timestampType"]).equals(before.drop_columns(["timestampType"]))
    found = batches(tmp_path / "to" / "plain.gzip-0")
    assert all(row["magic"] == 2 for _, row in found)
    assert next(row for _, row in found if row["last_offset"] == first - 1)["attributes"] == 1
    assert b"".join(raw[16:] for raw, row in found if row["base_offset"] >= first) == b"".join(
        raw[16:] for raw, row in batches(part) if row["base_offset"] >= first and row["magic"] == 2
    )
    assert oracle.open(tmp_path / "to" / "plain.gzip-0").end == end


def test_a_batch_that_is_too_large_for_a_segment(tmp_path: Path) -> None:
    """The copy has the topic's config of now; the batches are of before."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        rows = pa.table({"value": [bytes([n]) * 900 for n in range(40)]})
        log.append("t", rows, framing=Framing(batch_size=1 << 20))
        log.append("t", pa.table({"value": ["small"]}))
        small = {"internal.segment.bytes": "5000", "max.message.bytes": "5000"}
        log.alter_topic("t", config=small)
        export_log(TopicRange(log, "t"), tmp_path / "to")
        with sparklog.open(tmp_path / "to") as copy:
            assert read(copy, "t").equals(read(log, "t"))
    assert max(int(row["size"]) for _, row in batches(tmp_path / "to" / "t-0")) <= 5000
    assert verify(tmp_path / "to").ok


def test_times_of_append_stay(tmp_path: Path) -> None:
    """And nobody judges times that the log has long taken: these lie in the future."""
    clock = ManualClock(system_clock() + 10**9)
    config = {"message.timestamp.type": "LogAppendTime"}
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        log.create_topic("u")
        log.append("t", pa.table({"value": ["a", "b"]}))
        log.append("u", pa.table({"value": ["a", "b"]}))
        for where in (tmp_path / "to", f"memory://{tmp_path}/to"):
            for topic in ("t", "u"):
                export_log(TopicRange(log, topic), where)
                with sparklog.open(where) as copy:
                    assert read(copy, topic).equals(read(log, topic))
                    assert copy.topic(topic).config == log.topic(topic).config
        export_log(TopicRange(log, "t"), tmp_path / "anew", framing=Framing(codec=Codec.LZ4))
        with sparklog.open(tmp_path / "anew") as copy:
            assert read(copy, "t")["timestamp"].equals(read(log, "t")["timestamp"])


def test_a_codec_that_is_asked_for(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["a" * 1000] * 100}))
        export_log(TopicRange(log, "t"), tmp_path / "to", framing=Framing(codec=Codec.ZSTD))
        with sparklog.open(tmp_path / "to") as copy:
            assert read(copy, "t").equals(read(log, "t"))
    assert {int(row["attributes"]) for _, row in batches(tmp_path / "to" / "t-0")} == {4}


def test_a_copy_that_breaks_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preserved_offsets, "COMMIT_BYTES", 1)
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 20_000})
        for n in range(40):
            log.append("t", pa.table({"value": [bytes([n]) * 3000] * 2}))
        calls: list[int] = []

        def fail(done: int, total: int) -> None:
            calls.append(done)
            if len(calls) % 3 == 0:
                raise OSError("cut")

        for _ in range(50):
            try:
                export_log(TopicRange(log, "t"), tmp_path / "to", progress=fail)
            except OSError:
                continue
            break
        with sparklog.open(tmp_path / "to") as copy:
            assert read(copy, "t").equals(read(log, "t"))
    assert len(calls) > 6
    assert as_they_are(tmp_path / "to" / "t-0") == as_they_are(tmp_path / "log" / "t-0")


def test_an_emptied_range(tmp_path: Path) -> None:
    """A start behind the end of the last export leaves a gap, over whose end a batch may lie."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [f"{n}" for n in range(30)]}))
        export_log(TopicRange(log, "t", end={0: 5}), tmp_path / "to")
        export_log(TopicRange(log, "t", start={0: 12}, end={0: 20}), tmp_path / "to")
        with sparklog.open(tmp_path / "to") as copy:
            found = copy.read("t", columns=["offset"]).read_all()["offset"].to_pylist()
            assert found == [*range(5), *range(12, 20)]
