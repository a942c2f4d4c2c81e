"""A whole log moves from a log dir to a store, and back: its queries and groups go on there."""

import json
import random
import shutil
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock, system_clock
from sparklog.common import TopicPartition
from sparklog.diskless.import_objects import LogImport
from sparklog.diskless.log_creation import current_state
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
)
from sparklog.fs import LocalFileSystem
from sparklog.log.commit import CommitResult
from sparklog.log.log import home_of
from sparklog.log.timeline import Timeline
from sparklog.logdir.home import commits_of
from sparklog.service import Service, verify
from sparklog.storage.groups import Origin
from sparklog.storage.log_state import LogState
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store
from sparklog.tools.moving.to_log_dir import move_to_log_dir
from sparklog.tools.moving.to_store import move_to_store
from tests.logdir.partitions import batch, marker, transactional
from tests.micro_batches import commit_batch
from tests.oracle.random_logs import TOPIC, Writer, opened
from tests.service.logs import SMALL, fill, table

NOW = system_clock()  # producers that are idle for a day are forgotten
COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def write(log: sparklog.Log, batch: int, value: str) -> CommitResult:
    """Commit micro-batch `batch` of the query q, or replay it."""
    rows = table(value).append_column("partition", pa.array([1], pa.int32()))
    return commit_batch(log, "q", batch, rows, fingerprint=value)


def fill_log(log: sparklog.Log) -> None:
    """t: many segments, a log start, producers; c: compacted; writers, a reset, groups."""
    log.create_topic("t", partitions=2, config={**SMALL, "max.message.bytes": 54321})
    log.create_topic("c", config={**SMALL, "cleanup.policy": "compact",
                                  "min.cleanable.dirty.ratio": 0})  # fmt: skip
    log.create_topic("gone", config=SMALL)
    log.create_topic("empty", partitions=3)
    fill(log, "t", 0, 20)
    fill(log, "gone", 0, 3)
    log.delete_topic("gone")
    for n in range(40):
        log.append("c", table(f"c-{n % 3}-x"))
    for n in range(5):
        log.append("t", table(f"p-{n}", at=NOW), partition=1, producer=(7, 0, n))
    for n in range(4):
        write(log, n, f"w-{n}")
    log.reset("q", 1)
    write(log, 2, "w-2b")
    log.delete_records("t", {0: 14})
    home_of(log).groups.commit("g", {TopicPartition("t", 0): 17}, now_ms=10**12, host="h",
                             origins={TopicPartition("t", 0): Origin(0, 0)})  # fmt: skip


