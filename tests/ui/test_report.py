"""The numbers of a report, against the engine's own: what the service would do, what the ledger
says, what lies on disk."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.compression import Codec
from sparklog.fs import LOCAL
from sparklog.fs.local import LocalFileSystem
from sparklog.log.commit import QueryIdentity
from sparklog.log.log import home_of
from sparklog.logdir.cleaning.cleaner import clean_partition, compacted_partitions
from sparklog.logdir.home import commits_of
from sparklog.logdir.retention.partition_retention import segments_of
from sparklog.service import Service
from sparklog.service.health import examine
from sparklog.storage.groups import Reader
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.staging import Framing
from sparklog.ui.report.build import make_report
from sparklog.ui.report.model import HORIZONS_MS, LogReport, Where
from sparklog.ui.report.page import render
from sparklog.ui.report.segments import ReportCache
from tests.service.logs import kept
from tests.ui.conftest import Demo
from tests.ui.demo import CODECS, TOPICS, make_demo

Sums = dict[tuple[str, int, str], tuple[int, int]]


def named(rule: str, remote: bool) -> str:
    """What took a piece. A local one that was due by age goes, later on, by the log start too."""
    return "local" if rule.startswith("local.") else f"{rule} {remote}"


def foretold(report: LogReport, within_ms: int) -> Sums:
    """{(topic, partition, rule): (segments, bytes)} of what goes by then."""
    found: Sums = {}
    for p in report.partitions:
        for one in p.going:
            if one.within_ms <= within_ms:
                key = p.topic, p.partition, named(one.rule, one.where is Where.REMOTE)
                segments, size = found.get(key, (0, 0))
                found[key] = segments + one.segments, size + one.bytes
    return found


def would_go(demo: Demo, now_ms: int) -> Sums:
    """The same from a dry run of the service's retention at that time."""
    given: dict[str, Any] = {"opening": lambda url, options: demo.store}
    service = Service(demo.path, clock=ManualClock(demo.now_ms), **given)
    done = service.retain(now_ms=now_ms, dry_run=True)
    service.close()
    assert not done.errors
    found: Sums = {}
    pieces = [(d.topic, d.partition, s.rule, s.bytes, False) for d in done.deleted
              for s in d.segments]  # fmt: skip
    pieces += [(r.topic, r.partition, r.rule, r.bytes, True) for r in done.removed]
    for topic, partition, rule, size, remote in pieces:
        key = topic, partition, named(rule, remote)
        segments, total = found.get(key, (0, 0))
        found[key] = segments + 1, total + size
    return found


@pytest.mark.parametrize("within_ms", [HORIZONS_MS[0], HORIZONS_MS[3], HORIZONS_MS[-1]])
def test_what_goes_when_is_what_the_service_would_take(
    tmp_path: Path, demo: Demo, demo_report: LogReport, within_ms: int
) -> None:
    """A dry run leaves its epoch in the log, so it gets a copy of its own."""
    own = Demo(str(shutil.copytree(demo.path, tmp_path / "log")), demo.now_ms, demo.store)
    expected = would_go(own, demo.now_ms + within_ms)
    assert expected
    told = foretold(demo_report, within_ms)
    assert {key: told.get(key) for key in expected} == expected
    # What has no copy yet stays on both sides: the report doesn't foresee what will be copied.
    assert told == expected


def test_held_back_by_a_reader(demo_report: LogReport) -> None:
    held = {p.topic for p in demo_report.partitions if p.held_back_bytes}
    assert held == {"payments"}


def test_compaction_is_what_the_cleaner_plans(tmp_path: Path, demo: Demo) -> None:
    path = shutil.copytree(demo.path, tmp_path / "log")
    found = make_report(path, clock=ManualClock(demo.now_ms))
    shown = {(p.topic, p.partition): p.compaction for p in found.partitions if p.compaction}
    with sparklog.open(path, "rw", clock=ManualClock(demo.now_ms)) as log:
        compacted = compacted_partitions(commits_of(log), now_ms=demo.now_ms)
        planned = {(c.topic, c.partition): c for c in compacted if not c.topic.startswith("__")}
    assert shown.keys() == planned.keys() == {("customers", p) for p in range(3)}
    for key, dirt in shown.items():
        assert dirt is not None
        assert dirt.dirty_ratio == planned[key].dirt.ratio
        assert dirt.first_dirty == planned[key].dirt.first_dirty > 0
        assert dirt.cleanable_bytes == planned[key].dirt.cleanable_bytes
        assert dirt.wanted is planned[key].wanted
        assert dirt.kept_share is not None
        assert 0 < dirt.kept_share < 1


