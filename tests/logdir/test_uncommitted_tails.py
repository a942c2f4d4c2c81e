"""Bytes behind the committed end of a log that was closed cleanly: opening sets them aside."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.scan import rebase, scan
from sparklog.logdir.meta_properties import META_PROPERTIES
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, RECOVERY_POINT
from sparklog.service import verify
from sparklog.service.health import examine
from sparklog.storage.committed_appends import Appends
from tests.service.logs import T0, kept

LEDGER = "__sparklog_commits-0"
CONFIG = {"internal.segment.bytes": 600, "index.interval.bytes": 100, "retention.ms": -1}


def make(path: Path) -> None:
    """t-0: some segments, of which the active one holds records."""
    with sparklog.open(path, "rw", clock=ManualClock(T0)) as log:
        log.create_topic("t", config=CONFIG)
        for n in range(23):
            log.append("t", pa.table({"value": [f"{n}-a", f"{n}-b"]}))


def logs(path: Path, partition: str = "t-0") -> list[Path]:
    return sorted((path / partition).glob("*.log"))


def values(path: Path) -> list[bytes]:
    with sparklog.open(path) as log:
        return list(log.read("t", columns=["value"]).read_all().column(0).to_pylist())


def batches(raw: bytes) -> list[bytes]:
    table = scan(raw, path="x").table
    return [raw[row["position"] : row["position"] + row["size"]] for row in table]


def at_offset(raw: bytes, offset: int) -> bytes:
    data = bytearray(raw)
    first = int.from_bytes(raw[:8], "big")
    rebase(data, offset - first, 0)
    return bytes(data)


def last_twice(raw: bytes, end: int) -> bytes:
    return batches(raw)[-1]


def first_again(raw: bytes, end: int) -> bytes:
    return batches(raw)[0]


def one_that_fits(raw: bytes, end: int) -> bytes:
    return at_offset(batches(raw)[0], end)


def two_that_fit(raw: bytes, end: int) -> bytes:
    fits = one_that_fits(raw, end)
    count = scan(fits, path="x").table["count"][0]
    return fits + at_offset(fits, end + int(count))


def half(raw: bytes, end: int) -> bytes:
    return one_that_fits(raw, end)[:70]


def zeros(raw: bytes, end: int) -> bytes:
    return bytes(200)


Tail = Callable[[bytes, int], bytes]
TAILS: list[Tail] = [last_twice, first_again, one_that_fits, two_that_fit, half, zeros]


def plant(file: Path, end: int, tail: Tail) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw + tail(raw, end))


@pytest.mark.parametrize("tail", TAILS)
def test_behind_the_active_segment(tmp_path: Path, tail: Tail) -> None:
    path = tmp_path / "log"
    make(path)
    before, file = values(path), logs(path)[-1]
    sound = file.read_bytes()
    assert sound
    plant(file, 46, tail)
    garbage = file.read_bytes()[len(sound) :]
    assert values(path) == before
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    report = verify(copy)
    assert not report.ok
    assert "lie past the end 46" in str(report)
    assert verify(copy, repair=True).ok
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["more"]}))
        assert log.offsets("t") == {0: (0, 47)}
    assert values(path) == [*before, b"more"]
    assert verify(path).ok, str(verify(path))
    (aside,) = path.glob("sparklog-quarantine-*")
    assert aside.read_bytes() == garbage
    assert examine(path).level.value != "red"


@pytest.mark.parametrize("tail", TAILS)
def test_behind_a_closed_segment(tmp_path: Path, tail: Tail) -> None:
    """Nobody looks there at an open. Readers never take it for records, and a repair moves it."""
    path = tmp_path / "log"
    make(path)
    before, file = values(path), logs(path)[1]
    plant(file, int(logs(path)[2].stem), tail)
    report = verify(path)
    assert not report.ok
    if tail is zeros:
        assert values(path) == before
    else:
        with pytest.raises(sparklog.DataCorruptionError, match=r"overlaps|expected offset"):
            values(path)
    sparklog.open(path, "rw").close()
    assert verify(path, repair=True).ok
    assert verify(path).ok
    assert values(path) == before
    assert len(list(path.glob("sparklog-quarantine-*"))) == 1


@pytest.mark.parametrize("tail", [one_that_fits, zeros])
def test_behind_a_closed_segment_of_an_older_sparklog(
    tmp_path: Path, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without checksums a segment that goes on into the next one may be another log's."""
    path = tmp_path / "log"
    make(path)
    add = Appends.add
    monkeypatch.setattr(Appends, "add", lambda self, first, end, crc: add(self, first, end, None))
    plant(logs(path)[1], int(logs(path)[2].stem), tail)
    assert not verify(path).ok
    before = kept(path)
    assert verify(path, repair=True).ok is (tail is zeros)
    if tail is not zeros:
        assert "may be another log's" in str(verify(path))
        assert kept(path) == before


