"""Reports of what is empty, odd, damaged, missing, or changes while it is looked at."""

import shutil
import struct
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import encode_one
from sparklog.format.names import log_name
from sparklog.fs import LOCAL
from sparklog.log.due_segments import Tier
from sparklog.log.log import view_of
from sparklog.logdir.home import commits_of
from sparklog.quantities import DAY_MS
from sparklog.service import Severity
from sparklog.service.health import Level
from sparklog.ui.report.build import make_report
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import render
from sparklog.ui.report.segments import ReportCache, list_partition
from tests.service.logs import T0, fill, flip, logs, make, patch, table
from tests.ui.page_text import checked

HUGE = 2**62


def report(path: Path | str, **given: Any) -> LogReport:
    """The report; its page is whole as well."""
    found = make_report(path, clock=ManualClock(T0 + DAY_MS), **given)
    checked(render(found))
    return found


def damage(found: LogReport) -> list[tuple[str, str]]:
    return [(n.where, n.what) for n in found.notices if n.severity is Severity.DAMAGE]


def broker_dir(path: Path, topic: str, base: int = 0, *records: tuple[int, int]) -> Path:
    """A broker's partition with a segment from `base` on; (timestamp, size of the value) each."""
    directory = path / f"{topic}-0"
    directory.mkdir(parents=True)
    raw = b""
    for at, (timestamp, size) in enumerate(records):
        batch = encode_one(None, b"v" * size, timestamp=timestamp)
        raw += struct.pack(">q", base + at) + batch[8:]
    (directory / log_name(base)).write_bytes(raw)
    marks = f"0\n1\n{topic} 0 {base + len(records)}\n"
    (path / "replication-offset-checkpoint").write_text(marks)
    (path / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {base}\n")
    return directory


def test_an_empty_log_and_a_topic_without_records(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        found = report(tmp_path / "log")
        assert (found.topics, found.notices, found.kind) == ((), (), "log")
        log.create_topic("t", 2)
        found = report(tmp_path / "log")
    assert [(p.offsets, p.bytes, len(p.segments)) for p in found.partitions] == [(0, 0, 1)] * 2
    assert not found.growth.edges_ms
    (tmp_path / "none").mkdir()
    assert report(tmp_path / "none").kind == "broker"  # a directory without anything


def test_a_log_in_a_store_and_its_partitions_without_records(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", 2)
        log.append("t", pa.table({"value": ["v"]}), partition=1)
        found = report(url)
        log.delete_records("t", {1: 1})
    assert damage(found) == []
    assert [(p.error, p.offsets, len(p.segments)) for p in found.partitions] == [
        (None, 0, 1), (None, 1, 1)
    ]  # fmt: skip
    assert damage(report(url)) == []


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist"):
        report(tmp_path / "absent")
    with pytest.raises(InvalidRequestError, match="must be a directory"):
        report("a,,b")


def test_a_log_dir_that_is_gone_and_one_that_is_not_named(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw", clock=ManualClock(T0)) as log:
        log.create_topic("t", 4, config={"retention.ms": -1})
        for p in range(4):
            log.append("t", table("t-0"), partition=p)
    whole = report(f"{one},{two}")
    assert not whole.notices
    assert whole.health.level is Level.GREEN
    assert [d.partitions for d in whole.directories] == [2, 2]
    shutil.rmtree(two)
    found = report(f"{one},{two}")
    assert [(d.path, d.offline) for d in found.directories] == [
        (str(one), None), (str(two), "it does not exist"),
    ]  # fmt: skip
    wheres = [where for where, _ in damage(found)]
    assert wheres == [str(two), str(two)]
    assert "t-" in damage(found)[1][1]
    assert [part.error is None for part in found.partitions].count(True) == 2
    assert any("offline" in (part.error or "") for part in found.partitions)
    lost = [f"t-{p}" for p in range(4) if not (one / f"t-{p}").exists()]
    assert found.health.verdict.startswith(
        f"it can't be written: log dir {two} is offline: the log dir does not exist: is its disk "
        f"mounted?; 2 partitions ({', '.join(lost)}) offline: "
    )
    page = render(found)
    assert page.index("can&#39;t be written") < page.index("<nav")
    ((where, what),) = damage(report(str(one)))
    assert where == ""
    assert "not in the log's path" in what


def test_a_partition_that_was_removed_by_hand(tmp_path: Path) -> None:
    make(tmp_path / "log")
    shutil.rmtree(tmp_path / "log" / "t-1")
    ((where, what),) = damage(report(tmp_path / "log"))
    assert (where, what) == (str(tmp_path / "log"), "partitions are missing: t-1")
    assert report(tmp_path / "log").health.verdict.startswith("1 partition (t-1) offline: ")


def test_a_partition_that_a_writer_took_offline(tmp_path: Path) -> None:
    """It reads up to the damage, so that reading alone shows nothing of it."""
    log = make(tmp_path / "log", close=False)
    with commits_of(log).exclusive():
        error = DataCorruptionError("crc is wrong", path="t-0/x.log", first=3, end=9)
        commits_of(log).offline["t", 0] = error
        commits_of(log).manager.idle()
    found = report(tmp_path / "log")
    ((where, what),) = damage(found)
    assert where == "t-0"
    assert what.startswith("offline: ") and "crc is wrong" in what
    assert found.health.level is Level.RED
    assert found.health.verdict.startswith("1 partition (t-0) offline: ")
    assert "1 partition (t-0) offline" in render(found)
    log.close()


def test_a_full_disk_is_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "log")
    monkeypatch.setattr(type(LOCAL), "free_bytes", lambda self, path: 1000)
    found = report(tmp_path / "log").health
    assert found.level is Level.RED
    assert found.verdict.startswith(f"it can't be written: {tmp_path / 'log'} has 1000 bytes free")


def test_records_without_time_and_far_ahead(tmp_path: Path) -> None:
    path = tmp_path / "log"
    never, always = 2**62, {"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1}
    with sparklog.open(path, "rw", clock=ManualClock(T0)) as log:
        for name in ("ahead", "usual"):
            log.create_topic(name, config=always)
        log.append(
            "ahead",
            pa.table(
                {"value": ["x"], "timestamp": pa.array([T0 + 9 * 365 * DAY_MS], pa.timestamp("ms"))}
            ),
        )
        fill(log, "usual", 0, 3)
    found = report(path)
    assert [n.where for n in found.notices] == ["ahead-0"]
    assert found.growth.edges_ms[-1] <= T0 + 2 * DAY_MS
    assert found.growth.after > 0
    odd = tmp_path / "odd"
    directory = broker_dir(odd, "undated", 0, (-1, 10), (-1, 10))
    found = report(odd)
    (segment,) = next(found.partitions).segments
    assert (segment.first_ms, segment.last_ms, segment.time_of_file) == (None, None, True)
    shutil.rmtree(directory)
    broker_dir(odd, "far", 0, (never, 10), (T0, 10))
    assert len(report(odd).notices) == 1


def test_records_at_the_ends_of_the_axis_are_on_it(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw", clock=ManualClock(T0)) as log:
        for name, at in (("a", T0), ("b", T0 + 5000)):
            log.create_topic(name)
            log.append(name, table("x-1", at=at))
    found = report(tmp_path / "log")
    assert found.growth.edges_ms[0] == T0
    assert found.growth.edges_ms[-1] == T0 + 5000
    assert (found.growth.before, found.growth.after) == (0, 0)
    assert sum(found.growth.bytes["local"]) == sum(p.bytes for p in found.partitions)


def test_huge_offsets(tmp_path: Path) -> None:
    broker_dir(tmp_path, "far", HUGE, (T0, 10), (T0 + 5, 10))
    found = report(tmp_path)
    (partition,) = found.partitions
    assert (partition.log_start, partition.end, partition.offsets) == (HUGE, HUGE + 2, 2)
    assert f"{HUGE:,}" in render(found)


@pytest.mark.parametrize("name", ["a<b>&c", "\"quoted'", "<script>alert(1)", "عربي"])
def test_names_that_are_no_topics_in_kafka(tmp_path: Path, name: str) -> None:
    """A directory of such a name is no partition, here as in a broker."""
    broker_dir(tmp_path, name, 0, (T0, 10))
    assert report(tmp_path).topics == ()


def test_odd_writers_and_groups(tmp_path: Path) -> None:
    from sparklog.log.commit import Identity
    from sparklog.storage.staging import Framing

    writers = ["<b>bold</b>", "כותב עברי", "a\u202eb", "x" * 300, "nul\x00"]
    with sparklog.open(tmp_path / "log", "rw", clock=ManualClock(T0)) as log:
        log.create_topic("t")
        for writer in writers:
            stager = log.stager(Framing())
            stager.add(log.topic("t"), pa.table({"value": ["x"]}).to_batches()[0])
            log.commit(stager.finish(), identity=Identity(writer=writer, batch=0, fingerprint="f"))
        log.commit_offsets("<i>&'\"", {"t": {0: 1}})
    page = render(report(tmp_path / "log"))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;bold" in page
    page.encode()


def test_segments_without_bytes(tmp_path: Path) -> None:
    make(tmp_path / "log")
    for segment in logs(tmp_path / "log" / "t-0")[1:3]:
        segment.write_bytes(b"")
    found = report(tmp_path / "log")
    sizes = [s.bytes for s in next(p for p in found.partitions if p.topic == "t").segments]
    assert sizes.count(0) == 2


def test_a_first_batch_that_is_damaged(tmp_path: Path) -> None:
    make(tmp_path / "log")
    wrong = {16: b"\x09", 22: b"\x07", 0: b"\x7f"}  # magic, codec, base offset
    segments = logs(tmp_path / "log" / "t-0")
    for (position, data), segment in zip(wrong.items(), segments[1:], strict=False):
        patch(segment, position, data)
    whats = [what for _, what in damage(report(tmp_path / "log"))]
    assert len(whats) >= 3
    assert any("magic 9" in what for what in whats)
    assert any("codec 7" in what for what in whats)
    assert any("the first batch has offset" in what for what in whats)


def test_a_registered_reader_whose_file_is_damaged(tmp_path: Path) -> None:
    make(tmp_path / "log")
    with sparklog.open(tmp_path / "log") as log:
        log.commit_offsets("g", {"u": {0: 3}})
    (file,) = (tmp_path / "log").glob("sparklog.readers-*")
    flip(file, 20)
    found = report(tmp_path / "log")
    assert found.damaged
    assert [r.kind for r in found.readers] == ["damaged"]


def test_a_ledger_that_is_damaged(tmp_path: Path) -> None:
    make(tmp_path / "log")
    (segment,) = logs(tmp_path / "log" / "__sparklog_commits-0")
    flip(segment, 300)
    found = report(tmp_path / "log")
    assert "commit ledger" in [where for where, _ in damage(found)]
    assert len(list(found.partitions)) == 3


def test_a_segment_that_was_closed_after_the_look_at_the_end(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw", clock=ManualClock(T0)) as log:
        log.create_topic("t", config={"internal.segment.bytes": 300})
        fill(log, "t", 0, 4)
        key = TopicPartition("t", 0)
        whole = list_partition(LOCAL, view_of(log), key, Tier(), memory=ReportCache())
        closed = whole.segments[0]
        span = (0, closed.end - 2)
        seen = list_partition(LOCAL, view_of(log), key, Tier(), span, memory=ReportCache())
    assert len(whole.segments) > 1
    assert [s.end for s in seen.segments] == [seen.end] == [closed.end - 2]


def test_a_log_that_is_written_meanwhile(tmp_path: Path) -> None:
    """Appends, deletions and topics that come and go: never damage, never an error."""
    path, stop, failed = tmp_path / "log", threading.Event(), []
    log = sparklog.open(path, "rw", clock=ManualClock(T0))
    log.create_topic("t", config={"internal.segment.bytes": 300, "file.delete.delay.ms": 0})
    fill(log, "t", 0, 3)

    def write() -> None:
        try:
            for n in range(10_000):
                if stop.is_set():
                    return
                fill(log, "t", 0, 1, first=n)
                if n % 4 == 0:
                    log.create_topic(f"u{n}", 2)
                elif n % 4 == 2:
                    log.delete_topic(f"u{n - 2}")
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(6):
            found = report(path)
            assert damage(found) == []
            t = next(p for p in found.partitions if p.topic == "t")
            assert t.segments[-1].end == t.end
            assert all(s.end <= t.end for s in t.segments)
    finally:
        stop.set()
        thread.join()
        log.close()
    assert not failed