def test_segments_are_those_on_disk_and_in_the_bucket(demo: Demo, demo_report: LogReport) -> None:
    with sparklog.open(demo.path) as log:
        for topic in demo_report.topics:
            spans = log.offsets(topic.name)
            for p in topic.partitions:
                assert (p.log_start, p.end) == spans[p.partition]
                local = [s for s in p.segments if s.where is not Where.REMOTE]
                held = segments_of(LOCAL, p.directory)
                assert [(s.base, s.bytes) for s in local] == [(h.base, h.size) for h in held]
                assert p.local_bytes == sum(h.size for h in held)
                assert p.segments[-1].end == p.end
                for before, after in zip(p.segments, p.segments[1:], strict=False):
                    assert before.end == after.base
    orders = next(t for t in demo_report.topics if t.name == "orders")
    assert {s.where for s in orders.segments} == set(Where)
    assert orders.partitions[0].remote_bytes == sum(
        s.bytes for s in orders.partitions[0].segments if s.where is not Where.LOCAL
    )


def test_codecs_and_times(demo: Demo, demo_report: LogReport) -> None:
    for topic in demo_report.topics:
        codecs = {s.codec for s in topic.segments if s.where is not Where.REMOTE and s.bytes}
        assert codecs == ({CODECS[topic.name].name.lower()} if topic.name in CODECS else set())
        for segment in topic.segments:
            if segment.bytes:
                assert segment.last_ms is not None and segment.last_ms <= demo.now_ms
                if segment.where is Where.REMOTE:  # a request away, and not guessed
                    assert (segment.first_ms, segment.since_ms) == (None, segment.last_ms)
                else:
                    assert segment.first_ms is not None
                    assert segment.first_ms <= segment.last_ms
    with sparklog.open(demo.path) as log:
        times = log.read("audit", columns=["timestamp"]).read_all().column("timestamp")
        latest = max(times.to_pylist()).timestamp() * 1000
    (audit,) = next(t for t in demo_report.topics if t.name == "audit").partitions
    assert audit.segments[-1].last_ms == round(latest)


def test_growth_holds_every_byte(demo_report: LogReport) -> None:
    total = sum(t.bytes for t in demo_report.topics)
    growth = demo_report.growth
    shown = sum(sum(values) for values in growth.bytes.values()) + growth.before + growth.after
    assert shown == pytest.approx(total, abs=len(growth.edges_ms) * len(Where) + 2)
    assert list(growth.edges_ms) == sorted(growth.edges_ms)


def test_commits_are_the_ledgers(demo: Demo, demo_report: LogReport) -> None:
    with sparklog.open(demo.path) as log:
        rows = log.commits().to_pylist()
    for writer in demo_report.commits.writers:
        mine = [r for r in rows if r["writer"] == writer.writer and r["kind"] != "reset"
                and not (r["topic"] or "").startswith("__")]  # fmt: skip
        assert writer.commits == len({r["offset"] for r in mine})
        assert writer.records == sum(r["end"] - r["first"] for r in mine) == sum(writer.by_time)
        assert writer.last_batch == max(
            (r["batch"] for r in mine if r["batch"] is not None), default=None
        )
    assert {w.writer for w in demo_report.commits.writers} >= {"payments", None}


def test_resets_are_told(tmp_path: Path, demo: Demo) -> None:
    path = shutil.copytree(demo.path, tmp_path / "log")
    with sparklog.open(path, "rw", clock=ManualClock(demo.now_ms)) as log:
        log.reset("payments", 3)
    found = make_report(path, clock=ManualClock(demo.now_ms))
    assert {w.writer: w.resets for w in found.commits.writers}["payments"] == 1


def test_lag_is_the_readers(demo: Demo, demo_report: LogReport) -> None:
    with sparklog.open(demo.path) as log:
        rows = log.readers().to_pylist()
    assert sorted((r.group, r.topic, r.partition, r.lag) for r in demo_report.readers) == sorted(
        (r["group"], r["topic"], r["partition"], r["lag"]) for r in rows
    )
    assert demo_report.readers[0].group == "settlement"


def test_queries_have_their_names_beside_their_ids(tmp_path: Path) -> None:
    clock = ManualClock()
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        stager = log.stager(Framing())
        stager.add(log.topic("t"), pa.record_batch({"value": ["x"]}), partition=0)
        identity = QueryIdentity(
            writer="id/t", batch=0, fingerprint="0", origin=QueryOrigin(name="orders")
        )
        log.commit(stager.finish(), identity=identity)
        log.append("t", pa.table({"value": ["x"]}))
        query = Reader("id", "query", "h", "app", batch=0, run="r", name="orders")
        home_of(log).groups.commit_query(query, {TopicPartition("t", 0): 1}, now_ms=clock())
        log.commit_offsets("g", {"t": {0: 2}})
    found = make_report(path, clock=clock)
    assert sorted(w.text for w in found.commits.writers) == ["orders (id/t)", "plain appends"]
    assert [r.text for r in found.readers] == ["orders (id)", "g"]
    page = render(found)
    assert "orders (id/t)" in page
    assert "orders (id)" in page