def test_behind_a_closed_segment_of_a_log_that_is_open(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    before = values(path)
    with sparklog.open(path, "rw"):
        plant(logs(path)[1], int(logs(path)[2].stem), one_that_fits)
        assert not verify(path).ok
        assert verify(path, repair=True).ok
        assert values(path) == before
    assert verify(path).ok


@pytest.mark.parametrize("tail", TAILS)
def test_behind_the_ledger(tmp_path: Path, tail: Tail) -> None:
    path = tmp_path / "log"
    make(path)
    before, (file,) = values(path), logs(path, LEDGER)
    end = int(scan(file.read_bytes(), path="x").table["last_offset"][-1]) + 1
    plant(file, end, tail)
    assert values(path) == before
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    assert not verify(copy).ok
    assert verify(copy, repair=True).ok
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["more"]}))
    assert values(path) == [*before, b"more"]
    assert verify(path).ok, str(verify(path))
    assert len(list(path.glob("sparklog-quarantine-*"))) == 1


@pytest.mark.parametrize("behind", [0, 2])
def test_a_segment_behind_the_end(tmp_path: Path, behind: int) -> None:
    path = tmp_path / "log"
    make(path)
    before, end = values(path), 46 + behind
    (path / f"t-0/{end:020d}.log").write_bytes(one_that_fits(logs(path)[0].read_bytes(), end))
    assert values(path) == before
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["more"]}))
    assert values(path) == [*before, b"more"]
    assert verify(path).ok, str(verify(path))


def test_what_a_broker_may_have_appended_is_taken_over(tmp_path: Path) -> None:
    """After a handover a power cut may bring our clean mark back behind a broker's work."""
    path = tmp_path / "log"
    make(path)
    before = values(path)
    (path / META_PROPERTIES).write_text("version=1\n")
    plant(logs(path)[-1], 46, two_that_fit)
    sparklog.open(path, "rw").close()
    assert len(values(path)) == len(before) + 4
    assert not list(path.glob("sparklog-quarantine-*"))


@pytest.mark.parametrize("tail", [last_twice, first_again, half, zeros])
def test_what_no_broker_appends_is_set_aside_after_a_handover(tmp_path: Path, tail: Tail) -> None:
    path = tmp_path / "log"
    make(path)
    before = values(path)
    (path / META_PROPERTIES).write_text("version=1\n")
    plant(logs(path)[-1], 46, tail)
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["more"]}))
    assert values(path) == [*before, b"more"]
    assert len(list(path.glob("sparklog-quarantine-*"))) == 1


def test_a_log_without_a_tail_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    before = kept(path / "t-0")
    sparklog.open(path, "rw").close()
    assert kept(path / "t-0") == before
    assert not [name for name in os.listdir(path) if "quarantine" in name]


@pytest.mark.parametrize("name", ["sparklog.watermarks", HIGH_WATERMARK, RECOVERY_POINT])
def test_an_older_checkpoint_file_makes_no_record_uncommitted(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    make(path)
    older = (path / name).read_bytes()
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["last"]}))
    before = values(path)
    (path / name).write_bytes(older)
    if name != HIGH_WATERMARK:  # which is refused: see PROTOCOL, Read
        with sparklog.open(path, "rw") as log:
            log.append("t", pa.table({"value": ["more"]}))
    else:
        assert verify(path, repair=True).ok
    assert values(path)[: len(before)] == before
    assert not list(path.glob("sparklog-quarantine-*"))
    assert verify(path).ok, str(verify(path))
