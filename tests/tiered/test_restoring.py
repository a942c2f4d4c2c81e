"""A restored log dir is what was archived, and what Kafka's own code takes."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.errors import DataCorruptionError, InvalidRequestError, OffsetOutOfRangeError
from sparklog.service import verify
from sparklog.tiered import restoring
from sparklog.tiered.restoring import restore
from tests.logdir.partitions import T0
from tests.oracle import Oracle
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition

CONFIG = {**SMALL, "max.message.bytes": 4321}
TIERED = {"remote.storage.enable": "true", "retention.bytes": "1000", "local.retention.ms": "9"}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """(the log, a directory of the bucket's form): t of two partitions, u of one."""
    path, store = tmp_path / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        log.create_topic("u", config=SMALL)
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
        fill(log, "u", 0, 9)
    for name in ("t-0", "t-1", "u-0"):
        copy_partition(path / name, store, config=CONFIG | TIERED)
    bucket = tmp_path / "bucket"
    for name, data in store.objects.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_bytes(data)
    return path, bucket


def test_all_of_it(
    made: tuple[Path, Path], tmp_path: Path, oracle: Oracle, caplog: pytest.LogCaptureFixture
) -> None:
    path, bucket = made
    seen: list[tuple[int, int]] = []
    given: dict[str, Any] = {"progress": lambda done, total: seen.append((done, total))}
    report = restore(str(bucket), tmp_path / "back", **given)
    assert seen[-1] == (report.bytes, report.bytes)
    assert verify(tmp_path / "back").ok
    ours = [r for r in caplog.records if r.name.startswith("sparklog")]
    assert not ours  # the directory that it works in is nobody's business
    with (
        sparklog.open(path) as log,
        sparklog.open(bucket) as archive,
        sparklog.open(tmp_path / "back") as back,
    ):
        assert list(back.topics()) == ["t", "u"]
        assert back.topic("t").id == log.topic("t").id
        assert back.topic("t").config.max_message_bytes == 4321
        assert back.topic("t").config.retention_ms == -1
        assert back.topic("t").config.to_dict().keys().isdisjoint(TIERED)
        for topic in ("t", "u"):
            assert back.offsets(topic) == archive.offsets(topic) == report.offsets[topic]
            assert back.read(topic).read_all().equals(archive.read(topic).read_all())
            for when in range(T0 - 500, T0 + 31_000, 2500):
                held = archive.offsets_for_times(topic, when)
                assert back.offsets_for_times(topic, when) == held
    for name in ("t-0", "t-1", "u-0"):
        assert oracle.open(tmp_path / "back" / name, clean=True).changed == []
    with sparklog.open(tmp_path / "back", "rw") as back:  # and it goes on, under a new epoch
        fill(back, "t", 0, 1, first=99)
        end = back.offsets("t")[0][1]
        assert back.end_offset_for_epoch("t", 0, 10)[1] in (-1, end)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({0: 10}, {0: 31}),
        ({0: 7}, "latest"),
        ("earliest", {0: 20}),
        (datetime.fromtimestamp(T0 / 1000 + 5, UTC), datetime.fromtimestamp(T0 / 1000 + 9, UTC)),
    ],
)
def test_a_range(
    made: tuple[Path, Path], tmp_path: Path, oracle: Oracle, start: Any, end: Any
) -> None:
    _, bucket = made
    report = restore(str(bucket), tmp_path / "back", topics=["t"], start=start, end=end)
    assert verify(tmp_path / "back").ok
    with sparklog.open(bucket) as archive, sparklog.open(tmp_path / "back") as back:
        spans = report.offsets["t"]
        assert back.offsets("t") == spans
        expected = archive.read("t", start=start, end=end).read_all()
        first, last = ({p: span[side] for p, span in spans.items()} for side in (0, 1))
        assert back.read("t").read_all().equals(archive.read("t", start=first, end=last).read_all())
        assert 0 <= back.read("t").read_all().num_rows - expected.num_rows <= 2  # whole batches
    for name in ("t-0", "t-1"):
        assert oracle.open(tmp_path / "back" / name, clean=True).changed == []


def test_a_restore_that_was_broken_off_goes_on(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bucket = made

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(str(bucket), tmp_path / "back", progress=stop, threads=1)
    assert not (tmp_path / "back").exists()
    fetched: list[str] = []
    fetch = "sparklog.tiered.reading.remote_objects.LogRanges.fetch"
    monkeypatch.setattr(fetch, _noting(fetched), raising=True)
    restore(str(bucket), tmp_path / "back")
    with sparklog.open(bucket) as archive, sparklog.open(tmp_path / "back") as back:
        fetched_again = len(set(fetched))
        assert back.read("t").read_all().equals(archive.read("t").read_all())
    logs = len(list(bucket.glob("*/*.log")))
    assert 0 < fetched_again < logs
    assert not (tmp_path / "back.restoring").exists()


def _noting(names: list[str]) -> Callable[..., bytes]:
    def fetch(self: Any, start: int, end: int) -> bytes:
        names.append(self.name)
        data: bytes = self.store.get(self.name, start, end)
        return data

    return fetch


def test_a_damaged_object_is_not_restored(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, bucket = made
    victim = min(bucket.glob("t-0-*/*.log"))
    raw = bytearray(victim.read_bytes())
    raw[-1] ^= 1
    victim.write_bytes(raw)
    with pytest.raises(DataCorruptionError, match="CRC"):
        restore(str(bucket), tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_an_object_that_goes_while_it_is_restored(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed, then gone: told with its offsets, not as a bare FileNotFoundError."""
    _, bucket = made
    gone = sorted((bucket / next(p.name for p in bucket.glob("t-0-*"))).glob("*.log"))[2]
    first = int(gone.name[:20])
    looked = restoring.has_ledger

    def look(*given: Any) -> bool:
        gone.unlink()  # the segments to restore have been listed
        return looked(*given)

    monkeypatch.setattr(restoring, "has_ledger", look)
    with pytest.raises(DataCorruptionError, match="other objects of the topic exist") as lost:
        restore(str(bucket), tmp_path / "back")
    assert (lost.value.first, gone.name in str(lost.value)) == (first, True)
    assert lost.value.end is not None


def test_refusals(made: tuple[Path, Path], tmp_path: Path) -> None:
    path, bucket = made
    with pytest.raises(InvalidRequestError, match="not empty"):
        restore(str(bucket), path)
    with pytest.raises(InvalidRequestError, match="neither a log nor an archive"):
        restore(str(path), tmp_path / "back")
    with pytest.raises(InvalidRequestError, match="no topic v"):
        restore(str(bucket), tmp_path / "back", topics=["v"])
    with pytest.raises(InvalidRequestError, match="a single topic"):
        restore(str(bucket), tmp_path / "back", start={0: 1})
    with pytest.raises(OffsetOutOfRangeError):
        restore(str(bucket), tmp_path / "back", topics=["t"], start={0: 10_000})
    with pytest.raises(InvalidRequestError, match="t-0: the range ends at offset 2, before it st"):
        restore(str(bucket), tmp_path / "back", topics=["t"], start={0: 5}, end={0: 2})
    assert not (tmp_path / "back").exists()


def test_an_empty_range_brings_nothing(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Not the batch that it lies in."""
    report = restore(str(made[1]), tmp_path / "back", topics=["t"], start={0: 5}, end={0: 5})
    assert report.offsets["t"][0] == (5, 5)
    with sparklog.open(tmp_path / "back") as back:
        assert back.offsets("t")[0] == (5, 5)
    assert not any(log.stat().st_size for log in (tmp_path / "back" / "t-0").glob("*.log"))