def test_a_second_report_reads_less_and_says_the_same(tmp_path: Path, demo: Demo) -> None:
    """Only what is new is read: what was closed before is not opened again, unless it changed."""
    path, clock = shutil.copytree(demo.path, tmp_path / "log"), ManualClock(demo.now_ms)
    memory, fs = ReportCache(), Noting()
    first = make_report(path, fs=fs, clock=clock, memory=memory)
    opened = fs.logs()
    assert len(opened) > 50
    again = make_report(path, fs=fs, clock=clock, memory=memory)
    assert again.topics == first.topics == make_report(path, clock=clock).topics
    active = {max(each) for each in by_directory(opened).values()}
    verdict = Noting()
    examine(path, fs=verdict, clock=clock)  # asks of what is due how old it is
    opened, looked = fs.logs(), verdict.logs()
    assert {a for a in active if "__" not in a} <= opened
    assert {name for name in opened - looked if "__" not in name} <= active
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("more")
        for compacted in compacted_partitions(commits_of(log), now_ms=clock()):
            clean_partition(commits_of(log), *compacted.key)
    later = make_report(path, fs=fs, clock=clock, memory=memory)
    assert later.topics == make_report(path, clock=clock).topics != first.topics


class Noting(LocalFileSystem):
    """Notes which logs are opened."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[str] = set()

    def open(self, path: str, **given: Any) -> Any:
        if path.endswith(".log"):
            self._opened.add(path)
        return super().open(path, **given)

    def logs(self) -> set[str]:
        """Those since the last call."""
        found, self._opened = self._opened, set()
        return found


def by_directory(paths: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(str(Path(path).parent), []).append(path)
    return found


def test_it_changes_nothing_and_is_json(demo: Demo) -> None:
    before = kept(Path(demo.path))
    found = demo.report()
    assert kept(Path(demo.path)) == before
    again = json.loads(json.dumps(found.to_dict()))
    assert {t["name"] for t in again["topics"]} == set(TOPICS)
    assert again["topics"][0]["partitions"][0]["segments"][0]["where"] in list(map(str, Where))
    assert (found.kind, found.url, found.notices) == ("log", "memory://bucket", ())


def test_an_archive_and_a_copy_without_its_bucket(tmp_path: Path) -> None:
    """The archive alone, and the log whose bucket can't be reached: no request is made for it."""
    path, url = tmp_path / "log", f"file://{tmp_path}/bucket"
    clock, _ = make_demo(path, days=1, remote=url)
    log = make_report(path, clock=clock)
    archive = make_report(url, clock=clock)
    assert (archive.kind, archive.url) == ("archive", url)
    assert [t.name for t in archive.topics] == ["orders"]
    copied = {(p.partition, s.base, s.end, s.bytes) for p in log.partitions if p.topic == "orders"
              for s in p.segments if s.where is not Where.LOCAL}  # fmt: skip
    assert copied
    assert copied == {(p.partition, s.base, s.end, s.bytes) for p in archive.partitions
                      for s in p.segments}  # fmt: skip
    shutil.rmtree(tmp_path / "bucket")
    assert make_report(path, clock=clock).topics == log.topics


def test_batches_are_those_that_were_written(demo_report: LogReport) -> None:
    found = {topic.name: topic.batches for topic in demo_report.topics}
    assert found.pop("empty") == ()
    for name, codec in CODECS.items():
        (figures,) = found[name]
        assert figures.codec == codec.name.lower()
        assert figures.sampled
        assert figures.records > figures.batches > 0
        assert figures.compression_rate is not None
        assert (figures.compression_rate < 1) == (figures.codec != "none")
    as_json = json.loads(json.dumps(demo_report.to_dict()))
    assert next(t for t in as_json["topics"] if t["name"] == "audit")["batches"][0]["records"] > 0


def test_batches_that_are_known_are_not_read_again(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ReportCache()
    clock = ManualClock(demo.now_ms)
    before = make_report(demo.path, clock=clock, memory=memory)
    monkeypatch.setattr("sparklog.ui.report.segments.sample", None)
    after = make_report(demo.path, clock=clock, memory=memory)
    assert [t.batches for t in after.topics] == [t.batches for t in before.topics]


def test_a_topic_of_lonely_records_is_told_what_helps(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"max.message.bytes": 2000})
        lonely = Framing(codec=Codec.ZSTD, batch_size=1)
        values = [sha256(b"%d" % n).hexdigest() for n in range(10_000)]
        log.append("t", pa.table({"value": values}), framing=lonely)
    (notice,) = make_report(path).notices
    assert (notice.where, notice.severity) == ("t", "warning")
    assert "1.0 records" in notice.what
