"""What is lost or damaged is restored from a copy, and another log's files are taken away."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import (
    DataCorruptionError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.topic_names import new_topic_id
from sparklog.service import Service, erase, verify
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.object_store import ObjectStore
from tests.advice.test_arguments import TIERED
from tests.format.test_legacy import message
from tests.logdir.partitions import create

ROWS = pa.table({"value": [b"v" * 50] * 3})
BOTH = pytest.mark.parametrize("home", ["log dir", "store"])


def made(path: str, appends: int = 4, config: dict[str, Any] | None = None) -> str:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=config or {})
        for _ in range(appends):
            log.append("t", ROWS)
    return path


def count(path: str | Path) -> int:
    with sparklog.open(path) as log:
        return log.read("t").read_all().num_rows


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return Path(made(str(tmp_path / "log")))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return made(f"file://{tmp_path}/store")


def entries(tmp_path: Path, store: str = "store") -> list[Path]:
    return sorted((tmp_path / store).glob("ledger-*/*"))


def test_objects_of_two_copies_are_restored_from_one(store: str, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with sparklog.open(store, "rw") as log:
        log.append("t", ROWS)
    with sparklog.open(f"file://{tmp_path}/copy", "rw") as log:
        log.append("t", ROWS)
        log.append("t", ROWS)
    before = entries(tmp_path)
    newest = entries(tmp_path, "copy")[-1]
    shutil.copy(newest, before[-1].parent / newest.name)  # it follows the other copy's entry
    with pytest.raises(DataCorruptionError, match="Restore the entire bucket from a single copy"):
        count(store)
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "copy", tmp_path / "store")
    assert count(store) == 18
    assert verify(store).ok


def test_a_dry_run_lists_what_a_store_lost(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries(tmp_path)[-2].unlink()
    with pytest.raises(DataCorruptionError):
        count(store)
    left = entries(tmp_path)
    assert run(["verify", store, "--repair", "--dry-run"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "t-0" in told and "[6," in told, told
    assert entries(tmp_path) == left


@BOTH
def test_a_reader_starts_again_at_the_earliest_offset(
    home: str, log: Path, store: str, request: pytest.FixtureRequest
) -> None:
    path = str(log) if home == "log dir" else store
    with sparklog.open(path) as reader, sparklog.open(path, "rw") as writer:
        followed = reader.read("t", start={0: 0}, follow=True)
        writer.delete_records("t", {0: 6})
        with pytest.raises(OffsetOutOfRangeError, match="start again at 'earliest'"):
            for _ in followed:
                pass
        assert reader.read("t", start="earliest").read_all().num_rows == 6


def test_the_right_directory_is_put_back(log: Path, tmp_path: Path) -> None:
    other = Path(made(str(tmp_path / "other")))
    file = log / "t-0/partition.metadata"
    right = file.read_bytes()
    shutil.copy(other / "t-0/partition.metadata", file)
    assert "put the right one here" in str([found.what for found in verify(log).findings])
    file.write_bytes(right)
    assert verify(log).ok
    assert count(log) == 12


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    path = made(str(tmp_path / "tiered"), 6, {**TIERED, "internal.segment.bytes": 300})
    with Service(path, remote=f"file://{tmp_path}/copies") as service:
        assert not service.run_once().errors
    return Path(path)


def test_copies_are_looked_at_by_their_own_command(tiered: Path, tmp_path: Path) -> None:
    quick = verify(f"file://{tmp_path}/copies", quick=True)
    assert "the copies of segments; run `sparklog tier verify`" in str(quick.unseen)
    assert run(["tier", "verify", str(tiered)]) == 0


def test_a_copy_is_made_again_once_the_store_knows_the_log(tiered: Path, tmp_path: Path) -> None:
    owners = tmp_path / "copies/owners"
    owners.rename(tmp_path / "away")
    next((tmp_path / "copies").rglob("*.log")).unlink()
    told = str([found.what for found in verify_tier(tiered).findings])
    assert "Run `sparklog tier verify` again once that is corrected" in told
    (tmp_path / "away").rename(owners)
    assert not verify_tier(tiered).ok
    with Service(tiered) as service:
        assert not service.run_once().errors
    assert verify_tier(tiered).ok


class Answer(LocalDriver):
    """A store that refuses to write until its trouble is over."""

    trouble = "tenant 7 is over its quota"

    def put(self, name: str, data: bytes, crc: int) -> None:
        if self.trouble:
            raise ValueError(self.trouble)
        super().put(name, data, crc)


def test_a_stores_own_words_say_what_is_wrong(tmp_path: Path) -> None:
    driver = Answer(str(tmp_path))
    with pytest.raises(SparklogError, match="see the store's message") as refusal:
        ObjectStore(driver).put("a", b"x")
    assert "tenant 7 is over its quota" in str(refusal.value)
    driver.trouble = ""
    ObjectStore(driver).put("a", b"x")
    assert ObjectStore(driver).get("a") == b"x"


def test_a_store_that_another_one_replaced_is_read_by_its_own_url(tmp_path: Path) -> None:
    rows = pa.table({"value": [os.urandom(300_000)] * 2})
    url = f"file://{tmp_path}/store"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t")
        for _ in range(3):
            log.append("t", rows)
    with sparklog.open(url, options={"remote.patience.ms": 0}) as reader:
        found = reader.read("t")
        next(found)
        (tmp_path / "store").rename(tmp_path / "away")
        made(f"file://{tmp_path}/store")
        with pytest.raises(StorageUnavailableError, match="Correct the URL, endpoint_url"):
            for _ in found:
                pass
    assert count(f"file://{tmp_path}/away") == 6


def test_pieces_of_an_upload_are_erased_after_an_hour(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    made(url)
    piece = tmp_path / "store/t-x.log.77-0123abcd.partial"
    piece.write_bytes(b"of a killed process")
    report = erase(url, "t", [b"k"])
    assert report.complete and piece.exists()
    assert "run the same erasure once more after that hour" in str(report)
    os.utime(piece, (0, 0))
    assert erase(url, "t", [b"k"]).complete
    assert not piece.exists()


def test_copies_of_another_history_are_deleted_by_hand(tiered: Path, tmp_path: Path) -> None:
    away = tmp_path / "earlier"
    shutil.copytree(tiered, away)
    known = {path.name for path in (tmp_path / "copies").rglob("*")}
    with sparklog.open(tiered, "rw") as log:
        for _ in range(3):
            log.append("t", ROWS)
    with Service(tiered) as service:
        assert not service.run_once().errors
    shutil.rmtree(tiered)
    away.rename(tiered)  # from a backup
    with sparklog.open(tiered, "rw") as log:
        log.append("t", ROWS)
    assert run(["tier", "rebuild", str(tiered)]) == 0
    report = erase(str(tiered), "t", [b"k"])
    assert re.search("another history of t-0.*delete them if no log needs", str(report.pending))
    for file in (tmp_path / "copies").rglob("*"):
        if file.name not in known and file.is_file() and file.parent.name != "owners":
            file.unlink()
    with Service(tiered) as service:
        service.run_once()
    report = erase(str(tiered), "t", [b"k"])
    assert not report.pending
    assert count(tiered) == 21


@BOTH
def test_old_records_are_written_anew_for_compaction(home: str, tmp_path: Path) -> None:
    """Of magic 1, as brokers wrote them before 0.11."""
    old = tmp_path / "old"
    old.mkdir()
    create(old / "t-0").close()
    (old / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {new_topic_id()}\n")
    raw = b"".join(message(n, b"k%d" % (n % 2), b"v%d" % n) for n in range(6))
    (old / f"t-0/{0:020d}.log").write_bytes(raw)
    (old / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    report = erase(str(old), "t", [b"k0"])
    advice = "let a broker before 4.0 compact the topic, or copy its records to a new topic"
    assert advice in str(report)
    target = f"file://{tmp_path}/new" if home == "store" else str(tmp_path / "new")
    with sparklog.open(old) as source, sparklog.open(target, "rw") as new:
        new.create_topic("t", config={"cleanup.policy": "compact"})
        new.append("t", source.read("t", columns=["key", "value"]).read_all())
    assert erase(target, "t", [b"k0"]).complete
    with sparklog.open(target) as read:
        keys = read.read("t").read_all()["key"].to_pylist()
    assert set(keys) == {b"k1"}
