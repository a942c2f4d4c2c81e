"""Back-pressure: without a service a log of many small commits stays small and readable."""

import logging
import uuid

import pyarrow as pa
import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.entries import TermRecord
from sparklog.diskless.home import open_log
from sparklog.diskless.merging import Merger
from sparklog.diskless.service_log import NewEntry, ServiceLog
from sparklog.errors import StorageUnavailableError
from sparklog.log.log import home_of
from sparklog.service import Service
from sparklog.tiered.keyring import Keyring

T0 = 1_700_000_000_000


def opened(url: str = "", **options: object):
    url = url or f"memory://{uuid.uuid4().hex}/log"
    given = {"diskless.backpressure.max.extents": 20, **options}
    return open_log(url, mode="rw", options=given, clock=ManualClock(T0), background=False)


def append(log, first: int, count: int) -> None:
    for n in range(first, first + count):
        log.append("t", pa.table({"value": [f"v{n}", f"w{n}"]}), partition=n % 2)


def values(log) -> list[bytes]:
    table = log.read("t").read_all().sort_by([("partition", "ascending"), ("offset", "ascending")])
    return table.column("value").to_pylist()


def expected(count: int) -> list[bytes]:
    return [f"{c}{n}".encode() for p in range(2) for n in range(p, count, 2) for c in "vw"]


def test_many_small_commits_without_a_service(caplog):
    log = opened()
    log.create_topic("t", partitions=2)
    with caplog.at_level(logging.WARNING, "sparklog"):
        append(log, 0, 400)
    told = [r for r in caplog.records if "no service merges them" in r.getMessage()]
    assert len(told) == 1
    state = home_of(log).head.state
    assert state.term == 0
    for extents in state.extents.values():
        assert len(extents) <= 20 + 20 // 8 + 2
        assert any(extent.segment for extent in extents)
    assert log.offsets("t") == {0: (0, 400), 1: (0, 400)}
    assert values(log) == expected(400)
    assert values(opened(log.path)) == expected(400)
    with Service(log.path, options={"diskless.merge.interval.ms": 1}) as service:
        assert not service.run_once().errors
    home_of(log).head.follow()
    assert all(e.segment for found in home_of(log).head.state.extents.values() for e in found)
    assert values(opened(log.path)) == expected(400)


def test_nothing_is_merged_below_it_nor_said(caplog):
    log = opened()
    log.create_topic("t", partitions=2)
    with caplog.at_level(logging.WARNING, "sparklog"):
        append(log, 0, 40)
    assert not [r for r in caplog.records if r.name.startswith("sparklog")]
    assert all(len(extents) == 20 for extents in home_of(log).head.state.extents.values())


def test_a_service_that_takes_over_meanwhile_makes_it_void(monkeypatch):
    log = opened()
    log.create_topic("t", partitions=2)
    append(log, 0, 40)
    real = Merger.swap

    def swap(self, merge, made, *, term, gaps=False):
        service = ServiceLog(home_of(opened(log.path)).commits)
        service.create(lambda state: NewEntry(record=TermRecord(term=state.term + 1)))
        return real(self, merge, made, term=term, gaps=gaps)

    monkeypatch.setattr(Merger, "swap", swap)
    append(log, 40, 2)
    monkeypatch.undo()
    state = home_of(opened(log.path)).head.state
    assert state.term == 2  # once for each partition
    assert not [e for extents in state.extents.values() for e in extents if e.segment]
    assert values(log) == expected(42)
    append(log, 42, 40)  # and goes on under the term that is the log's now
    assert any(e.segment for extents in home_of(log).head.state.extents.values() for e in extents)
    assert values(log) == expected(82)


def test_a_merge_that_fails_leaves_the_commit(monkeypatch, caplog):
    log = opened()
    log.create_topic("t", partitions=2)

    def away(*args, **given):
        raise StorageUnavailableError("away")

    monkeypatch.setattr(Merger, "merge", away)
    append(log, 0, 60)
    assert "could not be merged" in caplog.text
    assert values(log) == expected(60)
    monkeypatch.undo()
    append(log, 60, 40)
    assert any(e.segment for extents in home_of(log).head.state.extents.values() for e in extents)
    assert values(log) == expected(100)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_encryption_end_to_end(tmp_path, codec):
    path = tmp_path / "ring"
    path.write_text("k1 " + "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=" + "\n")
    assert Keyring.load(str(path)).ids == ["k1"]
    from sparklog.tiered.reading.options import RemoteOptions

    url, ring = f"file://{tmp_path}/log", RemoteOptions(remote_keyring=str(path))
    options = {"diskless.backpressure.max.extents": 5}

    def again(remote):
        return open_log(url, mode="rw", options=options, remote=remote, background=False)

    log = again(ring)
    log.create_topic("t", partitions=2, config={"compression.type": codec})
    append(log, 0, 30)
    log.append("t", pa.table({"value": ["x" * 1000] * 400}), partition=0)
    assert values(log)[-1] == b"w29"
    assert len(values(log)) == 460
    assert b"x" * 100 not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    plain = again(RemoteOptions())
    with pytest.raises(Exception, match=r"remote\.keyring"):
        plain.append("t", pa.table({"value": ["plain"]}))
    assert home_of(plain).head.state.number == home_of(log).head.state.number