@pytest.fixture(params=[False, True], ids=["plain", "compacted"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with sparklog.open(tmp_path / "log", "rw") as log:
        fill_log(log)
    if request.param:
        Service(tmp_path / "log").run_once()
    return tmp_path / "log"


def state_of(log: sparklog.Log) -> LogState:
    return (
        commits_of(log).state if "://" not in log.path else current_state(open_store(log.path)).log
    )


def told(place: Any, **options: Any) -> dict[str, Any]:
    """What everybody sees of a log, wherever it is."""
    with sparklog.open(place, **options) as log:
        topics = log.topics()
        return {
            "rows": {t: log.read(t, columns=COLUMNS).read_all().to_pylist() for t in topics},
            "offsets": {t: log.offsets(t) for t in topics},
            "ids": {t: about.id for t, about in topics.items()},
            "configs": {t: about.config.to_dict() for t, about in topics.items()},
            "groups": {r.group: dict(r.offsets) for r in home_of(log).groups.readers().groups},
            "abandoned": Timeline(home_of(log).ledger).abandoned(),
        }


def go_on(place: Any, **options: Any) -> None:
    """Replay, then go on."""
    with sparklog.open(place, "rw", **options) as log:
        before = log.offsets("t")
        again = write(log, 2, "w-2b")
        assert log.offsets("t") == before
        assert again.replayed
        log.append("t", table("p-4", at=NOW), partition=1, producer=(7, 0, 4))  # a producer's retry
        assert log.offsets("t") == before
        log.append("t", table("p-5", at=NOW), partition=1, producer=(7, 0, 5))
        assert not write(log, 3, "w-3").replayed
        assert log.offsets("t")[1][1] == before[1][1] + 2
        log.create_topic("gone", config=SMALL)
        assert log.offsets("gone")[0][0] == 6  # where the former one ended


def test_there_and_back(path: Path, tmp_path: Path) -> None:
    url, back = f"file://{tmp_path}/home", tmp_path / "back"
    before = told(path)
    with sparklog.open(path, "rw") as log:
        epoch, writers = state_of(log).epoch, dict(state_of(log).writers)
    made = move_to_store(path, url)
    assert told(path) == before == told(url)
    assert made.epoch > epoch
    there = current_state(open_store(url)).log
    assert there.writers == writers
    assert verify(url).ok
    assert move_to_log_dir(url, back).epoch > made.epoch
    assert told(back) == before
    with sparklog.open(back, "rw") as log:
        assert state_of(log).writers == writers
    assert verify(back).ok
    go_on(url)
    go_on(back)
    assert verify(back).ok
    assert verify(url).ok


def test_segments_stay_files_that_a_broker_loads(path: Path, tmp_path: Path) -> None:
    """Closed segments are byte for byte what they were, and their indexes too."""
    url, back = f"file://{tmp_path}/home", tmp_path / "back"
    move_to_store(path, url)
    move_to_log_dir(url, back)
    checked = 0
    for log in sorted((path / "t-0").glob("*.log"))[1:]:
        if log.stat().st_size and (there := back / "t-0" / log.name).exists():
            assert there.read_bytes() == log.read_bytes()
            assert there.with_suffix(".index").read_bytes().rstrip(b"\0") == (
                log.with_suffix(".index").read_bytes().rstrip(b"\0")
            )
            checked += 1
    assert checked > 1
    assert (back / ".kafka_cleanshutdown").exists()
    (back / "__sparklog_commits-0").rename(tmp_path / "ledger")  # as a broker meets it
    for name in back.glob("sparklog.*"):
        name.unlink()
    before = told(path)
    with sparklog.open(back) as as_a_brokers:
        assert {t: as_a_brokers.offsets(t) for t in before["offsets"]} == before["offsets"]


def test_what_was_staged_becomes_segments_of_their_size(tmp_path: Path) -> None:
    """A log that was in a store from the first on: extents of a few batches, merged and not."""
    url, back = f"file://{tmp_path}/home", tmp_path / "back"
    with sparklog.open(url, "rw") as log:
        fill_log(log)
    before = told(url)
    move_to_log_dir(url, back)
    assert told(back) == before
    sizes = [one.stat().st_size for one in sorted((back / "t-0").glob("*.log"))]
    assert len(sizes) > 2
    assert max(sizes) <= 600
    go_on(back)
    assert verify(back).ok


def test_compacted_in_the_store(tmp_path: Path) -> None:
    url, back = f"file://{tmp_path}/home", tmp_path / "back"
    with sparklog.open(url, "rw") as log:
        fill_log(log)
    Service(url).run_once()
    before = told(url)
    move_to_log_dir(url, back)
    assert told(back) == before
    assert verify(back).ok


def test_encrypted(path: Path, tmp_path: Path) -> None:
    url, back = f"file://{tmp_path}/home", tmp_path / "back"
    keys = tmp_path / "keys"
    keys.write_text(json.dumps({"current": "k", "keys": {"k": b64encode(bytes(32)).decode()}}))
    options = RemoteOptions.parse({"remote.keyring": str(keys)})[0]
    before = told(path)
    move_to_store(path, url, options=options)
    assert told(url, options={"remote.keyring": str(keys)}) == before
    logs = list((tmp_path / "home").glob("*/*.log"))
    assert logs
    assert not any(b"t-19-a" in one.read_bytes() for one in logs)
    with pytest.raises(InvalidRequestError, match="key"):
        move_to_log_dir(url, back)
    assert not back.exists()
    move_to_log_dir(url, back, options=options)
    assert told(back) == before


def test_transactions_are_moved_once_they_have_ended(tmp_path: Path) -> None:
    """Nobody could end them in the store, where a service compacts them as a broker does."""
    path, url, clock = tmp_path / "log", f"file://{tmp_path}/home", ManualClock()

    def append(data: bytes) -> None:
        with opened(path, clock) as log:
            Writer(commits_of(log), clock, random.Random(0)).append([data])

    with opened(path, clock) as log:
        log.create_topic(TOPIC, config={"cleanup.policy": "compact"})
    append(transactional(batch("a", producer=(7, 0, 0))))
    with pytest.raises(InvalidRequestError, match=r"open transactions of producers \[7\]"):
        move_to_store(path, url)
    append(marker(0, producer_id=7))
    move_to_store(path, url)
    with sparklog.open(url) as log:
        assert log.read(TOPIC).read_all().num_rows == 1
        assert not log.read(TOPIC, isolation="read_committed").read_all().num_rows
    report = Service(url).run_once()
    assert not report.errors
    assert [one.topic for one in report.cleaned] == [TOPIC]
    assert verify(url).ok
    with sparklog.open(url) as log:
        assert not log.read(TOPIC).read_all().num_rows


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_move_goes_on(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    url, before = f"file://{tmp_path}/home", told(path)
    left = [after]

    def cut(self: ObjectStore, name: str, *args: Any) -> None:
        if name.endswith(".log"):
            left[0] -= 1
            if left[0] < 0:
                raise StorageUnavailableError("the store is away")
        put_stream(self, name, *args)

    put_stream = ObjectStore.put_stream
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_stream", cut)
        with pytest.raises(StorageUnavailableError):
            move_to_store(path, url, threads=1)
    with pytest.raises(InvalidRequestError, match="isn't complete yet"):
        told(url)
    with sparklog.open(tmp_path / "other", "rw") as log:
        log.create_topic("t")
    with pytest.raises(InvalidRequestError, match="is an incomplete import of"):
        move_to_store(tmp_path / "other", url)
    puts: list[str] = []

    def noted(self: ObjectStore, name: str, *args: Any) -> None:
        puts.append(name)
        put_stream(self, name, *args)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_stream", noted)
        move_to_store(path, url)
    assert len([name for name in puts if name.endswith(".log")]) + after == len(
        list((tmp_path / "home").glob("*/*.log"))
    )
    assert told(url) == before
    assert verify(url).ok
    with pytest.raises(InvalidRequestError, match="a log already"):
        move_to_store(path, url)


def test_cut_off_before_it_was_tidied_up(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is there, and was written to since: the second call changes nothing of it."""
    url = f"file://{tmp_path}/home"

    def cut(*_: object, **__: object) -> None:
        raise StorageUnavailableError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(LogImport, "complete", cut)
        with pytest.raises(StorageUnavailableError):
            move_to_store(path, url)
    go_on(url)
    with sparklog.open(path, "rw") as log:
        fill(log, "t", 0, 3)
    now = told(url)
    made = move_to_store(path, url)
    assert made.offsets["t"] == now["offsets"]["t"]
    assert told(url) == now
    Service(url).run_once()  # it makes the manifests
    assert verify(url).ok
    with pytest.raises(InvalidRequestError, match="a log already"):
        move_to_store(path, url)


def test_what_is_only_in_its_tier_comes_along(tmp_path: Path) -> None:
    path, url, back = tmp_path / "log", f"file://{tmp_path}/home", tmp_path / "back"
    with sparklog.open(path, "rw") as log:
        tiered = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
        log.create_topic("t", config={**SMALL, **tiered})
        fill(log, "t", 0, 40)
    for _ in range(3):  # it copies, tells of the deletion, deletes
        Service(path, remote=f"file://{tmp_path}/tier").run_once()
    assert min(int(one.stem) for one in (path / "t-0").glob("*.log")) > 0
    before = told(path)
    move_to_store(path, url)
    shutil.rmtree(tmp_path / "tier")
    there = told(url)
    assert all(there[name] == before[name] for name in ("rows", "offsets", "ids"))
    assert there["configs"]["t"] == {k: v for k, v in before["configs"]["t"].items()
                                     if k not in tiered}  # fmt: skip
    assert set(current_state(open_store(url)).log.topics) == {"t"}
    assert verify(url).ok
    move_to_log_dir(url, back)
    assert told(back) == there


def test_an_interrupted_way_back_leaves_nothing(path: Path, tmp_path: Path) -> None:
    url, back, before = f"file://{tmp_path}/home", tmp_path / "back", told(path)
    move_to_store(path, url)
    victim = sorted((tmp_path / "home").glob("t-0-*/*.log"))[-1]
    raw = victim.read_bytes()
    victim.write_bytes(raw[:70] + bytes([raw[70] ^ 1]) + raw[71:])
    with pytest.raises(DataCorruptionError):
        move_to_log_dir(url, back)
    assert not back.exists()
    assert not list(tmp_path.glob(".back*"))
    victim.write_bytes(raw)
    back.mkdir()
    move_to_log_dir(url, back)
    assert told(back) == before
    with pytest.raises(InvalidRequestError, match="exists"):
        move_to_log_dir(url, back)


class _SmallDisk(LocalFileSystem):
    """A file system whose directory `small` has room for ten bytes."""

    def free_bytes(self, path: str) -> int:
        return 10 if "/small/" in path else super().free_bytes(path)


def test_a_disk_that_is_too_small_is_left_for_another(path: Path, tmp_path: Path) -> None:
    url, before = f"file://{tmp_path}/home", told(path)
    move_to_store(path, url)
    (tmp_path / "small").mkdir()
    with pytest.raises(StorageUnavailableError, match="10 are free; move to another disk"):
        move_to_log_dir(url, tmp_path / "small/log", fs=_SmallDisk())
    assert not list((tmp_path / "small").iterdir())
    move_to_log_dir(url, tmp_path / "large", fs=_SmallDisk())
    assert told(tmp_path / "large") == before


def test_writers_wait_while_it_moves(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to the log dir that isn't moved; a service deletes nothing meanwhile."""
    refused: list[Exception] = []
    put_stream = ObjectStore.put_stream

    def meanwhile(self: ObjectStore, name: str, *args: Any) -> None:
        if not refused:
            command = [sys.executable, "-c", _WRITER, str(path)]
            out = subprocess.run(command, capture_output=True, text=True, check=False)
            refused.append(LogLockedError(out.stdout + out.stderr))
        put_stream(self, name, *args)

    monkeypatch.setattr(ObjectStore, "put_stream", meanwhile)
    move_to_store(path, f"file://{tmp_path}/home", threads=1)
    assert "locked out" in str(refused[0])


_WRITER = """
import sys, sparklog
from sparklog.errors import LogLockedError
try:
    with sparklog.open(sys.argv[1], "rw", options={"lock.timeout.ms": 300}) as log:
        log.append("t", {"value": ["x"]})
except LogLockedError:
    print("locked out")
"""


def test_by_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, back, before = f"file://{tmp_path}/home", tmp_path / "back", told(path)
    assert run(["export", str(path), "--all", "--to", url]) == 0
    assert "writer q: batch 2" in capsys.readouterr().out
    assert run(["tier", "restore", url, str(back), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["writers"] == {"q": 2}
    assert told(back) == before
    again = str(tmp_path / "again")
    assert run(["export", url, "--all", "--to", again]) == 0
    assert told(again) == before
    for wrong in (["--topic", "t", "--to", url], ["--to-delta", url], [], ["--to", again],
                  ["--to", url]):  # fmt: skip
        assert run(["export", str(path), "--all", *wrong]) == 2, wrong


def committed(place: Any) -> dict[str, Any]:
    """What a reader of committed records alone gets."""
    with sparklog.open(place) as log:
        return {
            topic: log.read(topic, columns=COLUMNS, isolation="read_committed").read_all()
            for topic in sorted(log.topics())
        }


def test_what_a_broker_wrote(tmp_path: Path) -> None:
    """Aborted transactions, LogAppendTime, compaction, a trimmed topic."""
    first, url, back = tmp_path / "a", f"file://{tmp_path}/home", tmp_path / "back"
    shutil.copytree(Path(__file__).parents[1] / "golden" / "kafka-4.1" / "logdir", first)
    with sparklog.open(first, "rw") as log:
        fill_log(log)
    before, seen = told(first), committed(first)
    assert seen["txn"].num_rows < len(before["rows"]["txn"])
    move_to_store(first, url)
    assert (told(url), committed(url)) == (before, seen)
    assert verify(url).ok
    move_to_log_dir(url, back)
    assert (told(back), committed(back)) == (before, seen)
    assert verify(back).ok
    go_on(back)


def test_several_log_dirs(tmp_path: Path) -> None:
    path, url = f"{tmp_path}/a,{tmp_path}/b", f"file://{tmp_path}/home"
    with sparklog.open(path, "rw") as log:
        fill_log(log)
    before = told(path)
    move_to_store(path, url)
    assert told(url) == before
    assert verify(url).ok
